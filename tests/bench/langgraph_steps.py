"""What a step of LangGraph costs, in memory, with a model that answers at once. Runs in an environment of its
own.

A step is the agent's node, which answers with a call, and the tools' node, which answers it; the history is
kept whole.
"""

import asyncio
import gc
import sys
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

# A script's own folder is on the path, not the one above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from bench.serving import ANSWERS, RESULTS, TASK, Marks, serve

_THREADS = count()


async def read(path: str) -> str:
    """Read a file."""
    return RESULTS[len(path) % len(RESULTS)]


async def answered(state: MessagesState) -> dict[str, Any]:
    """The tools' node as one would write it by hand: no look-up, no check of arguments."""
    call = state["messages"][-1].tool_calls[0]
    result = RESULTS[len(call["args"]["path"]) % len(RESULTS)]
    return {"messages": [ToolMessage(result, tool_call_id=call["id"])]}


def bare(steps: int) -> float:
    """Two nodes that are plain functions."""
    return _run(steps, answered)


def graph(steps: int) -> float:
    """With LangGraph's own node for tools."""
    return _run(steps, ToolNode([tool(read)]))


def saved(steps: int) -> float:
    """And with a checkpoint of each step, in memory."""
    return _run(steps, ToolNode([tool(read)]), InMemorySaver())


def _run(steps: int, tools: Any, saver: Any = None) -> float:
    marks = Marks(steps)

    async def agent(_: MessagesState) -> dict[str, Any]:
        step = marks.request()
        if step is None:
            return {"messages": [AIMessage("done")]}
        call = {"name": "read", "args": {"path": f"src/{step}.py"}, "id": f"call_{step}"}
        return {"messages": [AIMessage(ANSWERS[step % len(ANSWERS)], tool_calls=[call])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    config = {"recursion_limit": 2 * steps + 10, "configurable": {"thread_id": str(next(_THREADS))}}
    gc.collect()
    asyncio.run(builder.compile(checkpointer=saver).ainvoke({"messages": [HumanMessage(TASK)]}, config))
    return marks.step()


CASES = {"bare nodes": bare, "StateGraph": graph, "InMemorySaver": saved}

if __name__ == "__main__":
    serve({name: version(name) for name in ("langgraph", "langchain-core")}, CASES)
