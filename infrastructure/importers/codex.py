"""The session logs of Codex CLI: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<session>.jsonl`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from ...domain.message import content_given
from ...domain.source_values import Row
from .agent_logs import Found, Heads, LogKind
from .agent_sessions import (
    BESIDE,
    LogSession,
    Said,
    Stripper,
    as_json,
    call,
    content_of,
    plain,
    safe_id,
    time_of,
)
from .log_lines import Line, Record

LINE: Final = "codex.line"
"""The column with what no other column bears of a line."""
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_TEXTS: Final = ("input_text", "output_text", "text")
_PUT_IN: Final = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
)
"""How a text begins that Codex puts in under the user's name, and that nobody said."""
_ROLES: Final = {"user": "user", "assistant": "assistant", "developer": "system", "system": "system"}
_CALLS: Final = ("function_call", "custom_tool_call", "local_shell_call")
_RESULTS: Final = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_ITEMS: Final = frozenset({"message", "reasoning", "web_search_call", *_CALLS, *_RESULTS})


class Codex(LogKind):
    """How Codex writes."""

    name = "codex"
    column = LINE
    title = "Codex"

    def files(self, root: Path) -> list[Path]:
        """The logs below a folder; `~/.codex` itself will do."""
        below = [root / each for each in ("sessions", "archived_sessions") if (root / each).is_dir()]
        return sorted(path for each in below or [root] for path in each.rglob("rollout-*.jsonl"))

    def is_record(self, record: Record) -> bool:
        """Whether an object found in a damaged line is a whole record."""
        return isinstance(record.get("payload"), dict) and isinstance(record.get("type"), str)

    def session_of(self, path: Path, lines: Iterable[Line]) -> str | None:
        """The session that a file is of; None where no line of it is a record."""
        named = _ID.search(path.stem)
        if named is not None:
            return named[0]
        for line in lines:
            record = line.record or {}
            payload = record.get("payload", record)
            if record.get("type", "session_meta") == "session_meta" and isinstance(payload, dict):
                found = payload.get("id")
                if isinstance(found, str):
                    return safe_id(found)
            if self.is_record(record):
                return safe_id(path.stem)
        return None

    def head(self, record: Record, heads: Heads) -> None:
        """No line of a rollout says anything of another one."""

    def read(self, session_id: str, files: Iterable[tuple[Path, Iterator[Line]]], found: Found) -> None:
        """The session of these files."""
        reader = _Reader(session_id)
        for path, lines in files:
            for line in lines:
                if found.takes(path, line) and line.record is not None:
                    reader.line(line.record, line, f"{path}:{line.number}")
        found.session(reader.session)


class _Reader:
    """Reads the lines of one session in order."""

    def __init__(self, session_id: str) -> None:
        self.session = LogSession(session_id)
        self.tools: dict[str, str] = {}
        self.thoughts: list[dict[str, Any]] = []
        self.total: dict[str, int] = {}
        self.last_us: int | None = None
        self.seen: Counter[bytes] = Counter()

    def line(self, record: Record, line: Line, where: str) -> None:
        """One record."""
        mark = line.mark
        at_us = time_of(record.get("timestamp"))
        self.last_us = at_us if at_us is not None else self.last_us
        kind, payload = record.get("type"), record.get("payload")
        if not isinstance(payload, dict):  # an old rollout holds the items themselves
            item = isinstance(kind, str) and kind in _ITEMS
            kind, payload = ("response_item" if item else "session_meta"), record
        strip = Stripper(where, needed=line.with_bytes)
        said: Said | None = None
        if kind == "response_item":
            said = self._item(record, payload, strip)
        elif kind == "compacted":
            said = self._compacted(record, payload, strip)
        elif kind == "event_msg":
            self._event(payload)
        elif kind in ("session_meta", "turn_context"):
            self._about(payload, meta=kind == "session_meta")
        if said is None:
            rest = as_json(strip.rest(record if payload is record else self._said_once(record, payload)))
            said = Said("", {"role": BESIDE, LINE: rest}, mark, visibility="rewound")
        said.key, said.line, said.at_us = self._name(mark, record), mark, self.last_us
        said.attachments = strip.attached()
        self.session.add(said)

    def _name(self, mark: bytes, record: Record) -> str:
        """What names a line: its digest, and of lines without a time that are equal which of them it is."""
        if "timestamp" in record:
            return mark.hex()
        self.seen[mark] += 1
        return mark.hex() if self.seen[mark] == 1 else f"{mark.hex()}/{self.seen[mark]}"

    # --- what was said -------------------------------------------------------------------------------

    def _item(self, record: Record, item: dict[str, Any], strip: Stripper) -> Said | None:
        kind = item.get("type")
        if kind == "reasoning":
            self.thoughts.append(item)  # it goes with what comes of it, and the line is kept beside
            return None
        row: Row | None = None
        told: tuple[str, ...] = ()
        if kind == "message":
            row, told = self._message(item, strip), ("content",)
        elif kind in _CALLS:
            row, told = self._call(item, strip), ("arguments", "input")
        elif kind in _RESULTS:
            row, told = self._result(item, strip), ("output",)
        if row is None:
            return None
        if row["role"] == "assistant":
            self._think(row)
        else:
            self.thoughts.clear()
        rest = {key: value for key, value in item.items() if key not in told}
        row[LINE] = as_json(strip.rest(rest if item is record else {**record, "payload": rest}))
        return Said("", row, b"")

    def _message(self, item: dict[str, Any], strip: Stripper) -> Row | None:
        given, role = item.get("content"), _ROLES.get(str(item.get("role")))
        blocks = [{"type": "text", "text": given}] if isinstance(given, str) else given
        if role is None or not isinstance(blocks, list):
            return None
        content = content_of([strip.block(each) for each in blocks], _TEXTS)
        if content is None or not content.strip():
            return None
        if role == "user" and content.startswith(_PUT_IN):
            role = "system"
        return {"role": role, "content": content}

    def _call(self, item: dict[str, Any], strip: Stripper) -> Row:
        call_id = str(item.get("call_id") or item.get("id"))
        name = str(item.get("name") or item.get("type"))
        self.tools[call_id] = name
        given = next((item[key] for key in ("arguments", "input", "action") if key in item), "")
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": as_json([call(call_id, name, strip.rest(given))]),
        }

    def _result(self, item: dict[str, Any], strip: Stripper) -> Row:
        call_id = str(item.get("call_id"))
        output = item.get("output")
        if isinstance(output, list):
            content = content_of([strip.block(each) for each in output], _TEXTS) or ""
        else:
            given = strip.rest(output)
            content = plain(given) if isinstance(given, str) else as_json(given)
        return {
            "role": "tool",
            "content": content,
            "tool_call_id": call_id,
            "tool_name": self.tools.get(call_id),
        }

    def _said_once(self, record: Record, payload: dict[str, Any]) -> Record:
        """An event without a text that it repeats: who erases the message erases all of it."""
        text = payload.get("message")
        if record.get("type") != "event_msg" or not isinstance(text, str) or not text:
            return record
        before = next((each for each in reversed(self.session.said) if each.row["role"] != BESIDE), None)
        if before is None or not any(text in each for each in _texts(before.row.get("content"))):
            return record
        return {**record, "payload": {**payload, "message": "[the text of the message before]"}}

    def _think(self, row: Row) -> None:
        if not self.thoughts:
            return
        words = [
            str(part["text"])
            for item in self.thoughts
            for column in ("summary", "content")
            for part in item.get(column) or ()
            if isinstance(part, dict) and part.get("text")
        ]
        row["reasoning"] = "\n\n".join(words) or None
        row["codex_reasoning_items"] = as_json(self.thoughts)
        self.thoughts.clear()

    # --- what happened -------------------------------------------------------------------------------

    def _compacted(self, record: Record, payload: dict[str, Any], strip: Stripper) -> Said | None:
        """A compression; one whose summary nobody can read here leaves the context as it is."""
        summary = payload.get("message")
        if not isinstance(summary, str) or not summary.strip():
            return None
        self.session.leave_context()
        rest = {**record, "payload": {key: value for key, value in payload.items() if key != "message"}}
        row: Row = {"role": "user", "content": plain(summary), LINE: as_json(strip.rest(rest))}
        return Said("", row, b"", summary=True)

    def _event(self, payload: dict[str, Any]) -> None:
        match payload.get("type"):
            case "thread_rolled_back":
                turns = payload.get("num_turns")
                self.session.roll_back(turns if isinstance(turns, int) else 0)
            case "thread_name_updated":
                name = payload.get("thread_name")
                self.session.title, self.session.titled_by = (
                    (name if isinstance(name, str) else None),
                    "person",
                )
            case "token_count":
                info = payload.get("info")
                total = info.get("total_token_usage") if isinstance(info, dict) else None
                if isinstance(total, dict):
                    self._used({key: value for key, value in total.items() if type(value) is int})

    def _used(self, total: dict[str, int]) -> None:
        """Totals of the session so far: what they grew by is the model's that answers now."""
        if total == self.total:
            return
        fell = any(total.get(key, 0) < value for key, value in self.total.items())
        before = {} if fell else self.total
        grew = {key: value - before.get(key, 0) for key, value in total.items()}
        self.total = total
        cached = grew.get("cached_input_tokens", 0)
        self.session.usage.setdefault(self.session.model or "", Counter()).update(
            input_tokens=grew.get("input_tokens", 0) - cached,
            cache_read_tokens=cached,
            output_tokens=grew.get("output_tokens", 0),
            reasoning_tokens=grew.get("reasoning_output_tokens", 0),
            api_call_count=1,
        )

    def _about(self, payload: dict[str, Any], *, meta: bool) -> None:
        session = self.session
        model, cwd, git = payload.get("model"), payload.get("cwd"), payload.get("git")
        if isinstance(model, str):
            session.model = model
        if isinstance(cwd, str) and session.cwd is None:
            session.cwd = cwd
        if isinstance(git, dict) and isinstance(git.get("branch"), str):
            session.git_branch = git["branch"]
        if meta and payload.get("id") == session.id:
            session.parent = session.parent or _spawned_by(payload.get("source"))


def _texts(content: object) -> list[str]:
    """The texts in a message's content."""
    given = content_given(content) if isinstance(content, str) else None
    blocks = given if isinstance(given, list) else [{"text": given}]
    return [str(each["text"]) for each in blocks if isinstance(each, dict) and each.get("text")]


def _spawned_by(source: object) -> str | None:
    """The thread whose agent a session is, as Codex names it in `source`."""
    agent = source.get("subagent") if isinstance(source, dict) else None
    spawn = agent.get("thread_spawn") if isinstance(agent, dict) else None
    parent = spawn.get("parent_thread_id") if isinstance(spawn, dict) else None
    return safe_id(parent) if isinstance(parent, str) else None


CODEX: Final = Codex()
