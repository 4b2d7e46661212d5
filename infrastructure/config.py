"""config.yaml: the settings of a home, as one typed value; an unknown or bad key is named with its line."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..domain.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

NAME = "config.yaml"
_YEARS_S = 36_500 * 86_400
"""A hundred years in seconds: no time is longer, so that none overflows."""


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`log:`."""

    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    """NORMAL is faster, and a power cut may lose the last saves; the file stays whole."""


class MirrorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`mirror:`."""

    enabled: bool = True
    """Whether sessions/sessions.json is kept for readers of that file."""


class ResetLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`session_reset` of a platform or of a kind of chat; what it leaves open the next level says."""

    mode: Literal["none", "idle", "daily", "both", "daily_and_idle", "daily-and-idle"] | None = None
    at_hour: Annotated[int, Meta(ge=0, le=23)] | None = None
    """The hour of the daily reset, in the zone of `timezone`."""
    idle_minutes: Annotated[float, Meta(gt=0, le=36_500 * 1_440)] | None = None
    notify: bool | None = None
    notify_exclude_platforms: list[str] | None = None
    bg_process_max_age_hours: Annotated[float, Meta(ge=0, le=876_000)] | None = None


class ResetSettings(ResetLevel, frozen=True, forbid_unknown_fields=True):
    """`session_reset:`, for all chats; `chat_types` for those of a kind (dm, group, channel, thread)."""

    chat_types: dict[str, ResetLevel] = {}


class PlatformSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`platforms.<platform>:`."""

    session_reset: ResetLevel = ResetLevel()
    group_sessions_per_user: bool | None = None
    thread_sessions_per_user: bool | None = None
    session_dir: str | None = None
    """Where WhatsApp's bridge keeps its lid-mapping files; a relative path is inside the home."""


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`agent:`."""

    gateway_auto_continue_freshness: Annotated[float, Meta(ge=0, le=_YEARS_S)] = 3600
    """Seconds after which a cut off conversation is no longer gone on with by itself; 0: it never is."""
    restart_drain_timeout: Annotated[float, Meta(ge=0, le=30 * 86_400)] = 0
    """Seconds that a stop waits for running turns."""


class RestartLoopGuard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`gateway.restart_loop_guard:`."""

    max_restarts: Annotated[int, Meta(ge=0, le=16)] = 3
    """So many starts within the window, and the last one resumes nothing; 0: every start may."""
    window_seconds: Annotated[float, Meta(gt=0, le=_YEARS_S)] = 60


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`gateway:`."""

    restart_loop_guard: RestartLoopGuard = RestartLoopGuard()


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`queue:`."""

    cap: Annotated[int, Meta(ge=1, le=10_000)] = 32
    """How many turns may wait in a session."""


class SessionsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`sessions:`."""

    erase_after: Annotated[float, Meta(ge=0, le=36_500)] = 7
    """Days for which a deletion can be undone."""
    stale_after_days: Annotated[float, Meta(gt=0, le=36_500)] = 7
    """Days of silence after which an open session is shown as stale."""
    auto_prune: bool = False
    retention_days: Annotated[float, Meta(gt=0, le=36_500)] = 90
    """Days without activity after which an ended session is pruned."""
    min_interval_hours: Annotated[float, Meta(ge=0, le=876_000)] = 24
    """Hours between two runs of maintenance that nobody asked for."""
    vacuum_after_prune: bool = True
    min_vacuum_interval_days: Annotated[float, Meta(ge=0, le=36_500)] = 30


class RepairSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`repair:`."""

    keep_backups: Annotated[int, Meta(ge=1, le=1_000)] = 3
    """How many of the backups that repairs took are kept beside the home, the newest of them."""


class CompressionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`compression:`."""

    in_place: bool = False
    """Whether a compressed session keeps its id; else it goes on in a continuation."""


class DisplaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`display:`."""

    resume_display: Literal["full", "minimal"] = "full"
    """Whether a resume shows the end of the conversation, or says in a line which one it is."""
    resume_exchanges: Annotated[int, Meta(ge=1, le=1_000)] = 10
    resume_max_user_chars: Annotated[int, Meta(ge=1, le=1_000_000)] = 300
    resume_max_assistant_chars: Annotated[int, Meta(ge=1, le=1_000_000)] = 200
    resume_max_assistant_lines: Annotated[int, Meta(ge=1, le=100_000)] = 3
    resume_skip_tool_only: bool = True
    """Whether answers that are nothing but calls of tools are left out."""


class RedactionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`redaction:`."""

    rules: str | None = None
    """A file of rules on top of ours; a relative path is inside the home. None: redaction.yaml, if there."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, with their defaults."""

    timezone: str | None = None
    """An IANA name, for times without an offset; the machine's own zone by default."""
    log: LogSettings = LogSettings()
    mirror: MirrorSettings = MirrorSettings()
    compression: CompressionSettings = CompressionSettings()
    session_reset: ResetSettings = ResetSettings()
    group_sessions_per_user: bool = True
    """Whether each person of a group has a session of their own."""
    thread_sessions_per_user: bool = False
    platforms: dict[str, PlatformSettings] = {}
    agent: AgentSettings = AgentSettings()
    gateway: GatewaySettings = GatewaySettings()
    queue: QueueSettings = QueueSettings()
    repair: RepairSettings = RepairSettings()
    sessions: SessionsSettings = SessionsSettings()
    redaction: RedactionSettings = RedactionSettings()
    display: DisplaySettings = DisplaySettings()

    @property
    def zone(self) -> tzinfo | None:
        """The zone of `timezone`, or None for the machine's own."""
        if self.timezone is None:
            return None
        from zoneinfo import ZoneInfo

        return ZoneInfo(self.timezone)


def load_config(home: Path) -> Config:
    """The settings of `home`; defaults where there is no file.

    Raises:
        BadConfig: it is no YAML, or holds an unknown key, a key twice or a bad value; names the line.
    """
    path = home / NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} cannot be read: {error}", hint="mend or remove the file") from error
    # Only homes with a file pay for these: start-up is imports.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    import yaml

    try:
        loader = yaml.SafeLoader(text)
        root: Any = loader.get_single_node()
        _refuse_twice(path, root)
        value: Any = None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it is no YAML"
        raise BadConfig(f"{path}{where}: {problem}", hint="mend the line") from error
    except ValueError as error:  # a number of thousands of digits, a day that no month has
        raise BadConfig(f"{path}: {error}", hint="mend the value") from error
    if value is None:
        return Config()
    try:
        config = msgspec.convert(_bounded(value), Config)
    except msgspec.ValidationError as error:
        problem = _spelled_out(value, str(error))
        where, hint = _place(text, problem)
        raise BadConfig(f"{path}{where}: {problem}", hint=hint) from error
    if config.timezone is not None:
        try:
            ZoneInfo(config.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise BadConfig(
                f"{path}{_place(text, '`timezone`')[0]}: '{config.timezone}' is no time zone",
                hint="give an IANA name like Europe/Berlin",
            ) from None
    return config


_VALUES = {
    "timezone": "timezone is an IANA name like Europe/Berlin",
    "log": "log holds synchronous",
    "log.synchronous": "log.synchronous is FULL or NORMAL",
    "mirror": "mirror holds enabled",
    "mirror.enabled": "mirror.enabled is true or false",
    "compression": "compression holds in_place",
    "compression.in_place": "compression.in_place is true or false",
    "agent": "agent holds gateway_auto_continue_freshness and restart_drain_timeout",
    "agent.gateway_auto_continue_freshness": "agent.gateway_auto_continue_freshness is a number of seconds"
    " from 0 to 3153600000",
    "agent.restart_drain_timeout": "agent.restart_drain_timeout is a number of seconds from 0 to 2592000",
    "gateway": "gateway holds restart_loop_guard",
    "gateway.restart_loop_guard": "gateway.restart_loop_guard holds max_restarts and window_seconds",
    "gateway.restart_loop_guard.max_restarts": "max_restarts is a whole number from 0 to 16, 0 for no guard",
    "gateway.restart_loop_guard.window_seconds": "window_seconds is a number of seconds above 0"
    " and at most 3153600000",
    "queue": "queue holds cap",
    "queue.cap": "queue.cap is a whole number from 1 to 10000",
    "repair": "repair holds keep_backups",
    "repair.keep_backups": "repair.keep_backups is a whole number from 1 to 1000",
    "sessions": "sessions holds erase_after, stale_after_days, auto_prune, retention_days,"
    " min_interval_hours, vacuum_after_prune and min_vacuum_interval_days",
    "sessions.erase_after": "sessions.erase_after is a number of days from 0 to 36500",
    "sessions.stale_after_days": "sessions.stale_after_days is a number of days above 0 and at most 36500",
    "sessions.auto_prune": "sessions.auto_prune is true or false",
    "sessions.retention_days": "sessions.retention_days is a number of days above 0 and at most 36500",
    "sessions.min_interval_hours": "sessions.min_interval_hours is a number of hours from 0 to 876000",
    "sessions.vacuum_after_prune": "sessions.vacuum_after_prune is true or false",
    "sessions.min_vacuum_interval_days": "sessions.min_vacuum_interval_days is a number of days"
    " from 0 to 36500",
    "display": "display holds resume_display, resume_exchanges, resume_max_user_chars,"
    " resume_max_assistant_chars, resume_max_assistant_lines and resume_skip_tool_only",
    "display.resume_display": "display.resume_display is full or minimal",
    "display.resume_exchanges": "display.resume_exchanges is a whole number from 1 to 1000",
    "display.resume_max_user_chars": "display.resume_max_user_chars is a whole number from 1 to 1000000",
    "display.resume_max_assistant_chars": "display.resume_max_assistant_chars is a whole number"
    " from 1 to 1000000",
    "display.resume_max_assistant_lines": "display.resume_max_assistant_lines is a whole number"
    " from 1 to 100000",
    "display.resume_skip_tool_only": "display.resume_skip_tool_only is true or false",
    "session_reset": "session_reset holds mode, at_hour, idle_minutes, notify, notify_exclude_platforms,"
    " bg_process_max_age_hours and chat_types",
    "session_reset.mode": "session_reset.mode is none, idle, daily, both or daily_and_idle",
    "session_reset.at_hour": "session_reset.at_hour is an hour from 0 to 23",
    "session_reset.idle_minutes": "session_reset.idle_minutes is a number above 0 and at most 52560000",
    "session_reset.bg_process_max_age_hours": "session_reset.bg_process_max_age_hours is a number of hours"
    " from 0 to 876000",
    "redaction": "redaction holds rules",
    "redaction.rules": "redaction.rules is the path of a file of rules; a relative one is inside the home",
    "group_sessions_per_user": "group_sessions_per_user is true or false",
    "thread_sessions_per_user": "thread_sessions_per_user is true or false",
    "platforms": "platforms holds, by a platform's name, session_reset, group_sessions_per_user,"
    " thread_sessions_per_user and session_dir",
}


def _bounded(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """A value in which each number can be held against bounds: one that is none, or is endless, is text."""
    if any(value is each for each in within):
        return None
    if isinstance(value, dict):
        return {name: _bounded(each, (*within, value)) for name, each in value.items()}
    if isinstance(value, list):
        return [_bounded(each, (*within, value)) for each in value]
    is_endless = isinstance(value, int) and abs(value) >= 1 << 63
    return f"{value}" if is_endless or (isinstance(value, float) and not isfinite(value)) else value


def _spelled_out(value: Any, problem: str) -> str:
    """The message with the name of the entry where msgspec only says `[...]`."""
    while "[...]" in problem:
        head, _, rest = problem.partition("[...]")
        entries = value
        for name in head.partition("`$.")[2].split("."):
            entries = entries.get(name, {}) if isinstance(entries, dict) else {}
        found = next((str(name) for name, entry in dict(entries).items() if _refused(head, entry)), None)
        if found is None:
            break
        problem = f"{head}.{found}{rest}"
    return problem


def _refused(head: str, entry: object) -> bool:
    try:
        msgspec.convert(entry, ResetLevel if head.endswith("chat_types") else PlatformSettings)
    except msgspec.ValidationError:
        return True
    return False


def _place(text: str, problem: str) -> tuple[str, str]:
    """`, line N` for the key that a message of msgspec's names, and what may stand there."""
    import re

    import yaml

    lines = _lines(yaml.compose(text, Loader=yaml.SafeLoader))
    path = next(iter(re.findall(r"`\$\.([^`]+)`", problem)), "")
    unknown = next(iter(re.findall(r"unknown field `([^`]+)`", problem)), "")
    names = [f"{path}.{unknown}".strip(".")] if unknown else [path]
    names += re.findall(r"`([^`$]+)`", problem)
    number = next((lines[name] for name in names if name in lines), None)
    where = "" if number is None else f", line {number}"
    if unknown in _VALUES and "." in unknown:
        section, _, key = unknown.rpartition(".")
        return where, f"write it as {key} inside {section}: {{{key}: ...}}; {_VALUES[unknown]}"
    for known in (path, f"session_reset.{path.rpartition('.')[2]}"):
        if not unknown and known in _VALUES and (known == path or "session_reset." in path):
            return where, _VALUES[known]
    return where, f"mend or remove the key; known are {', '.join(_VALUES)}"


def _refuse_twice(path: Path, root: Any) -> None:
    """Of a key that stands twice the last would count, and nobody would see that the first does not."""
    first: dict[tuple[int, str, str], int] = {}
    for name, key, mapping in _entries(root):
        line = key.start_mark.line + 1
        of = (id(mapping), key.tag, name)
        if of in first:
            raise BadConfig(
                f"{path}, line {line}: `{name}` stands there a second time, first in line {first[of]}",
                hint="keep one of them",
            )
        first[of] = line


def _entries(node: Any, above: str = "", within: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any, Any]]:
    """Every key by its path, with its node and the mapping that it is in; no mapping within itself."""
    if getattr(node, "id", "") != "mapping" or any(node is each for each in within):
        return
    for key, value in node.value:
        name = f"{above}.{key.value}".strip(".") if isinstance(key.value, str) else above
        yield name, key, node
        yield from _entries(value, name, (*within, node))


def _lines(root: Any) -> dict[str, int]:
    """The line of each key, by its path."""
    lines: dict[str, int] = {}
    for name, key, _ in _entries(root):
        lines.setdefault(name, key.start_mark.line + 1)
    return lines
