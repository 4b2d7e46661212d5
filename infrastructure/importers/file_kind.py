"""What a file is that was given to an import, by its first bytes and lines, in words for a person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from ..foreign import EVENTS

_MAGIC: Final = (
    (b"SQLite format 3\0", "a SQLite database"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"PK\x03\x04", "a zip archive"),
)
_LINES, _BYTES = 50, 1 << 17
_decode = msgspec.json.Decoder().decode


class FileKind(NamedTuple):
    """What a file is.

    Attributes:
        words: "a log of Codex".
        command: the import that takes it in; None where there is none.
    """

    words: str
    command: str | None = None


def kinds_of(path: Path) -> list[FileKind]:
    """What a file looks like, the most telling first; nothing for what is not known here.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(64)
        for magic, words in _MAGIC:
            if head.startswith(magic):
                return [_database(path) if "SQLite" in words else FileKind(words)]
        file.seek(0)
        lines = file.read(_BYTES).splitlines()[:_LINES]
    found: dict[FileKind, None] = {}
    for line in lines:
        try:
            record = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(record, dict):
            found |= {kind: None for kind, is_one in _RECORDS.items() if is_one(record)}
        elif isinstance(record, list) and len(lines) == 1:
            found[FileKind("a JSON list, and no line of it is a session")] = None
    if not found and lines and lines[0].strip() in (b"[", b"{"):
        return [FileKind("JSON over several lines, where each line has to be a session")]
    return list(found)


def _database(path: Path) -> FileKind:
    if path.name == EVENTS:
        return FileKind("the log of a Retold home")
    return FileKind("a SQLite database", "hermes" if path.name == "state.db" else None)


def _is_claude(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    return isinstance(kind, str) and "payload" not in record and ("sessionId" in record or kind == "summary")


def _is_codex(record: dict[str, Any]) -> bool:
    return isinstance(record.get("payload"), dict) and isinstance(record.get("type"), str)


def _is_session(record: dict[str, Any]) -> bool:
    return isinstance(record.get("id"), str) and isinstance(record.get("messages"), list)


def _is_prompt(record: dict[str, Any]) -> bool:
    return {"session_id", "index", "text"} <= record.keys() and record.get("role") == "user"


def _is_manifest(record: dict[str, Any]) -> bool:
    return {"exported_at", "sha256", "path"} <= record.keys()


_RECORDS: Final[dict[FileKind, Callable[[dict[str, Any]], bool]]] = {
    FileKind("a log of Claude Code", "claude"): _is_claude,
    FileKind("a log of Codex", "codex"): _is_codex,
    FileKind("sessions exported as JSONL", "jsonl"): _is_session,
    FileKind("an export of prompts only, of which no session can be made"): _is_prompt,
    FileKind("the manifest of an export, and not what was exported"): _is_manifest,
}
