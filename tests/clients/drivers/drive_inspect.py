"""Run Inspect's ReAct agent on one sample: `python drive_inspect.py URL LOGS PROMPT`."""

import sys

import inspect_ai
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.tool import bash

url, logs, prompt = sys.argv[1:4]
model = get_model(
    "openai/scripted-model",
    base_url=f"{url}/v1",
    api_key="none",
    responses_api=False,
    config=GenerateConfig(max_retries=2),
)
agent = react(tools=[bash(timeout=30)], submit=False, on_continue=None)
task = inspect_ai.Task(
    dataset=[Sample(input=prompt, target="x")], solver=agent, sandbox="local", message_limit=40
)
inspect_ai.eval(task, model=model, log_dir=logs, display="none")
