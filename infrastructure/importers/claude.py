"""The logs of Claude Code: `~/.claude/projects/<project>/<session>.jsonl`, and those of its agents."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

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

LINE: Final = "claude.line"
"""The column with what no other column bears of a line."""
_SPOKEN: Final = ("user", "assistant")
_NAMELESS: Final = frozenset(
    {
        "summary",
        "file-history-snapshot",
        "custom-title",
        "ai-title",
        "last-prompt",
        "agent-name",
        "tag",
        "mode",
    }
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOKENS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}
_THOUGHT: Final = ("thinking", "redacted_thinking")
_MADE_UP: Final = "<synthetic>"
"""The model of what Claude Code itself puts in the assistant's mouth."""


class Claude(LogKind):
    """How Claude Code writes."""

    name = "claude"
    column = LINE
    title = "Claude Code"

    def files(self, root: Path) -> list[Path]:
        """The logs below a folder; `~/.claude` itself will do."""
        projects = root / "projects"
        return sorted((projects if projects.is_dir() else root).rglob("*.jsonl"))

    def is_record(self, record: Record) -> bool:
        """Whether an object found in a damaged line is a whole record."""
        kind = record.get("type")
        return isinstance(kind, str) and (
            kind in _NAMELESS or "sessionId" in record or ("uuid" in record and "timestamp" in record)
        )

    def session_of(self, path: Path, lines: Iterable[Line]) -> str | None:
        """The session that a file is of; None where no line of it is a record."""
        named = path.stem if _UUID.fullmatch(path.stem) or path.stem.startswith("agent-") else None
        for line in lines:
            record = line.record
            if record is None or not self._is_ours(record):
                continue
            session_id = record.get("sessionId")
            if path.stem.startswith("agent-") and isinstance(session_id, str):
                return safe_id(f"{session_id}.{path.stem}")
            if named is not None and not path.stem.startswith("agent-"):
                return named
            if isinstance(session_id, str):
                return safe_id(session_id)
        return None if named is None else safe_id(path.stem)

    def _is_ours(self, record: Record) -> bool:
        kind = record.get("type")
        return isinstance(kind, str) and "payload" not in record

    def head(self, record: Record, heads: Heads) -> None:
        """What a line says of another session: a summary names the message that it ends with."""
        if record.get("type") == "summary":
            leaf, summary = record.get("leafUuid"), record.get("summary")
            if isinstance(leaf, str) and isinstance(summary, str):
                heads[leaf] = summary

    def read(self, session_id: str, files: Iterable[tuple[Path, Iterator[Line]]], found: Found) -> None:
        """The session of these files, and those of its sidechains that stand among its lines."""
        reader = _Reader(session_id, found)
        for path, lines in files:
            reader.is_agent = path.stem.startswith("agent-")
            for line in lines:
                if found.takes(path, line) and line.record is not None:
                    reader.line(line.record, line, f"{path}:{line.number}")
        reader.finish()


class _Reader:
    """Reads the lines of one session in order."""

    def __init__(self, session_id: str, found: Found) -> None:
        self.found = found
        self.main = LogSession(session_id)
        self.sessions = {session_id: self.main}
        self.is_agent = False
        self.roots: dict[str, str] = {}
        """Of each line of a sidechain, the session that it is of."""
        self.index: dict[str, int] = {}
        self.tools: dict[str, str] = {}
        self.thoughts: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.usage: dict[tuple[str, str], tuple[str, dict[str, int]]] = {}
        self.last_us: int | None = None

    def line(self, record: Record, line: Line, where: str) -> None:
        """One record."""
        mark = line.mark
        kind, uuid = record.get("type"), record.get("uuid")
        at_us = time_of(record.get("timestamp"))
        session = self._session(record)
        strip = Stripper(where, needed=line.with_bytes)
        said = self._spoken(record, session, strip) if kind in _SPOKEN else []
        self._about(record, session)
        name = uuid if isinstance(uuid, str) else mark.hex()
        if not said:
            said = [
                Said(name, {"role": BESIDE, LINE: as_json(strip.rest(record))}, mark, visibility="rewound")
            ]
        boundary = kind == "system" and record.get("subtype") == "compact_boundary"
        if boundary or said[0].summary:
            session.leave_context(self._kept(record) if boundary else self._kept_before(session))
        for number, each in enumerate(said):
            each.key = f"{name}/{number}" if number else name
            each.line, each.at_us = mark, at_us if at_us is not None else self.last_us
            if session.add(each) and isinstance(uuid, str):
                self.index[uuid] = len(session.said) - 1
        self.last_us = at_us if at_us is not None else self.last_us
        title = self.found.heads.get(uuid) if isinstance(uuid, str) else None
        if title is not None and session.titled_by == "model":
            session.title = title

    def finish(self) -> None:
        """Give what was read."""
        for (session_id, _), (model, tokens) in self.usage.items():
            share = self.sessions[session_id].usage.setdefault(model, Counter())
            share.update(tokens)
            share["api_call_count"] += 1
        for session in self.sessions.values():
            self.found.session(session)

    def _session(self, record: Record) -> LogSession:
        """The session that a line is of: a sidechain is a delegate, from its first line on."""
        uuid, parent = record.get("uuid"), record.get("parentUuid")
        if self.is_agent:
            owner = record.get("sessionId")
            if self.main.parent is None and isinstance(owner, str):
                self.main.parent = safe_id(owner)
            return self.main
        if record.get("isSidechain") is not True or not isinstance(uuid, str):
            return self.main
        known = self.roots.get(parent) if isinstance(parent, str) else None
        name = known or f"{self.main.id}.side-{safe_id(uuid)[:8]}"
        self.roots[uuid] = name
        return self.sessions.setdefault(name, LogSession(name, parent=self.main.id))

    def _about(self, record: Record, session: LogSession) -> None:
        """What a line says of its session."""
        cwd, branch = record.get("cwd"), record.get("gitBranch")
        if isinstance(cwd, str) and session.cwd is None:
            session.cwd = cwd
        if isinstance(branch, str) and branch:
            session.git_branch = branch
        for kind, column in (("ai-title", "aiTitle"), ("custom-title", "customTitle")):
            title = record.get(column)
            if record.get("type") == kind and isinstance(title, str):
                by_person = kind == "custom-title"
                if by_person or session.titled_by == "model":
                    session.title, session.titled_by = title, "person" if by_person else "model"
        message = record.get("message")
        if record.get("type") == "assistant" and isinstance(message, dict):
            self._used(record, message, session)

    def _used(self, record: Record, message: dict[str, Any], session: LogSession) -> None:
        model, usage = message.get("model"), message.get("usage")
        if not isinstance(model, str) or model == _MADE_UP:
            return
        session.model = model
        if isinstance(usage, dict):  # said again on each line of one answer, and whole on its last
            name = str(message.get("id") or record.get("uuid"))
            tokens = {to: usage[key] for key, to in _TOKENS.items() if type(usage.get(key)) is int}
            self.usage[session.id, name] = model, tokens

    # --- what was compressed -------------------------------------------------------------------------

    def _kept(self, boundary: Record) -> tuple[int, int] | None:
        """The messages that a compression left as they are, where its boundary names them."""
        about = boundary.get("compactMetadata")
        segment = about.get("preservedSegment") if isinstance(about, dict) else None
        if not isinstance(segment, dict):
            return None
        ends = [self.index.get(str(segment.get(key))) for key in ("headUuid", "tailUuid")]
        first, last = ends
        return None if first is None or last is None else (first, last)

    def _kept_before(self, session: LogSession) -> tuple[int, int] | None:
        """At a summary, what the boundary before it left; without one, nothing."""
        live = [i for i, each in enumerate(session.said) if each.visibility == "live"]
        around = any(
            '"compact_boundary"' in str(each.row.get(LINE))
            for each in session.said[-8:]
            if each.row["role"] == BESIDE
        )
        return (live[0], live[-1]) if around and live else None

    # --- what was said -------------------------------------------------------------------------------

    def _spoken(self, record: Record, session: LogSession, strip: Stripper) -> list[Said]:
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(content, (str, list)):
            return []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not all(isinstance(each, dict) for each in blocks):
            return []
        if record["type"] == "assistant":
            return self._answer(record, message, blocks, session, strip)
        return self._asked(record, message, blocks, strip)

    def _answer(
        self, record: Record, message: dict[str, Any], blocks: list[Any], session: LogSession, strip: Stripper
    ) -> list[Said]:
        thoughts = [each for each in blocks if each.get("type") in _THOUGHT]
        calls = [each for each in blocks if each.get("type") == "tool_use"]
        words = [each for each in blocks if each not in thoughts and each not in calls]
        pending = self.thoughts[f"{session.id}/{message.get('id')}"]
        pending += thoughts
        kept = content_of([strip.block(each) for each in words])
        if not calls and (kept is None or not kept.strip()):
            return []  # thoughts only: they go with what comes of them, and the line is kept beside
        for each in calls:
            self.tools[str(each.get("id"))] = str(each.get("name"))
        canonical = [*thoughts, *words, *calls] == blocks and len(words) <= 1
        plainly = canonical and all(set(each) <= {"type", "id", "name", "input"} for each in calls)
        row: Row = {
            "role": "assistant",
            "content": kept,
            "tool_calls": as_json(
                [call(each.get("id"), each.get("name"), strip.rest(each.get("input"))) for each in calls]
            )
            if calls
            else None,
            "reasoning": "\n\n".join(str(each["thinking"]) for each in pending if each.get("thinking"))
            or None,
            "reasoning_details": as_json(pending) if pending else None,
            "finish_reason": message["stop_reason"] if isinstance(message.get("stop_reason"), str) else None,
            LINE: self._rest(record, message, strip, told=plainly),
        }
        pending.clear()
        return [Said("", row, b"", attachments=strip.attached())]

    def _asked(
        self, record: Record, message: dict[str, Any], blocks: list[Any], strip: Stripper
    ) -> list[Said]:
        results = [each for each in blocks if each.get("type") == "tool_result"]
        words = [each for each in blocks if each.get("type") != "tool_result"]
        said: list[Said] = []
        for each in results:
            name = str(each.get("tool_use_id"))
            row: Row = {
                "role": "tool",
                "content": self._result(each.get("content"), strip),
                "tool_call_id": name,
                "tool_name": self.tools.get(name),
            }
            if set(each) - {"type", "tool_use_id", "content"}:
                more = {
                    key: value for key, value in each.items() if key not in ("type", "tool_use_id", "content")
                }
                row["claude.result"] = as_json(strip.rest(more))
            said.append(Said("", row, b"", attachments=strip.attached()))
        summary = record.get("isCompactSummary") is True
        kept = content_of([strip.block(each) for each in words])
        if kept is not None and kept.strip():
            role = "system" if record.get("isMeta") is True else "user"
            row = {"role": role, "content": kept}
            said.append(Said("", row, b"", summary=summary, attachments=strip.attached()))
        if said:
            said[-1].row[LINE] = self._rest(record, message, strip, told=[*results, *words] == blocks)
        return said

    def _result(self, content: Any, strip: Stripper) -> str | None:
        if isinstance(content, list):
            return content_of([strip.block(each) for each in content]) or ""
        if isinstance(content, str):
            return plain(strip.rest(content))
        return "" if content is None else as_json(strip.rest(content))

    def _rest(self, record: Record, message: dict[str, Any], strip: Stripper, *, told: bool) -> str:
        """What no column bears of a line; with its content where the columns do not give it back."""
        inner = {key: value for key, value in message.items() if key != "content" or not told}
        return as_json(strip.rest({**record, "message": inner}))


CLAUDE: Final = Claude()
