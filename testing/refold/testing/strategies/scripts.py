"""Strategies of model behaviour: scripts for `ScriptedModel`."""

from collections.abc import Sequence

from hypothesis import strategies as st

from refold.engine.arguments import wrong_value
from refold.engine.models.protocol import ModelError, Reply
from refold.engine.models.script import calls, fail, say
from refold.engine.tools.protocol import Tool
from refold.reducers.vocabulary import FailureClass
from refold.testing.strategies.logs import manifest_of
from refold.testing.tool_arguments import arguments

_TEXTS = st.sampled_from(["done", "no", "I do not know.", "a\nb", "é 🙂", "x" * 200])
_BROKEN = st.sampled_from(["", "{", "[]", '{"unheard_of": 1}', "null"])


def scripts(
    tools: Sequence[Tool], *, max_size: int = 6, failures: bool = True
) -> st.SearchStrategy[list[Reply | ModelError]]:
    """Return a strategy of scripts for `ScriptedModel`.

    A line makes up to three calls, or fails. Most calls have valid arguments; others have invalid ones, or
    name a tool that does not exist. The last line is always a text, which ends a run under a policy that ends
    runs at the first text. A run that fails or stops earlier leaves lines unused.

    Args:
        tools: the tools of the agent. Without any, scripts consist of failures and texts.
        max_size: the largest number of lines.
        failures: whether requests fail. With them, a live run waits before it tries again.

    Raises:
        WrongUse: `tools` has anything but tools, or `max_size` is below 1.
    """
    if max_size < 1:
        raise wrong_value("max_size", "1 or more lines", max_size)
    made: list[st.SearchStrategy[Reply | ModelError]] = []
    if tools:
        made.append(st.lists(_calls(tools), min_size=1, max_size=3).map(lambda each: calls(*each)))
    if failures:
        made.append(st.sampled_from(FailureClass).map(fail))
    lines = st.lists(st.one_of(made), max_size=max_size - 1) if made else st.just([])
    return st.tuples(lines, _TEXTS.map(say)).map(lambda both: [*both[0], both[1]])


def _calls(tools: Sequence[Tool]) -> st.SearchStrategy[tuple[str, dict[str, object] | str]]:
    manifests = [manifest_of(tool, f"tools[{place}]") for place, tool in enumerate(tools)]
    valid = [st.tuples(st.just(each.name), arguments(each.schema)) for each in manifests]
    names = st.sampled_from([*[each.name for each in manifests], "unheard_of"])
    return st.one_of(*valid, st.tuples(names, _BROKEN))
