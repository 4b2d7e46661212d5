"""config.yaml: the settings of a home, as one typed value; an unknown or bad key is named with its line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..domain.errors import BadConfig

if TYPE_CHECKING:
    from datetime import tzinfo

NAME = "config.yaml"


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`log:`."""

    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    """NORMAL is faster, and a power cut may lose the last saves; the file stays whole."""


class MirrorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`mirror:`."""

    enabled: bool = True
    """Whether sessions/sessions.json is kept for readers of that file."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, with their defaults."""

    timezone: str | None = None
    """An IANA name, for times without an offset; the machine's own zone by default."""
    log: LogSettings = LogSettings()
    mirror: MirrorSettings = MirrorSettings()

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
        BadConfig: it is no YAML, or holds an unknown key or a bad value; names the line.
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
        value: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it is no YAML"
        raise BadConfig(f"{path}{where}: {problem}", hint="mend the line") from error
    if value is None:
        return Config()
    try:
        config = msgspec.convert(value, Config)
    except msgspec.ValidationError as error:
        where, hint = _place(text, str(error))
        raise BadConfig(f"{path}{where}: {error}", hint=hint) from error
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
}


def _place(text: str, problem: str) -> tuple[str, str]:
    """`, line N` for the key that a message of msgspec's names, and what may stand there."""
    import re

    import yaml

    lines: dict[str, int] = {}
    _keys(yaml.compose(text, Loader=yaml.SafeLoader), "", lines)
    path = next(iter(re.findall(r"`\$\.([^`]+)`", problem)), "")
    unknown = next(iter(re.findall(r"unknown field `([^`]+)`", problem)), "")
    names = [f"{path}.{unknown}".strip(".")] if unknown else [path]
    names += re.findall(r"`([^`$]+)`", problem)
    number = next((lines[name] for name in names if name in lines), None)
    where = "" if number is None else f", line {number}"
    if unknown in _VALUES and "." in unknown:
        section, key = unknown.split(".")
        return where, f"write it as {key} inside {section}: {{{key}: ...}}; {_VALUES[unknown]}"
    if not unknown and path in _VALUES:
        return where, _VALUES[path]
    return where, f"mend or remove the key; known are {', '.join(_VALUES)}"


def _keys(node: Any, above: str, lines: dict[str, int]) -> None:
    """The line of each key, by its path."""
    for key, value in getattr(node, "value", None) or () if getattr(node, "id", "") == "mapping" else ():
        name = f"{above}.{key.value}".strip(".") if isinstance(key.value, str) else above
        lines.setdefault(name, key.start_mark.line + 1)
        _keys(value, name, lines)
