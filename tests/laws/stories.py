"""Random histories: steps that hypothesis draws, and how each becomes events of a real log.

Over 400 lines because it is one alphabet: each kind of step with the events that it becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from hypothesis import strategies as st

from retold.domain import events as e
from retold.domain.ends import SUPERSEDED
from retold.infrastructure.erasing import erased, gone, messages_at, with_what_quotes
from retold.infrastructure.log import Draft, Log, Written
from retold.infrastructure.removing import is_of_the_session
from retold.infrastructure.streams import route_stream, title_stream
from retold.projections.message_columns import MESSAGE_COLUMNS
from retold.projections.session_rows import SOURCE_COLUMNS
from retold.tests.histories import draft
from retold.tests.laws.payloads import CALLS, I64, REAL, SMALL, texts

SESSIONS = ("s1", "s2", "s3", "s4")
KEYS = ("agent:main:telegram:dm:1001", "agent:main:cli:鍵", "K\0")
TITLES = ("plan", "plan #2", "計画", "p #bar")
STORES = ("store-a", "store-b")
TOLD = dict.fromkeys(("content", "tool_name", "tool_calls", "role", "active", "compacted"), "")
"""Columns of a message that the index, the counts or the preview hang on."""
T0_US = 1_778_000_000_000_000

Step = tuple[Callable[..., None], tuple[Any, ...]]


class Story:
    """A log that is being written, and what later steps need to know of it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.messages: list[int] = []
        self.saves: list[Written] = []
        """Saves that nobody has followed yet."""
        self._versions: dict[str, int] = {}
        self._sources = 0

    def tell(self, step: Step) -> None:
        """Write the events of one step."""
        write, given = step
        write(self, *given)

    def append(self, stream: str, payload: e.Payload, at: int = 0, *, ref: bool = False) -> int:
        """One event; with `ref`, one that an import brought."""
        return self._write(draft(stream, self._next(stream), payload, T0_US + at), ref=ref)

    def _next(self, stream: str) -> int:
        self._versions[stream] = self._versions.get(stream, 0) + 1
        return self._versions[stream]

    def _write(self, made: Draft, *, ref: bool = False) -> int:
        if ref:
            self._sources += 1
            made = msgspec.structs.replace(made, source_ref=self._sources.to_bytes(16, "big"))
        self.saves.append(self.log.write([made]))
        return self.saves[-1].head.position

    def session(self, session_id: str) -> str:
        """The stream of a session, which is created where it was not."""
        stream = f"session:{session_id}"
        if stream not in self._versions:
            self.append(stream, e.SessionCreated("cli"))
        return stream

    def chosen(self, picks: list[int]) -> list[int]:
        """Messages by any numbers; also some that do not exist."""
        known = [*self.messages, 10_000]
        return [known[each % len(known)] for each in picks]

    # --- steps -------------------------------------------------------------------------------------

    def create(self, session_id: str, payload: e.SessionCreated, at: int, ref: bool) -> None:
        stream = f"session:{session_id}"
        if stream not in self._versions:
            self.append(stream, payload, at, ref=ref)

    def say(self, session_id: str, payload: e.MessageAppended, at: int, ref: bool) -> None:
        stream = self.session(session_id)
        if ref:
            payload = msgspec.structs.replace(payload, source_id=len(self.messages), seen=b"seen")
        self.messages.append(self.append(stream, payload, at, ref=ref))

    def copy(self, session_id: str, pick: int, at: int) -> None:
        if self.messages:
            found = self.log.read(self.messages[pick % len(self.messages)] - 1, limit=1)[0]
            if isinstance(found.payload, e.MessageAppended):
                copied = msgspec.structs.replace(found.payload, copy_of=found.position)
                self.messages.append(self.append(found.stream, copied, at))

    def change(self, session_id: str, payload: e.Payload, at: int, ref: bool) -> None:
        """Any event of a session that names no messages."""
        self.append(self.session(session_id), payload, at, ref=ref)

    def touch(
        self, session_id: str, kind: type[Any], picks: list[int], rest: tuple[Any, ...], ref: bool
    ) -> None:
        """An event that names messages, mostly of the session itself."""
        chosen = self.chosen(picks)
        named: Any = chosen[0] if kind in (e.MessageEdited, e.MessageEnriched) else chosen
        stream = self.session(session_id)
        if chosen[0] <= self.log.head().position:
            stream = self.log.read(chosen[0] - 1, limit=1)[0].stream
        self.append(stream, kind(named, *rest), ref=ref)

    def source_row(
        self, session_id: str, payload: e.SourceRowChanged | e.SourceRowGone, picks: list[int]
    ) -> None:
        named = msgspec.structs.replace(payload, messages=self.chosen(picks))
        if payload.kind == "route":
            stream = route_stream(self.log.identity, KEYS[len(payload.row) % len(KEYS)])
            self.append(stream, named, ref=True)
        else:
            self.append(self.session(session_id), named, ref=True)

    def lead(self, key: str, payload: e.SessionRerouted | e.RouteClosed, at: int, ref: bool) -> None:
        payload = msgspec.structs.replace(payload, key=key)
        self.append(route_stream(self.log.identity, key), payload, at, ref=ref)

    def work(self, key: str, payload: e.ActivityHeld | e.ActivityReleased) -> None:
        """Work in the background of a chat."""
        payload = msgspec.structs.replace(payload, key=key)
        self.append(route_stream(self.log.identity, key), payload)

    def title(self, title: str, session_id: str, taken: bool) -> None:
        payload = (e.TitleClaimed if taken else e.TitleReleased)(title, session_id)
        self.append(title_stream(self.log.identity, title), payload)

    def ran(self, store: str, payload: e.ImportRan) -> None:
        self.append(f"source:{store}", payload, ref=True)

    def gateway(self, name: str, payload: e.Payload, at: int) -> None:
        """Any event of a gateway, or of what a platform delivered."""
        kind = "inbox" if isinstance(payload, e.UpdateSeen) else "gateway"
        self.append(f"{kind}:{name}", payload, at)

    def newer(self, stream: str) -> None:
        """An event of a newer program."""
        if stream in SESSIONS:
            stream = self.session(stream)
        made = draft(stream, self._next(stream), e.SessionPinned(), T0_US)
        self._write(msgspec.structs.replace(made, topic="session_dreamt.1", payload=b"\x91\x01"))

    def erase_session(self, session_id: str) -> None:
        """All of a session but that it was deleted."""
        stream = self.session(session_id)
        found = [event for event in self.log.stream_events(stream) if self._goes_with_it(event)]
        if found:
            record = gone(session_id, found, prompts=[], reason="its time was up")
            self.log.erase(
                [event.position for event in found], draft(stream, self._next(stream), record, T0_US)
            )

    def _goes_with_it(self, event: e.Recorded) -> bool:
        """Others may have its prompts; and here, other than in life, an event may name others' messages."""
        listed = getattr(event.payload, "messages", None)  # a deletion says how many there were
        named = [*(listed if isinstance(listed, list) else []), getattr(event.payload, "message", None)]
        streams = {self.log.read(each - 1, limit=1)[0].stream for each in named if each in self.messages}
        shared = isinstance(event.payload, e.PromptChanged)
        return is_of_the_session(event.payload) and not shared and streams <= {event.stream}

    def erase(self, picks: list[int]) -> None:
        """Messages with all that quotes them."""
        known = [each for each in self.chosen(picks) if each <= self.log.head().position]
        events = with_what_quotes(self.log, messages_at(self.log, known))
        if events:
            stream = events[0].stream
            made = draft(stream, self._next(stream), erased(events, "said so"), T0_US)
            self.log.erase([each.position for each in events], made)


# --- what hypothesis draws -------------------------------------------------------------------------

sessions = st.sampled_from(SESSIONS)
maybe = st.none() | texts
picks = st.lists(st.integers(0, 30), min_size=1, max_size=3)
positions = st.lists(st.integers(0, 40), max_size=3)
times = st.sampled_from([0, 0, 1, -5_000_000, 7_000_000, 3_600_000_000])
odds = st.dictionaries(
    st.sampled_from(["content", "title", "role"]),
    st.builds(e.Odd, st.just("value"), I64) | st.builds(e.Odd, st.just("text"), st.binary(max_size=4)),
    max_size=1,
)
values = (
    st.none()
    | I64
    | st.integers(0, 1)
    | REAL
    | texts
    | st.sampled_from(["12", "1.5", "x"])
    | st.binary(max_size=4)
)


def columns(names: Iterable[str]) -> st.SearchStrategy[dict[str, e.Scalar]]:
    """Values for columns by their names, and for some that no table has."""
    return st.dictionaries(st.sampled_from([*names, "mood", "future"]), values, max_size=3)


session_columns = columns(SOURCE_COLUMNS)
edits: st.SearchStrategy[dict[str, e.Scalar]] = (
    st.builds(dict, content=texts) | columns(TOLD) | columns(MESSAGE_COLUMNS)
)
created = st.builds(
    e.SessionCreated,
    source=st.sampled_from(["cli", "telegram", "cron"]),
    session_key=st.none() | st.sampled_from(KEYS),
    chat_id=maybe,
    display_name=maybe,
    parent_session_id=st.none() | st.sampled_from([*SESSIONS, "gone"]),
    parent_kind=st.none() | st.sampled_from(["continuation", "branch", "child"]),
    started_at=st.none() | REAL,
    columns=session_columns,
    odd=odds,
    store=st.none() | st.sampled_from(STORES),
)
said = st.builds(
    e.MessageAppended,
    role=st.sampled_from(["user", "user", "assistant", "tool", "system"]),
    content=maybe,
    tool_name=st.none() | st.just("weather"),
    tool_calls=st.none() | st.sampled_from(CALLS),
    visibility=st.sampled_from(["live", "live", "live", "compacted", "rewound"]),
    scrubbed=st.booleans(),
    attachments=st.just([]) | st.just([e.Attachment("/keel.jpg", "image", "dry")]),
    summary=st.sampled_from([False, False, True]),
    timestamp=st.none() | REAL,
    columns=st.just({}) | st.just({"mood": "fair"}),
    odd=odds,
)
used = st.builds(
    e.UsageRecorded,
    mode=st.sampled_from(["absolute", "delta"]),
    model=st.none() | st.sampled_from(["m-1", "m-2"]),
    task=st.sampled_from(["", "title"]),
    input_tokens=SMALL,
    output_tokens=SMALL,
    estimated_cost_usd=st.none() | st.floats(0, 100),
    actual_cost_usd=st.none() | st.floats(0, 100),
    columns=columns({"first_seen": "", "cost_status": "", "cost_source": "", "input_tokens": ""}),
)
placed = st.dictionaries(
    st.sampled_from(["session_key", "chat_id", "user_id", "display_name", "thread_id"]), maybe, max_size=3
)
descent: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "parent_session_id": st.none() | st.sampled_from([*SESSIONS, "gone"]),
        "parent_kind": st.none() | st.sampled_from(["continuation", "branch"]),
    },
)
identity = st.builds(dict[str, Any].__or__, placed, descent)
turn_ids = st.sampled_from(["t1", "t2", "t3"])
under_way = st.one_of(
    st.builds(
        e.TurnQueued,
        turn_ids,
        texts,
        st.sampled_from(["slot", "overflow"]),
        st.none() | turn_ids,
        moved_from=st.none() | sessions,
    ),
    st.builds(e.TurnStarted, turn_ids, I64, st.booleans(), st.none() | st.just("main")),
    st.builds(e.TurnFinished, turn_ids, st.sampled_from(["done", "failed", "interrupted", "lost"]), maybe),
    st.builds(e.QueueCleared, st.lists(turn_ids, max_size=3), st.sampled_from(["reset", "person", "moved"])),
    st.builds(e.ResumeMarked, st.sampled_from(["restart_interrupted", "shutdown_timeout"]), SMALL),
    st.builds(e.ResumeCleared, st.sampled_from(["turn_succeeded", "drained"])),
    st.builds(e.SessionSuspended, st.sampled_from(["stop", "stuck"]), SMALL),
    st.builds(e.HandoffRequested, texts, I64),
    st.builds(e.HandoffClaimed, texts, I64),
    st.builds(e.HandoffCompleted, texts, texts, st.none() | sessions),
    st.builds(e.HandoffFailed, texts),
)
changed = st.one_of(
    used,
    under_way,
    st.builds(e.SessionTitled, maybe, st.booleans()),
    st.builds(e.SessionCompressed, sessions, st.none() | REAL),
    st.builds(
        e.SessionEnded,
        st.sampled_from([None, "cli_close", "session_reset", SUPERSEDED]),
        st.booleans(),
        st.none() | REAL,
    ),
    st.builds(
        e.SessionReset,
        st.sampled_from(["person", "daily"]),
        sessions,
        st.none() | I64,
        had_activity=st.booleans(),
    ),
    st.sampled_from(
        [
            e.SessionReopened(),
            e.SessionArchived(),
            e.SessionUnarchived(),
            e.SessionPinned(),
            e.SessionUnpinned(),
            e.SessionUndeleted(),
        ]
    ),
    st.builds(e.SessionDeleted, st.just("done with it"), I64, SMALL, st.none() | sessions),
    st.builds(e.WorkspaceChanged, maybe, maybe, maybe),
    st.builds(e.ModelChanged, maybe, maybe),
    st.builds(e.PromptChanged, st.none() | st.sampled_from(["aa", "bb"]), maybe),
    st.builds(e.IdentityLost, identity, identity),
    st.builds(e.IdentityRestored, identity, identity),
    st.builds(e.SourceRowChanged, st.just("session"), st.just("0"), st.just({})),
)
kinds = st.sampled_from(["session", "session", "message", "route"])
row_changed = st.builds(
    e.SourceRowChanged,
    kind=kinds,
    row=st.sampled_from(["0", "1", "22"]),
    changes=columns(
        {
            **SOURCE_COLUMNS,
            "parent_kind": "",
            "active": "",
            "compacted": "",
            "entry_json": "",
            "entry_created_us": "",
        }
    ),
    conflicts=st.lists(st.sampled_from(["title", "parent_session_id", "entry_json", "cwd"]), max_size=2),
    odd=odds,
    seen=st.none() | st.just(b"seen too"),
    store=st.none() | st.sampled_from(STORES),
)
row_gone = st.builds(
    e.SourceRowGone, kind=kinds, row=st.sampled_from(["0", "1"]), store=st.none() | st.sampled_from(STORES)
)
rerouted = st.builds(
    e.SessionRerouted,
    key=st.just(""),
    session_id=sessions,
    previous=st.none() | sessions,
    cause=st.sampled_from(["first_message", "reset", "import", "repair"]),
    candidates=st.just([]) | st.just([e.RouteCandidate("s1", "older", 5)]),
    entry=maybe,
    entry_created_us=st.none() | I64,
    store=st.none() | st.sampled_from(STORES),
)
closed = st.builds(
    e.RouteClosed,
    key=st.just(""),
    previous=st.none(),
    cause=st.just("import"),
    store=st.none() | st.sampled_from(STORES),
)
ran = st.builds(
    e.ImportRan,
    path=st.just("/somewhere"),
    schema_version=st.none() | st.integers(11, 30),
    taken=st.just({"sessions": 1}),
    unchanged=st.just({}),
)
names = st.lists(sessions, max_size=2)
gateways = st.one_of(
    st.builds(e.GatewayStarted, st.booleans(), st.lists(st.sampled_from(["telegram", "slack"]), max_size=2)),
    st.builds(e.GatewayStopped, st.booleans(), texts, names),
    st.builds(
        e.RecoveryRan, names, names, names, st.dictionaries(sessions, texts, max_size=2), st.booleans()
    ),
    st.builds(e.HomeChannelSet, st.sampled_from(["telegram", "slack"]), maybe, maybe, maybe),
    st.builds(e.SettingChanged, st.sampled_from(["drain", "mood"]), values, st.none() | I64, st.booleans()),
    st.builds(e.MaintenanceRan, st.just("prune"), st.dictionaries(texts, SMALL, max_size=2)),
    st.builds(
        e.UpdateSeen,
        st.sampled_from(["telegram", "slack"]),
        st.sampled_from(["5", "40", "x", "9223372036854775808"]),
        st.none() | sessions,
    ),
)

step: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just(Story.gateway), st.tuples(st.sampled_from(["main", "second"]), gateways, times)),
    st.tuples(st.just(Story.create), st.tuples(sessions, created, times, st.booleans())),
    st.tuples(st.just(Story.say), st.tuples(sessions, said, times, st.booleans())),
    st.tuples(st.just(Story.say), st.tuples(sessions, said, times, st.booleans())),
    st.tuples(st.just(Story.copy), st.tuples(sessions, st.integers(0, 30), times)),
    st.tuples(st.just(Story.change), st.tuples(sessions, changed, times, st.booleans())),
    st.tuples(
        st.just(Story.touch),
        st.tuples(
            sessions,
            st.sampled_from([e.MessagesRewound, e.MessagesRestored, e.MessagesCompacted]),
            picks,
            st.just(()),
            st.booleans(),
        ),
    ),
    st.tuples(
        st.just(Story.touch),
        st.tuples(
            sessions,
            st.just(e.MessageEdited),
            picks,
            st.tuples(edits, st.none() | st.just(b"edited"), odds),
            st.booleans(),
        ),
    ),
    st.tuples(
        st.just(Story.touch),
        st.tuples(
            sessions,
            st.just(e.MessagesRewound),
            picks,
            st.tuples(positions, positions),
            st.booleans(),
        ),
    ),
    st.tuples(
        st.just(Story.touch),
        st.tuples(sessions, st.just(e.MessagesRestored), picks, st.tuples(positions), st.booleans()),
    ),
    st.tuples(
        st.just(Story.touch),
        st.tuples(sessions, st.just(e.MessageEnriched), picks, st.tuples(edits), st.booleans()),
    ),
    st.tuples(st.just(Story.source_row), st.tuples(sessions, row_changed | row_gone, picks)),
    st.tuples(st.just(Story.lead), st.tuples(st.sampled_from(KEYS), rerouted | closed, times, st.booleans())),
    st.tuples(
        st.just(Story.work),
        st.tuples(
            st.sampled_from(KEYS),
            st.sampled_from([e.ActivityHeld("", "7", "a server"), e.ActivityReleased("", "7")]),
        ),
    ),
    st.tuples(st.just(Story.title), st.tuples(st.sampled_from(TITLES), sessions, st.booleans())),
    st.tuples(st.just(Story.ran), st.tuples(st.sampled_from(STORES), ran)),
    st.tuples(st.just(Story.newer), st.tuples(st.sampled_from([*SESSIONS, "title:new", "dream:1"]))),
    st.tuples(st.just(Story.erase), st.tuples(picks)),
    st.tuples(st.just(Story.erase_session), st.tuples(sessions)),
)
