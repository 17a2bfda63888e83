"""What a step of pydantic-ai's agent costs with a model that answers at once. Runs in an environment of its
own.

Its `FunctionModel` guesses what a request uses from the whole history; a model class of one's own does not.
"""

import asyncio
import gc
import sys
from importlib.metadata import version
from pathlib import Path

# A script's own folder is on the path, not the one above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage, UsageLimits

from bench.serving import ANSWERS, RESULTS, TASK, Marks, serve


async def read(path: str) -> str:
    """Read a file."""
    return RESULTS[len(path) % len(RESULTS)]


class Own(Model):
    """A model class as one would write it for a vendor, which answers at once."""

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self._marks = marks

    @property
    def model_name(self) -> str:
        """What it calls itself."""
        return "instant"

    @property
    def system(self) -> str:
        """Whose model it is."""
        return "bench"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The next answer."""
        return _answer(self._marks, RequestUsage(input_tokens=1_000, output_tokens=50))


def function_model(steps: int) -> float:
    """The model that pydantic-ai has for tests."""
    marks = Marks(steps)

    async def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        return _answer(marks, RequestUsage())

    return _run(marks, FunctionModel(answer))


def own_model(steps: int) -> float:
    """A small model class instead."""
    marks = Marks(steps)
    return _run(marks, Own(marks))


def _answer(marks: Marks, usage: RequestUsage) -> ModelResponse:
    step = marks.request()
    if step is None:
        return ModelResponse(parts=[TextPart("done")], usage=usage)
    call = ToolCallPart("read", f'{{"path": "src/{step}.py"}}', tool_call_id=f"call_{step}")
    return ModelResponse(parts=[TextPart(ANSWERS[step % len(ANSWERS)]), call], usage=usage)


def _run(marks: Marks, model: Model) -> float:
    agent = Agent(model, tools=[read])
    gc.collect()
    asyncio.run(agent.run(TASK, usage_limits=UsageLimits(request_limit=None)))
    return marks.step()


CASES = {"FunctionModel": function_model, "own Model class": own_model}

if __name__ == "__main__":
    serve({name: version(name) for name in ("pydantic-ai-slim",)}, CASES)
