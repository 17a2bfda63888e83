"""An agent of OpenHands' SDK with a shell and an editor: `python drive_openhands.py URL FOLDER PROMPT`.

All calls with the same folder go on with one conversation.
"""

import os
import sys
from uuid import UUID

from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.file_editor import FileEditorTool
from openhands.tools.terminal import TerminalTool
from pydantic import SecretStr

url, folder, prompt = sys.argv[1:4]
model = LLM(
    model="openai/scripted-model",
    base_url=f"{url}/v1",
    api_key=SecretStr("none"),
    usage_id="agent",
    num_retries=2,
    retry_min_wait=1,
    retry_max_wait=2,
    native_tool_calling=True,
    max_input_tokens=200_000,
)
agent = Agent(llm=model, tools=[Tool(name=TerminalTool.name), Tool(name=FileEditorTool.name)])
conversation = Conversation(
    agent=agent,
    workspace=os.getcwd(),
    persistence_dir=folder,
    conversation_id=UUID(int=1),
    visualizer=None,
)
conversation.send_message(prompt)
conversation.run()
conversation.close()
