"""Makes a Hermes home of any size, under the Python of the peer's environment: its schema, realistic text.

    PEER_PYTHON make_store.py OUT --messages 100000 [--sessions 2000] [--cjk 0.2] [--seed 1] [--no-index]

The peer's own store makes the tables and the triggers. The rows then go in in few transactions, through
those triggers, so that both its search indexes are as it makes them, though in a minute and not in an
hour. (Denser than one message a transaction leaves them: what we compare our bytes with is its better
case.) `--no-index` leaves the triggers out, for homes that are only read.

It runs in a process of its own, on the peer's files, which nothing else has open.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_S = 1_777_881_600.0  # 2026-05-04 08:00 UTC
SOURCES = ("cli",) * 9 + ("telegram",) * 5 + ("discord",) * 2 + ("slack", "cron", "webhook", "matrix")
CHATS = frozenset({"telegram", "discord", "slack", "matrix"})
MODELS = ("anthropic/claude-sonnet-4.6", "openai/gpt-5.2", "qwen/qwen3-coder")
TOOLS = ("terminal", "web_search", "read_file", "write_file", "memory")

# What the searches look for. No other text holds them, so they have as many hits as are planted.
EVERY = 50
LATIN, CJK, PHRASE = "lighthouse", "灯塔", "kelp harvest permit"
PHRASE_EVERY = 500
COMMON, COMMON_OF_100 = "harbour", 52
"""Of the messages that say anything, three in four, so many have the word: 39 of 100 of all."""


def paragraphs() -> list[str]:
    """The Python documentation that every CPython ships, by paragraph."""
    from pydoc_data.topics import topics

    return [each.strip() for text in topics.values() for each in text.split("\n\n") if len(each.strip()) > 20]


class Speech:
    """Text that nobody said: documentation, and sentences in a script without spaces."""

    def __init__(self, seed: int, cjk: float) -> None:
        self._random = random.Random(seed)
        self._cjk = cjk
        self._paragraphs = paragraphs()
        # Words of two signs, some far more often than others, as in any language.
        signs = [chr(code) for code in range(0x4E00, 0x4E00 + 2_400) if chr(code) not in CJK]
        self._words = ["".join(self._random.choices(signs, k=2)) for _ in range(4_000)]
        self._often = [1 / (rank + 8) for rank in range(len(self._words))]

    def said(self, number: int) -> str:
        """What message `number` says."""
        if self._random.random() < self._cjk:
            words = self._random.choices(self._words, self._often, k=self._random.randint(20, 100))
            text = "".join(word + ("，" if n % 7 == 6 else "") for n, word in enumerate(words)) + "。"
        else:
            # Most say little, some much: 350 bytes a message, the empty ones of tool calls counted.
            much = self._random.choices((1, 2, 4, 8), (50, 25, 17, 8))[0]
            text = "\n\n".join(self._random.choices(self._paragraphs, k=much))
        if number % EVERY == 1:
            text = f"{text} {LATIN}" if self._random.random() < 0.5 else f"The {LATIN}: {text}"
        if number % EVERY == 4:
            text = f"{text} 我们明天去{CJK}看看"
        if number % 100 < COMMON_OF_100:
            text = f"{text} {COMMON}"
        if number % PHRASE_EVERY == 3:
            text = f"{text} Where is the {PHRASE} kept?"
        return text


def messages(session: str, at_s: float, first: int, count: int, speech: Speech) -> Iterator[dict[str, Any]]:
    """A session's turns: asked, a tool called, its answer, answered."""
    for number in range(first, first + count):
        at_s += 20.0
        row: dict[str, Any] = {"session_id": session, "timestamp": at_s, "content": speech.said(number)}
        match (number - first) % 4:
            case 0:
                row["role"] = "user"
            case 1:
                tool = TOOLS[number % len(TOOLS)]
                arguments = json.dumps({"query": row["content"][:60]})
                calls = [
                    {
                        "id": f"call_{number}",
                        "type": "function",
                        "function": {"name": tool, "arguments": arguments},
                    }
                ]
                row |= {"role": "assistant", "content": "", "tool_calls": json.dumps(calls)}
                row["finish_reason"] = "tool_calls"
                if LATIN in arguments or number % EVERY == 1 or number % PHRASE_EVERY == 3:
                    row["content"] = speech.said(number)  # what is planted must be said
            case 2:
                row |= {"role": "tool", "tool_name": TOOLS[(number - 1) % len(TOOLS)]}
                row["tool_call_id"] = f"call_{number - 1}"
            case _:
                row |= {"role": "assistant", "finish_reason": "stop"}
        yield row


def sessions(count: int, total: int, speech: Speech, seed: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each session's row, with its messages."""
    draw = random.Random(seed + 1)
    done = 0
    for number in range(count):
        upto = total * (number + 1) // count
        source = draw.choice(SOURCES)
        at_s = START_S + number * 600.0
        session = f"20260504_080000_{number:08x}"
        row: dict[str, Any] = {
            "id": session,
            "source": source,
            "started_at": at_s,
            "model": MODELS[number % 3],
        }
        if number % 2:
            row["title"] = f"topic {number}"
        if source in CHATS:
            chat = f"9{number}"
            row |= {"session_key": f"agent:main:{source}:dm:{chat}", "chat_id": chat, "chat_type": "dm"}
            row |= {"user_id": f"6{chat}", "display_name": f"user {number % 97}"}
        else:
            row["cwd"] = f"/srv/work{number % 23}"
            if number % 5 < 3:
                row |= {"ended_at": at_s + 20.0 * (upto - done) + 60, "end_reason": "cli_close"}
        row["message_count"] = upto - done
        row |= {"input_tokens": 900 * (upto - done), "output_tokens": 300 * (upto - done)}
        yield row, messages(session, at_s, done, upto - done, speech)
        done = upto


MESSAGE = (
    "session_id",
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "timestamp",
    "finish_reason",
)


def fill(db: sqlite3.Connection, count: int, total: int, speech: Speech, seed: int) -> None:
    """Write every row, a transaction for some thousand messages."""
    insert = f"INSERT INTO messages ({', '.join(MESSAGE)}) VALUES ({', '.join('?' * len(MESSAGE))})"
    waiting: list[tuple[Any, ...]] = []
    for row, said in sessions(count, total, speech, seed):
        db.execute(
            f"INSERT INTO sessions ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", [*row.values()]
        )
        if "session_key" in row:
            _route(db, row)
        waiting += (tuple(map(each.get, MESSAGE)) for each in said)
        if len(waiting) >= 5_000:
            db.executemany(insert, waiting)
            db.commit()
            waiting.clear()
    db.executemany(insert, waiting)
    db.commit()


def _route(db: sqlite3.Connection, row: dict[str, Any]) -> None:
    entry = {"session_key": row["session_key"], "session_id": row["id"], "platform": row["source"]}
    db.execute(
        "INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at) VALUES ('', ?, ?, ?)",
        (row["session_key"], json.dumps(entry), row["started_at"]),
    )


def make(out: Path, *, total: int, count: int, cjk: float, seed: int, index: bool) -> None:
    """Make the home."""
    out.mkdir(parents=True)
    os.environ["HERMES_HOME"] = str(out)
    # By name, since the project's own environment has no such module.
    importlib.import_module("hermes_state").SessionDB(db_path=out / "state.db").close()
    db = sqlite3.connect(out / "state.db")
    db.execute("PRAGMA synchronous = OFF")
    if not index:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
    fill(db, count, total, Speech(seed, cjk), seed)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def main() -> None:
    """Read the command line and make the home."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("out", type=Path)
    asked.add_argument("--messages", type=int, required=True)
    asked.add_argument("--sessions", type=int, default=0)
    asked.add_argument("--cjk", type=float, default=0.0)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--no-index", action="store_true")
    given = asked.parse_args()
    make(
        given.out,
        total=given.messages,
        count=given.sessions or max(given.messages // 50, 1),
        cjk=given.cjk,
        seed=given.seed,
        index=not given.no_index,
    )


if __name__ == "__main__":
    main()
