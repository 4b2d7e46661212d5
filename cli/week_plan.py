"""The week that `retold demo --week` plays: its chats, its settings, and what happens at which minute."""

from __future__ import annotations

import functools
import random
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from ..domain.errors import BadUsage
from ..domain.session_source import SessionSource

ZONE = "Europe/Berlin"
MONDAY = date(2025, 10, 20)
"""On the Sunday of this week clocks go back: the hour from 2:00 comes twice."""
DAYS = 7
TWICE = 2
"""The hour of the last day that comes twice."""
CONFIG = f"""\
timezone: {ZONE}
session_reset:
  chat_types:
    group: {{mode: daily, at_hour: 2}}
    thread: {{mode: both, at_hour: 2, idle_minutes: 720}}
platforms:
  telegram: {{session_reset: {{mode: idle, idle_minutes: 600}}}}
  signal: {{session_reset: {{mode: daily_and_idle, at_hour: 4, idle_minutes: 480}}}}
  whatsapp: {{session_dir: whatsapp}}
"""
PHONE, LID = "4915550123", "88800011122233"
"""One person of WhatsApp, under both of their ids."""

Kind = Literal[
    "say",
    "alias",
    "busy",
    "compress",
    "compact",
    "restart",
    "killed in a turn",
    "killed once compressed",
    "drained in a turn",
    "new",
    "stop",
    "resume",
    "rename",
    "delete",
    "undelete",
    "home channel",
    "handoff",
    "watch",
]

_SILENT: Final = (
    "restart",
    "new",
    "stop",
    "resume",
    "rename",
    "delete",
    "undelete",
    "home channel",
    "watch",
)


class Chat(NamedTuple):
    """A chat, and what its people talk about."""

    topic: str
    source: SessionSource


class Entry(NamedTuple):
    """What happens at a moment: microseconds since the Unix epoch, UTC."""

    at_us: int
    kind: Kind
    chat: int = 0


@functools.cache
def chats() -> tuple[Chat, ...]:
    """The chats: what is a key of its own each."""

    def dm(platform: str, chat_id: str, topic: str, user_id: str | None = None) -> Chat:
        return Chat(topic, SessionSource(platform, chat_id, topic, user_id=user_id or chat_id))

    def room(platform: str, chat_id: str, topic: str, user_id: str, thread_id: str | None = None) -> Chat:
        kind = "group" if thread_id is None else "thread"
        source = SessionSource(platform, chat_id, topic, chat_type=kind, user_id=user_id, thread_id=thread_id)
        return Chat(topic, source)

    return (
        dm("telegram", "1001", "boat repair", "501"),
        dm("telegram", "1002", "tax return", "502"),
        dm("telegram", "1003", "garden irrigation", "503"),
        dm("telegram", "1004", "marathon training", "504"),
        room("telegram", "-100200", "choir rehearsals", "501"),
        room("telegram", "-100200", "choir concert", "502"),
        room("telegram", "-100300", "house renovation", "503", "7"),
        dm("discord", "2001", "thesis outline", "601"),
        dm("discord", "2002", "chess openings", "602"),
        room("discord", "guild-1", "release notes", "601"),
        room("discord", "guild-1", "bug triage", "602", "t-42"),
        room("discord", "guild-2", "map editor", "603", "t-43"),
        dm("slack", "D3001", "quarterly report", "U1"),
        room("slack", "C3002", "on-call rota", "U1"),
        room("slack", "C3002", "incident review", "U2", "1761.01"),
        dm("whatsapp", f"{PHONE}@s.whatsapp.net", "family recipes", f"{PHONE}@s.whatsapp.net"),
        dm("whatsapp", "4915550199@s.whatsapp.net", "school trip"),
        room("whatsapp", "120363@g.us", "football club", "4915550155@s.whatsapp.net"),
        dm("signal", "+4915550177", "bike tour"),
        room("signal", "group:aGVsbG8=", "book club", "+4915550177"),
    )


BOAT, TAX, THESIS, CHESS, NOTES, REPORT = 0, 1, 7, 8, 9, 12
ROTA, RECIPES, TRIP, FOOTBALL = 13, 15, 16, 17

_QUESTIONS = (
    "Where do we start with the {0}?",
    "What did we decide about the {0} last time?",
    "Can you look up the dates for the {0}?",
    "How much will the {0} cost us?",
    "Who else should know of the {0}?",
    "Write me a list for the {0}, please.",
    "What could go wrong with the {0}?",
    "One more thing about the {0}: can it wait until next week?",
)
_ANSWERS = (
    "Three steps, and the first is the longest.",
    "We said that it comes before everything else.",
    "The earliest date is in two weeks, on a Thursday.",
    "About 240, if we do half of it ourselves.",
    "I would ask the two who did it last year.",
    "Here is the list: measure, order, wait, and then begin.",
    "The weather, mostly; keep a day in reserve.",
    "It can wait, but not much longer than that.",
)


def question(chat: int, number: int) -> str:
    """What is asked in a chat in the entry of this number."""
    return _QUESTIONS[(number * 5 + chat) % len(_QUESTIONS)].format(chats()[chat].topic)


def answer(chat: int, number: int) -> str:
    """And what is answered."""
    return _ANSWERS[(number * 5 + chat) % len(_ANSWERS)]


def day(number: int) -> date:
    """A day of the week, 0 for its Monday."""
    return MONDAY + timedelta(days=number)


def moment(number: int, clock: str, *, again: bool = False) -> int:
    """When a clock in the zone shows a time on a day of the week.

    Args:
        again: of an hour that comes twice, the second.
    """
    hour, minute = clock.split(":")
    on = day(number)
    shown = datetime(
        on.year, on.month, on.day, int(hour), int(minute), fold=int(again), tzinfo=ZoneInfo(ZONE)
    )
    return int(shown.timestamp()) * 1_000_000


def delivered(entry: Entry) -> int:
    """How many messages platforms deliver in it."""
    return {"busy": 3, "killed in a turn": 3, "drained in a turn": 2, **dict.fromkeys(_SILENT, 0)}.get(
        entry.kind, 1
    )


def prepare(home: Path) -> None:
    """The settings of the week, and what WhatsApp's bridge knows of the person with two ids.

    Raises:
        BadUsage: the folder holds such files already; nothing of them is changed.
    """
    bridge = home / "whatsapp"
    files = {home / "config.yaml": CONFIG}
    for name, known in ((PHONE, LID), (f"{LID}_reverse", PHONE)):
        files[bridge / f"lid-mapping-{name}.json"] = f'"{known}"'
    for path in (bridge, *files):
        if path.exists():
            raise BadUsage(f"{path} is there already", hint="give --keep a folder that is not there")
    bridge.mkdir()
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


def _by_hand() -> list[Entry]:
    """What this week is told for."""
    told: list[tuple[int, str, Kind, int]] = [
        (0, "09:00", "home channel", BOAT),
        (0, "10:30", "busy", TAX),
        (1, "09:40", "compress", THESIS),
        (1, "12:00", "restart", 0),
        (1, "17:15", "alias", RECIPES),
        (2, "11:00", "compact", REPORT),
        (2, "15:00", "killed in a turn", CHESS),
        (2, "18:20", "rename", RECIPES),
        (3, "10:10", "handoff", BOAT),
        (3, "16:30", "new", ROTA),
        (4, "12:00", "drained in a turn", NOTES),
        (4, "13:30", "delete", TRIP),
        (4, "15:00", "delete", CHESS),
        (4, "15:05", "undelete", CHESS),
        (4, "19:00", "compress", THESIS),
        (5, "09:15", "stop", CHESS),
        (5, "14:00", "killed once compressed", RECIPES),
        (5, "16:45", "resume", ROTA),
        (5, "20:10", "alias", RECIPES),
        (6, "02:30", "say", FOOTBALL),
        (6, "02:30", "say", NOTES),
        (6, "18:00", "busy", THESIS),
    ]
    entries = [Entry(moment(number, clock), kind, chat) for number, clock, kind, chat in told]
    twice = moment(6, "02:30", again=True)
    return [*entries, Entry(twice, "say", FOOTBALL), Entry(twice, "say", NOTES)]


@functools.cache
def week() -> tuple[Entry, ...]:
    """All that happens, in order: what is told by hand, and everyday talk."""
    chance = random.Random(20251020)  # noqa: S311 # the same week each time
    entries = _by_hand()
    for number in range(DAYS):
        entries += [Entry(moment(number, f"{hour:02}:05"), "watch") for hour in (5, 23)]
        for chat in range(len(chats())):
            for _ in range(chance.randrange(2, 8)):
                minute = chance.randrange(7 * 60 + 30, 22 * 60 + 30)
                entries.append(Entry(moment(number, f"{minute // 60}:{minute % 60}"), "say", chat))
    return tuple(sorted(entries))
