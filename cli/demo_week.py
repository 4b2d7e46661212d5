"""`retold demo --week`: a week of a busy gateway, told day by day from its log; audit and verify judge it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from ..domain import events as e
from ..domain.events import Recorded
from ..domain.shell import shell_word
from ..infrastructure.fold_ahead import child_env
from ..infrastructure.home import Home, make_home
from . import week_plan as plan
from .demo import WIDTH, failed, folded, ran
from .output import emit_json, plural
from .paragraphs import wrap
from .progress import Report, progress_bar
from .stream import put

GATEWAY = "retold.cli.week_gateway"
INDENT = 4
_TIMED = {"idle": "idle", "daily": "daily", "daily_and_idle": "by both"}


class Day(msgspec.Struct):
    """What a day of the log holds.

    Attributes:
        messages: of users, assistants and tools; no summaries and no copies.
        resets: how many sessions each rule ended.
        notes: what else happened, each with its time in the week's zone and its position.
    """

    day: str
    messages: int = 0
    sessions: int = 0
    resets: dict[str, int] = {}
    notes: list[str] = []


class Told(msgspec.Struct):
    """The week as its log tells it.

    Attributes:
        delivered: messages that platforms delivered, some of them twice.
        said: of those, how many the log holds once.
        kills: gateways that were killed.
    """

    days: list[Day]
    delivered: int
    said: int
    kills: int


def show(home: Path, *, as_json: bool, kept: bool) -> int:
    """Play the week in `home` and tell of it; 1 where anything is wrong with what it left."""
    with progress_bar("minutes") as report:
        kills = play(home, report)
    told = tell(home, kills)
    found = ran(home, "audit", *(["--json"] if as_json else []))
    checked = ran(home, "verify", *(["--json"] if as_json else []))
    if as_json:
        answers = (msgspec.json.decode("\n".join(lines)) for _, lines in (found, checked))
        emit_json(msgspec.to_builtins(told) | dict(zip(("audit", "verify"), answers, strict=True)))
    else:
        put(*_lines(told, found[1], checked[1], _where(home) if kept else ""))
    return int(bool(found[0] or checked[0] or told.said != told.delivered))


def play(home: Path, report: Report | None = None) -> int:
    """Start the gateway as often as the week stops or kills it; how often it was killed.

    Raises:
        NoRoom: it ended by itself. BadUsage: the folder holds other files of a home.
    """
    make_home(home)
    plan.prepare(home)
    following, kills, whole = 0, 0, len(plan.week())
    while following < whole:
        if report is not None:
            report("playing the week", following, whole)
        following, killed = _run(home, following)
        kills += killed
    return kills


def _run(home: Path, first: int) -> tuple[int, bool]:
    gateway = subprocess.Popen(  # noqa: S603 # this program itself
        [sys.executable, "-m", GATEWAY, str(home), str(first)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_env(),
    )
    assert gateway.stdout is not None  # for the type checker: both are pipes
    assert gateway.stderr is not None
    with gateway:
        word, _, number = gateway.stdout.readline().partition(" ")
        if not number:
            raise failed(gateway.stderr.read())
        if word == "kill":
            gateway.send_signal(signal.SIGKILL)
    return int(number), word == "kill"


# --- what the log says ------------------------------------------------------------------------------


def tell(home: Path, kills: int) -> Told:
    """The days of a log."""
    days = [Day(f"{plan.day(number):%a} {plan.day(number).day} Oct") for number in range(plan.DAYS)]
    notes = _Notes()
    twice = _HourThatComesTwice()
    said: Counter[str] = Counter()
    for _, group in groupby(_events(home), key=lambda each: each.save):
        save = list(group)
        at = datetime.fromtimestamp(save[0].at_us / 1e6, ZoneInfo(plan.ZONE))
        day = days[(at.date() - plan.MONDAY).days]
        for event in save:
            _count(day, event.payload)
            if isinstance(event.payload, e.MessageAppended) and event.payload.platform_message_id is not None:
                said[event.payload.platform_message_id] += event.payload.copy_of is None
        position, note = notes.of(save)
        if note:
            day.notes.append(f"{at:%H:%M} {note} (#{position})")
        twice.look(save, at, notes.names)
    days[-1].notes[:0] = twice.notes()
    once = sum(count == 1 for count in said.values())
    return Told(days, sum(plan.delivered(each) for each in plan.week()), once, kills)


def _events(home: Path) -> Iterator[Recorded]:
    with Home(home, read_only=True) as opened:
        after = 0
        while found := opened.log.read(after):
            yield from found
            after = found[-1].position


def _count(day: Day, payload: object) -> None:
    match payload:
        case e.MessageAppended(summary=False, copy_of=None):
            day.messages += 1
        case e.SessionCreated() as created:
            day.sessions += created.parent_kind != "continuation"
        case e.SessionReset(rule=rule):
            day.resets[rule] = day.resets.get(rule, 0) + 1
        case _:
            pass


class _Notes:
    """What is worth a word, save by save."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        """What sessions are about, by id."""
        self._runs = 0
        self._stopped = False

    def of(self, save: Sequence[Recorded]) -> tuple[int, str]:
        """A sentence about a save and the event that it is about; "" for the everyday."""
        begins = [each for each in save if isinstance(each.payload, e.SessionCreated)]
        for event in begins:
            assert isinstance(event.payload, e.SessionCreated)
            self.names[event.session_id] = event.payload.display_name or "a talk of the terminal"
        for event in save:
            payload = event.payload
            if isinstance(payload, e.GatewayStarted):
                return event.position, self._started(payload.clean, save)
            if isinstance(payload, e.GatewayStopped):
                self._stopped = True
            note = self._note(event) if not (begins and isinstance(payload, e.SessionTitled)) else ""
            if note:
                return event.position, note
        return 0, ""

    def _note(self, event: Recorded) -> str:
        name = self.names.get(event.session_id, "") if event.stream.startswith("session:") else ""
        match event.payload:
            case e.HomeChannelSet(platform=platform):
                return f"{platform} gets a home channel"
            case e.SessionCompressed():
                return f"{name}: compressed, goes on as a continuation"
            case e.MessagesCompacted():
                return f"{name}: compressed in place"
            case e.SessionSuspended(why="stop"):
                return f"{name}: /stop"
            case e.SessionReset(rule="person"):
                return f"{name}: /new"
            case e.SessionRerouted(cause="resume", session_id=session_id):
                return f"{self.names[session_id]}: /resume"
            case e.SessionTitled(by="person", title=title):
                return f"{name}: renamed to '{title}'"
            case e.SessionDeleted():
                return f"{name}: deleted"
            case e.SessionUndeleted():
                return f"{name}: undeleted"
            case e.HandoffCompleted(platform=platform):
                return f"{name} is handed to {platform}"
            case _:
                return ""

    def _started(self, clean: bool, save: Sequence[Recorded]) -> str:
        self._runs += 1
        stopped, self._stopped = self._stopped, False
        if self._runs == 1:
            return "the gateway starts"
        resumed = [each.payload.resumed for each in save if isinstance(each.payload, e.RecoveryRan)]
        names = sorted({self.names[session_id] for found in resumed for session_id in found})
        how = "restarted" if stopped else "killed with SIGKILL"
        if clean or not names:
            return how
        return f"{how} in a turn, goes on in {', '.join(names)}"


class _HourThatComesTwice:
    """Chats that wrote in both of them, and how often each was reset in that time."""

    def __init__(self) -> None:
        self._wrote: dict[str, set[int]] = {}
        self._anew: Counter[str] = Counter()
        self._position = 0

    def look(self, save: Sequence[Recorded], at: datetime, names: Mapping[str, str]) -> None:
        """Follow a save; only those of that hour matter."""
        if at.date() != plan.day(plan.DAYS - 1) or at.hour != plan.TWICE:
            return
        for event in save:
            if isinstance(event.payload, e.MessageAppended) and event.payload.role == "user":
                self._wrote.setdefault(names[event.session_id], set()).add(at.fold)
            elif isinstance(event.payload, e.SessionReset):
                self._anew[names[event.session_id]] += 1
                self._position = event.position

    def notes(self) -> list[str]:
        """A sentence; none where nobody wrote in both."""
        chats = sorted(name for name, folds in self._wrote.items() if folds == {0, 1})
        if not chats:
            return []
        often = {self._anew[name] for name in chats}
        times = "once each" if often == {1} else f"{', '.join(map(str, sorted(often)))} times"
        return [f"02:30, twice: {' and '.join(chats)} begin anew {times} (#{self._position})"]


# --- in words ---------------------------------------------------------------------------------------


def _lines(told: Told, audit: list[str], verify: list[str], where: str) -> Iterator[str]:
    whole = sum(day.messages for day in told.days)
    platforms = len({each.source.platform for each in plan.chats()})
    yield (
        f"A week of {len(plan.chats())} chats on {platforms} platforms: {whole:,} messages, {plan.ZONE} time."
    )
    for day in told.days:
        yield _counts(day)
        for line in wrap("; ".join(day.notes), WIDTH - INDENT):
            yield " " * INDENT + line
    yield from folded(
        f"{told.delivered} messages were delivered, some twice; the gateway was killed"
        f" {plural(told.kills, 'time')}, and {told.said} are here, each once."
    )
    for command, lines in (("audit", audit), ("verify", verify)):
        yield ""
        yield f"$ retold {command}"
        for line in lines:
            yield from folded(line)
    yield ""
    if where:  # commands are to be copied, and so each stays on one line
        yield f"Yours next: retold sessions list{where}"
        yield f"then:       retold why 1001{where}"
    else:
        yield "Yours next: retold demo --week --keep /tmp/week"
        yield "then:       retold why 1001 --home /tmp/week"


def _counts(day: Day) -> str:
    parts = [plural(day.messages, "message"), plural(day.sessions, "new session")]
    timed = [(rule, word) for rule, word in _TIMED.items() if rule in day.resets]
    if timed:
        parts.append(f"resets: {', '.join(f'{day.resets[rule]} {word}' for rule, word in timed)}")
    return f"{day.day:<11} {', '.join(parts)}"


def _where(home: Path) -> str:
    return f" --home {shell_word(str(home))}"
