"""Sub-agents that wrote into the file of their session: each is a conversation of its own, begun by a call.

Older versions wrote their rows beside the others (`isSidechain`), linked to each other and not to the call, which has the words
with which they begin as its `prompt`. Newer ones wrap each row into a `progress` row, which names the agent and the call. A file of
an agent's own has nothing else in it, and is read as a session.
"""

import msgspec

from refold.importers.claude_code.rows import Kind, blocks, spoken
from refold.importers.fields import JSON, at, instant, table, text
from refold.importers.session_rows import Row


class SubAgent(msgspec.Struct):
    """One of them: its name in the session, the provider's id of the call that began it, "" if nothing says so, and its rows.

    `reported`: its rows came wrapped into rows of the session that count as none.
    """

    name: str
    call: str
    reported: bool
    rows: list[Row] = []


class SubAgents:
    """Those of a session, collected while its file is read."""

    def __init__(self) -> None:
        self.found: list[SubAgent] = []
        self._by_row: dict[str, SubAgent] = {}
        self._by_name: dict[str, SubAgent] = {}
        self._calls: dict[str, list[str]] = {}
        self._seen: set[str] = set()

    def call(self, row: JSON) -> None:
        """Note the calls of an answer that may begin one."""
        for block in blocks(row):
            if (task := text(block, "input", "prompt")) and text(block, "type") == "tool_use":
                call, asked = text(block, "id"), self._calls.setdefault(task.strip(), [])
                asked += [call] if call not in self._seen else []  # a row may be written twice
                self._seen.add(call)

    def beside(self, row: Row, found: Kind) -> None:
        """Take a row in that stands beside those of the session."""
        agent, call = self._by_row.get(text(row.value, "parentUuid")), text(row.value, "parent_tool_use_id")
        agent = self._by_name.get(call) if call else agent
        if agent is None and call:
            agent = self._by_name[call] = SubAgent(f"agent-{len(self.found) + 1}", call, reported=False)
            self.found.append(agent)
        elif agent is None:
            begun_by = self._calls.get(spoken(row.value).strip(), []) if found != "other" else []
            agent = SubAgent(
                f"agent-{len(self.found) + 1}", begun_by.pop(0) if begun_by else "", reported=False
            )
            self.found.append(agent)
        agent.rows.append(row)
        if uuid := text(row.value, "uuid"):  # else the next that has no parent would be taken for its child
            self._by_row[uuid] = agent

    def wrapped(self, row: Row) -> None:
        """Take the row in that a `progress` row reports."""
        name = text(row.value, "data", "agentId")
        agent = self._by_name.get(name)
        if agent is None:
            agent = SubAgent(name, text(row.value, "parentToolUseID"), reported=True)
            self._by_name[name] = agent
            self.found.append(agent)
        told, data = table(row.value, "data", "message"), table(row.value, "data")
        again = text(data, "prompt").strip() in self._calls  # the words of the call, on every row
        progress: dict[str, JSON] = {
            key: value for key, value in row.value.items() if key not in ("data", "type", "timestamp")
        }
        progress["data"] = {
            key: value
            for key, value in data.items()
            if key != "message" and not (key == "prompt" and (again or not value))
        }
        ours: dict[str, JSON] = {
            "isSidechain": True,
            "sessionId": text(row.value, "sessionId"),
            "version": text(row.value, "version"),
        }
        if hidden := {
            key: told[key] for key in (*ours, "progress") if key in told and told[key] != ours.get(key)
        }:
            progress["hidden"] = hidden
        value: dict[str, JSON] = {**told, **ours, "progress": progress}
        when = instant(told.get("timestamp")) or row.at
        agent.rows.append(msgspec.structs.replace(row, value=value, at=when))


def reports(row: JSON) -> bool:
    """Whether a row reports one of a sub-agent's."""
    message = at(row, "data", "message")
    return (
        text(row, "data", "type") == "agent_progress"
        and isinstance(message, dict)
        and bool(text(row, "data", "agentId"))
        and isinstance(message.get("message"), dict)
    )
