"""Every fact the log can hold: payloads by topic, and the envelope that names when, where and by whom.

A payload says only what happened; stream, time, actor and cause are the envelope's. Payloads are
array-like: a field's place is its meaning on disk, so fields are only added, at the end, with a
default, and never in a base class (a field added to a base decodes silently wrong).
tests/domain/test_events.py freezes each topic's fields; tests/fixtures/log holds their bytes. Over 400
lines because it is the one catalogue: a reader who looks for a fact looks here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

Visibility: TypeAlias = Literal["live", "compacted", "rewound"]
ParentKind: TypeAlias = Literal["continuation", "branch", "delegate", "tool", "reset", "child"]
Cause: TypeAlias = Literal[
    "first_message",
    "reset",
    "idle",
    "daily",
    "compression",
    "resume",
    "branch",
    "handoff",
    "recovery",
    "repair",
    "import",
    "suspended",
    "resume_expired",
    "delete",
    "undo",
]
ResetRule: TypeAlias = Literal["person", "idle", "daily", "daily_and_idle", "suspended", "resume_expired"]
"""What ended a session for good: a person's /new or /reset, a policy, or a stop that no restart may undo."""
TitledBy: TypeAlias = Literal["person", "model", "lineage"]
"""Who named a session: a person, a model after the first exchange, or a number in its line of descent."""
ResumeReason: TypeAlias = Literal["restart_timeout", "shutdown_timeout", "restart_interrupted"]
if TYPE_CHECKING:
    Scalar: TypeAlias = bool | int | float | str | bytes | None
else:
    Scalar = Any  # msgspec cannot tell str from bytes in a union; MessagePack itself does
AtKind: TypeAlias = Literal["exact", "no_later_than"]


class Payload(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all payloads; it has no fields, and must never get one."""

    topic: ClassVar[str] = ""


# --- session streams -------------------------------------------------------------------------------


class SessionCreated(Payload, frozen=True, array_like=True, gc=False):
    """A session began, with its whole identity. Always version 1 of its stream.

    `columns` are further columns of an imported row by their source names; `odd` holds the exact
    value of any column whose type or encoding the fields here cannot bear (see `Odd`).
    """

    topic: ClassVar[str] = "session_created.1"
    source: str
    session_key: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    display_name: str | None = None
    origin_json: str | None = None
    parent_session_id: str | None = None
    parent_kind: ParentKind | None = None
    model: str | None = None
    model_config: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    git_repo_root: str | None = None
    profile_name: str | None = None
    started_at: float | None = None
    """Seconds since the epoch as a source had them, where `at_us` does not give them back."""
    columns: dict[str, Scalar] = {}
    odd: dict[str, Odd] = {}
    store: str | None = None
    """Fingerprint of the store that an import brought it from: the stream is `source:<store>`."""


class MessageAppended(Payload, frozen=True, array_like=True, gc=False):
    """One message. Its id everywhere is its position in the log.

    `content` is text as the store keeps it; structured content is NUL + "json:" + JSON
    (REFERENCE.md 1.4). `visibility` is what it was when first seen: an import may meet a row that
    had been compacted or rewound before. `seen` is the digest of the source's row.
    """

    topic: ClassVar[str] = "message_appended.1"
    role: str
    content: str | None = None
    tool_name: str | None = None
    tool_calls: str | None = None
    tool_call_id: str | None = None
    platform_message_id: str | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: str | None = None
    codex_reasoning_items: str | None = None
    codex_message_items: str | None = None
    effect_disposition: str | None = None
    api_content: str | None = None
    token_count: int | None = None
    observed: int = 0
    visibility: Visibility = "live"
    copy_of: int | None = None
    scrubbed: bool = False
    """Lone surrogates were replaced at the write boundary."""
    source_id: int | None = None
    seen: bytes | None = None
    timestamp: float | None = None
    """Seconds since the epoch as a source had them, where `at_us` does not give them back."""
    columns: dict[str, Scalar] = {}
    odd: dict[str, Odd] = {}
    attachments: list[Attachment] = []
    summary: bool = False
    """It stands for what was compressed: nobody said it."""


class MessageEnriched(Payload, frozen=True, array_like=True, gc=False):
    """A message was delivered again, and the second copy knew more: `changes` by column name."""

    topic: ClassVar[str] = "message_enriched.1"
    message: int
    changes: dict[str, Scalar]


class MessageEdited(Payload, frozen=True, array_like=True, gc=False):
    """Columns of one message got other values: `changes` by column name."""

    topic: ClassVar[str] = "message_edited.1"
    message: int
    changes: dict[str, Scalar]
    seen: bytes | None = None
    odd: dict[str, Odd] = {}


class MessagesRewound(Payload, frozen=True, array_like=True, gc=False):
    """Messages, by position, were undone: hidden from the conversation."""

    topic: ClassVar[str] = "messages_rewound.1"
    messages: list[int]
    compacted: list[int] = []
    """Those of them that had left the context before."""
    restored: list[int] = []
    """Messages that are in the context again, since the compaction that took them out was undone too."""


class MessagesRestored(Payload, frozen=True, array_like=True, gc=False):
    """Messages, by position, are live again."""

    topic: ClassVar[str] = "messages_restored.1"
    messages: list[int]
    compacted: list[int] = []
    """Others, which are back as they were before: out of the context, still found by search."""


class MessagesCompacted(Payload, frozen=True, array_like=True, gc=False):
    """Messages, by position, left the context for a summary; still found by search."""

    topic: ClassVar[str] = "messages_compacted.1"
    messages: list[int]


class UsageRecorded(Payload, frozen=True, array_like=True, gc=False):
    """Tokens and cost: the session's totals (`model` None) or one model's share of them.

    `mode` says whether the numbers replace what was there or are added to it.
    """

    topic: ClassVar[str] = "usage_recorded.1"
    mode: Literal["absolute", "delta"]
    model: str | None = None
    billing_provider: str = ""
    billing_base_url: str = ""
    billing_mode: str = ""
    task: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    api_call_count: int = 0
    estimated_cost_usd: float | None = None
    actual_cost_usd: float | None = None
    columns: dict[str, Scalar] = {}


class UsageRowGone(Payload, frozen=True, array_like=True, gc=False):
    """One model's share of a session's usage left its source; what it told stays told."""

    topic: ClassVar[str] = "usage_row_gone.1"
    model: str
    billing_provider: str = ""
    billing_base_url: str = ""
    billing_mode: str = ""
    task: str = ""


class SessionTitled(Payload, frozen=True, array_like=True, gc=False):
    """The session bears this title now, or none."""

    topic: ClassVar[str] = "session_titled.1"
    title: str | None
    claimed: bool = True
    """False: another session holds the title; this one only remembers what its source said."""
    by: TitledBy = "person"


class SessionCompressed(Payload, frozen=True, array_like=True, gc=False):
    """The session goes on as another: the continuation that compression made."""

    topic: ClassVar[str] = "session_compressed.1"
    continuation: str
    ended_at: float | None = None
    why: Literal["context_full", "turn_cap"] = "context_full"
    """What made it go on elsewhere: its context was full, or a cap on turns was met."""


class SessionEnded(Payload, frozen=True, array_like=True, gc=False):
    """The session ended; a hard end is final, a soft one may be reopened by the next message."""

    topic: ClassVar[str] = "session_ended.1"
    reason: str | None
    hard: bool
    ended_at: float | None = None


class SessionReset(Payload, frozen=True, array_like=True, gc=False):
    """The chat began anew: a hard end by a person or a rule, with the numbers that the rule saw.

    An old log replays the resets that it recorded, whatever the configuration says by then.
    """

    topic: ClassVar[str] = "session_reset.1"
    rule: ResetRule
    successor: str | None = None
    last_active_us: int | None = None
    """The activity that was judged."""
    boundary_us: int | None = None
    """The moment from which the reset was due."""
    idle_minutes: float | None = None
    at_hour: int | None = None
    zone: str | None = None
    had_activity: bool = False
    deferred: bool = False
    """It was due while a turn was running, and waited for its end."""


class SessionReopened(Payload, frozen=True, array_like=True, gc=False):
    """The end was taken back."""

    topic: ClassVar[str] = "session_reopened.1"


class SessionArchived(Payload, frozen=True, array_like=True, gc=False):
    """Hidden from lists, still found by search."""

    topic: ClassVar[str] = "session_archived.1"


class SessionUnarchived(Payload, frozen=True, array_like=True, gc=False):
    """In lists again."""

    topic: ClassVar[str] = "session_unarchived.1"


class SessionPinned(Payload, frozen=True, array_like=True, gc=False):
    """Kept from every bulk removal."""

    topic: ClassVar[str] = "session_pinned.1"


class SessionUnpinned(Payload, frozen=True, array_like=True, gc=False):
    """No longer pinned."""

    topic: ClassVar[str] = "session_unpinned.1"


class SessionDeleted(Payload, frozen=True, array_like=True, gc=False):
    """Gone from every view at once, erased once `erase_after_us` has passed; until then it can be undone."""

    topic: ClassVar[str] = "session_deleted.1"
    reason: str
    erase_after_us: int
    """Microseconds since the Unix epoch."""
    messages: int = 0
    """How many it had."""
    with_parent: str | None = None
    """The session whose delegate it is, where it was deleted along with that one."""


class SessionUndeleted(Payload, frozen=True, array_like=True, gc=False):
    """Back, as it was."""

    topic: ClassVar[str] = "session_undeleted.1"


class ResumeMarked(Payload, frozen=True, array_like=True, gc=False):
    """Its turn was cut off by a restart: the same session goes on by itself once the gateway is back."""

    topic: ClassVar[str] = "resume_marked.1"
    reason: ResumeReason
    restarts: int = 1
    """Restarts in a row that cut its turns off, this one included."""


class ResumeCleared(Payload, frozen=True, array_like=True, gc=False):
    """The mark is gone: a turn of it succeeded since, or it was given up."""

    topic: ClassVar[str] = "resume_cleared.1"
    why: Literal["turn_succeeded", "drained", "suspended", "expired", "undo"]


class SessionSuspended(Payload, frozen=True, array_like=True, gc=False):
    """The next message of its chat begins a new session."""

    topic: ClassVar[str] = "session_suspended.1"
    why: Literal["stop", "stuck"]
    restarts: int = 0


class TurnQueued(Payload, frozen=True, array_like=True, gc=False):
    """What is to be said once the running turn is over. `turn` is its id, which runs exactly once."""

    topic: ClassVar[str] = "turn_queued.1"
    turn: str
    text: str
    lane: Literal["slot", "overflow"]
    replaces: str | None = None
    """The turn that stood in the slot before, where a plain message overwrote it."""
    about: dict[str, Scalar] = {}
    """Whatever the caller wants back with it: the sender, a platform's message id."""
    moved_from: str | None = None
    """The session that it was queued in first, where that one was compressed since."""


class TurnStarted(Payload, frozen=True, array_like=True, gc=False):
    """A turn runs. Its runner renews the lease by another of these; past it the turn counts as cut off."""

    topic: ClassVar[str] = "turn_started.1"
    turn: str
    lease_until_us: int
    queued: bool = False
    gateway: str | None = None
    """Who runs it, where that is a gateway: its next start knows that the turn was cut off."""


class TurnFinished(Payload, frozen=True, array_like=True, gc=False):
    """A turn is over, once and for all."""

    topic: ClassVar[str] = "turn_finished.1"
    turn: str
    outcome: Literal["done", "failed", "interrupted", "lost"]
    detail: str | None = None


class QueueCleared(Payload, frozen=True, array_like=True, gc=False):
    """What was queued will not run here."""

    topic: ClassVar[str] = "queue_cleared.1"
    turns: list[str]
    why: Literal["reset", "person", "moved", "deleted"]


class HandoffRequested(Payload, frozen=True, array_like=True, gc=False):
    """The session is to go on in another place; nobody has taken it yet."""

    topic: ClassVar[str] = "handoff_requested.1"
    platform: str
    deadline_us: int


class HandoffClaimed(Payload, frozen=True, array_like=True, gc=False):
    """One gateway took the handoff on, or says that it is still at it: the deadline moves."""

    topic: ClassVar[str] = "handoff_claimed.1"
    gateway: str
    deadline_us: int


class HandoffCompleted(Payload, frozen=True, array_like=True, gc=False):
    """The session goes on under this key."""

    topic: ClassVar[str] = "handoff_completed.1"
    key: str
    platform: str
    previous: str | None = None
    """The session that the key led to before."""


class HandoffFailed(Payload, frozen=True, array_like=True, gc=False):
    """It did not work out, and the session is as it was."""

    topic: ClassVar[str] = "handoff_failed.1"
    reason: str


class WorkspaceChanged(Payload, frozen=True, array_like=True, gc=False):
    """Where the session works: all three as they are now."""

    topic: ClassVar[str] = "workspace_changed.1"
    cwd: str | None
    git_branch: str | None
    git_repo_root: str | None


class ModelChanged(Payload, frozen=True, array_like=True, gc=False):
    """Which model answers, and its configuration: both as they are now."""

    topic: ClassVar[str] = "model_changed.1"
    model: str | None
    model_config: str | None


class PromptChanged(Payload, frozen=True, array_like=True, gc=False):
    """The system prompt, by content hash; its text only where this log had not held it yet."""

    topic: ClassVar[str] = "prompt_changed.1"
    prompt_hash: str | None
    text: str | None = None


class IdentityLost(Payload, frozen=True, array_like=True, gc=False):
    """Routing identity that the session had is gone: `was` by column name, for those that changed."""

    topic: ClassVar[str] = "identity_lost.1"
    was: dict[str, Scalar]
    now: dict[str, Scalar]


class IdentityRestored(Payload, frozen=True, array_like=True, gc=False):
    """Routing identity was set or changed: `now` by column name, for those that changed."""

    topic: ClassVar[str] = "identity_restored.1"
    was: dict[str, Scalar]
    now: dict[str, Scalar]


class SourceRowChanged(Payload, frozen=True, array_like=True, gc=False):
    """A source's row got values that no event of its own says: `changes` by column name.

    `conflicts` names the columns that were changed here as well: ours stays, and the source's
    value is only remembered. A row that had gone and is back has no changes.
    """

    topic: ClassVar[str] = "source_row_changed.1"
    kind: Literal["session", "message", "route"]
    row: str
    changes: dict[str, Scalar]
    conflicts: list[str] = []
    odd: dict[str, Odd] = {}
    seen: bytes | None = None
    messages: list[int] = []
    """Positions of messages that had gone and are back."""
    store: str | None = None
    """The store whose row this is, for kind "route", and for what a carried repair wrote there."""
    ours: dict[str, Scalar] = {}
    """What stands here for the columns in conflict."""


class SourceRowGone(Payload, frozen=True, array_like=True, gc=False):
    """A row that an import had brought is no longer in its source; nothing is erased here."""

    topic: ClassVar[str] = "source_row_gone.1"
    kind: Literal["session", "message", "route"]
    row: str
    messages: list[int] = []
    """Positions of the messages that are gone: for kind "message", and with a session for "session"."""
    store: str | None = None
    """The store whose row this was, for kind "route"."""


# --- route streams ---------------------------------------------------------------------------------


class RouteCandidate(msgspec.Struct, frozen=True, array_like=True):
    """A session that was weighed, and why it was or was not chosen."""

    session_id: str
    verdict: str
    last_active_us: int | None = None


class SessionRerouted(Payload, frozen=True, array_like=True, gc=False):
    """A key leads to a session from here on; `cause` says why, `candidates` what was weighed."""

    topic: ClassVar[str] = "session_rerouted.1"
    key: str
    session_id: str
    previous: str | None
    cause: Cause
    candidates: list[RouteCandidate] = []
    evidence: list[str] = []
    entry: str | None = None
    """The source's own routing entry (JSON text), for cause "import"."""
    entry_created_us: int | None = None
    entry_updated_us: int | None = None
    store: str | None = None
    """The store that said so, for cause "import"."""


class RouteClosed(Payload, frozen=True, array_like=True, gc=False):
    """A key leads nowhere from here on."""

    topic: ClassVar[str] = "route_closed.1"
    key: str
    previous: str | None
    cause: Cause
    store: str | None = None
    """The store that said so, for cause "import"."""


class ActivityHeld(Payload, frozen=True, array_like=True, gc=False):
    """Work goes on in the background of a chat (`hold` names it): no policy resets the chat meanwhile."""

    topic: ClassVar[str] = "activity_held.1"
    key: str
    hold: str
    what: str = ""
    gateway: str | None = None
    """The gateway that watches over the work; None for nobody, and in logs from before it was said."""
    deaths: int = 0
    """How often that gateway had died until then: once it has died again, nobody watches any more."""


class ActivityReleased(Payload, frozen=True, array_like=True, gc=False):
    """That work is over."""

    topic: ClassVar[str] = "activity_released.1"
    key: str
    hold: str


# --- title streams ---------------------------------------------------------------------------------


class TitleClaimed(Payload, frozen=True, array_like=True, gc=False):
    """The title belongs to this session."""

    topic: ClassVar[str] = "title_claimed.1"
    title: str
    session_id: str


class TitleReleased(Payload, frozen=True, array_like=True, gc=False):
    """The title is free again."""

    topic: ClassVar[str] = "title_released.1"
    title: str
    session_id: str


# --- gateway streams -------------------------------------------------------------------------------


class GatewayStarted(Payload, frozen=True, array_like=True, gc=False):
    """A gateway began to serve chats; `clean` if its last stop had been one that it chose."""

    topic: ClassVar[str] = "gateway_started.1"
    clean: bool
    platforms: list[str] = []


class GatewayStopped(Payload, frozen=True, array_like=True, gc=False):
    """A gateway stopped by its own choice. `running` are the sessions whose turns did not end in time."""

    topic: ClassVar[str] = "gateway_stopped.1"
    clean: bool
    reason: str = ""
    running: list[str] = []


class RecoveryRan(Payload, frozen=True, array_like=True, gc=False):
    """What a start after a crash did, session by session: marked, suspended, resumed, passed over and why."""

    topic: ClassVar[str] = "recovery_ran.1"
    marked: list[str] = []
    suspended: list[str] = []
    resumed: list[str] = []
    passed_over: dict[str, str] = {}
    loop: bool = False
    """Too many starts in too short a time: nothing is resumed this time."""


class HomeChannelSet(Payload, frozen=True, array_like=True, gc=False):
    """Where a platform's handoffs and deliveries go."""

    topic: ClassVar[str] = "home_channel_set.1"
    platform: str
    chat_id: str | None
    thread_id: str | None = None
    name: str | None = None
    chat_type: str = "dm"


class SettingChanged(Payload, frozen=True, array_like=True, gc=False):
    """A setting that belongs to the home got another value (None: its default)."""

    topic: ClassVar[str] = "setting_changed.1"
    name: str
    value: Scalar
    until_us: int | None = None
    """When it lapses by itself."""
    lapsed: bool = False
    """Nobody took it back: its time had passed."""


class UpdateSeen(Payload, frozen=True, array_like=True, gc=False):
    """What a platform delivered was taken: delivered again, it begins nothing (FIELD_CASES B24).

    Its stream is the chat's, whose name holds no id. `session_id` and `turn` say what it began, if
    anything.
    """

    topic: ClassVar[str] = "update_seen.1"
    platform: str
    update: str
    session_id: str | None = None
    turn: str | None = None


class MaintenanceRan(Payload, frozen=True, array_like=True, gc=False):
    """One run of upkeep: what it did by word, and what it left alone with the reason."""

    topic: ClassVar[str] = "maintenance_ran.1"
    kind: str
    done: dict[str, int] = {}
    left: dict[str, str] = {}


# --- source streams, and any stream ----------------------------------------------------------------


class ImportRan(Payload, frozen=True, array_like=True, gc=False):
    """One run over a store: counts by word, and what could not be taken, each with its reason."""

    topic: ClassVar[str] = "import_ran.1"
    path: str
    schema_version: int | None
    taken: dict[str, int]
    unchanged: dict[str, int]
    conflicts: list[str] = []
    lost: list[str] = []
    skipped: list[str] = []
    notes: list[str] = []


class PayloadsErased(Payload, frozen=True, array_like=True, gc=False):
    """The payloads at these positions were emptied. An empty one that no such event names is tampering."""

    topic: ClassVar[str] = "payloads_erased.1"
    positions: list[int]
    reason: str
    source_refs: list[bytes | None] = []
    """The emptied events' source references, so an import knows not to bring them again."""
    marks: list[ErasedMark] = []
    """For each position, what still counts though its text is gone."""
    session: str | None = None
    """The session all of whose payloads are among them: nothing of it is left but that it was."""
    prompts: list[str] = []
    """Hashes of system prompts that no other session has."""
    masked: dict[int, bytes] = {}
    """Payloads that hold a masked text instead of the one that was forgotten, each with the hash of what
    stands there now, keyed with its new salt."""
    edits: dict[int, dict[str, Scalar]] = {}
    """Messages among them of which nothing but their row was told, with the columns that change."""
    store: str | None = None
    """The store that `session` had come from: that it was imported from stays known."""


class ErasedMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whose message was emptied, and the activity that it stays evidence of (None: not a message)."""

    session_id: str | None
    role: str | None
    active_us: int | None


class Attachment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file that came with a message: where it is, what it is, and the text that was made of it.

    Its bytes are never kept: a later turn sees the text, or where the file lies (REFERENCE.md 1.11).
    """

    path: str
    kind: str
    text: str | None = None


class Odd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The exact value of a column that a field cannot bear.

    `kind` "text" is text that is not valid UTF-8 (`value` its bytes); "value" is a value of another
    SQLite type than the column's.
    """

    kind: Literal["text", "value"]
    value: Scalar


PAYLOADS: tuple[type[Payload], ...] = (
    SessionCreated,
    MessageAppended,
    MessageEnriched,
    MessageEdited,
    MessagesRewound,
    MessagesRestored,
    MessagesCompacted,
    UsageRecorded,
    UsageRowGone,
    SessionTitled,
    SessionCompressed,
    SessionEnded,
    SessionReset,
    SessionReopened,
    SessionArchived,
    SessionUnarchived,
    SessionPinned,
    SessionUnpinned,
    SessionDeleted,
    SessionUndeleted,
    ResumeMarked,
    ResumeCleared,
    SessionSuspended,
    TurnQueued,
    TurnStarted,
    TurnFinished,
    QueueCleared,
    HandoffRequested,
    HandoffClaimed,
    HandoffCompleted,
    HandoffFailed,
    WorkspaceChanged,
    ModelChanged,
    PromptChanged,
    IdentityLost,
    IdentityRestored,
    SourceRowChanged,
    SourceRowGone,
    SessionRerouted,
    RouteClosed,
    ActivityHeld,
    ActivityReleased,
    TitleClaimed,
    TitleReleased,
    GatewayStarted,
    GatewayStopped,
    RecoveryRan,
    HomeChannelSet,
    SettingChanged,
    UpdateSeen,
    MaintenanceRan,
    ImportRan,
    PayloadsErased,
)
BY_TOPIC: dict[str, type[Payload]] = {each.topic: each for each in PAYLOADS}


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event whose topic this program does not know: a newer one wrote it. Folds pass over it."""

    topic: str


class ErasedEvent(msgspec.Struct, frozen=True):
    """An event whose payload was emptied; that it was, and of which topic, is all that remains."""

    topic: str


# --- envelopes -------------------------------------------------------------------------------------


class Event(msgspec.Struct, frozen=True):
    """A decision's outcome on its way into the log.

    `originator_id` is the stream and `originator_version` the version in it, under the names that
    the `eventsourcing` library gives them. Times are microseconds since the Unix epoch, UTC.
    `source_ref` and `idempotency_key` are keyed hashes, so they may outlive an erasure.
    """

    originator_id: str
    originator_version: int
    payload: Payload
    at_us: int
    at_kind: AtKind = "exact"
    source_ref: bytes | None = None
    idempotency_key: bytes | None = None
    caused_by: int | None = None


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as the log holds it."""

    position: int
    stream: str
    version: int
    topic: str
    at_us: int
    at_kind: AtKind
    recorded_at_us: int
    actor: str
    caused_by: int | None
    save: int
    source_ref: bytes | None
    payload: Any
    """A Payload, an UnknownEvent or an ErasedEvent. (Any: a union here would be validated by nobody.)"""

    @property
    def session_id(self) -> str:
        """The session whose stream this is; meaningless on other streams."""
        return self.stream[8:]


def session_stream(session_id: str) -> str:
    """The stream of a session."""
    return f"session:{session_id}"
