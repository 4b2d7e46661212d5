"""The rules of what counts as a secret: ours, and those of a file that a user adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from ...domain.errors import BadConfig

OURS: Final = Path(__file__).with_name("rules.yaml")
NAME: Final = "redaction.yaml"
"""The file of a home's own rules, where the configuration names no other."""
_LONGEST: Final = 4096
_MEMORY: Final = 64 << 20
"""Bytes that the compiled form of a pattern may take: enough for all of them at once."""


class Found(Protocol):
    """A match, as RE2 gives it for bytes."""

    @property
    def lastindex(self) -> int | None:
        """The last group that took part."""
        ...

    def span(self, group: int) -> tuple[int, int]:
        """Where it stands."""
        ...


class Pattern(Protocol):
    """A compiled pattern of RE2, whose package has no types."""

    def search(self, text: bytes) -> Found | None:
        """The first match."""
        ...

    def fullmatch(self, text: bytes) -> Found | None:
        """The match that is all of the text."""
        ...

    def finditer(self, text: bytes) -> Iterator[Found]:
        """Every match."""
        ...


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of secret; rules.yaml says what the fields mean."""

    name: str
    pattern: str
    whole: bool = False
    mixed: bool = False
    value: bool = False
    plain: bool = False
    mask: str = "ends"
    unless: str | None = None
    examples: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rules.

    Attributes:
        parts: what stands in patterns as {{name}}. without: names of rules that are switched off.
        allow: texts that are never masked, as they stand.
    """

    rules: tuple[Rule, ...] = ()
    parts: dict[str, str] = {}
    without: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()


class Compiled(msgspec.Struct, frozen=True):
    """A rule that can be asked."""

    rule: Rule
    pattern: Pattern
    unless: Pattern | None


class Rules(msgspec.Struct, frozen=True):
    """All rules that go for an export; `any_of` finds a text in which one of them may find something."""

    each: tuple[Compiled, ...]
    any_of: Pattern
    allow: frozenset[str]
    without: frozenset[str]
    names: Pattern
    """What a field is called that holds a secret."""

    def is_name(self, name: str) -> bool:
        """Whether a field of this name holds a secret."""
        return self.names.fullmatch(name.encode(errors="replace")) is not None


def load_rules(own: Path | None) -> Rules:
    """Ours, and those of the user's file where one is named; a rule of the same name replaces ours.

    Raises:
        BadConfig: a file that cannot be read, or holds no rules in this form; it names the rule.
    """
    ours, theirs = _read(OURS), File() if own is None else _read(own)
    at = OURS if own is None else own
    known = {each.name: each for each in _spelled_out(ours)}
    added = {each.name: each for each in _spelled_out(theirs, ours.parts)}
    without = frozenset(theirs.without)
    rules = [each for name, each in {**known, **added}.items() if name not in without]
    compiled = tuple(_compiled(each, at if each.name in added else OURS) for each in rules)
    every = "|".join(f"(?:{each.pattern})" for each in rules) or r"[^\x00-\x{10FFFF}]"
    return Rules(
        compiled,
        _pattern(every, no_groups=True),
        frozenset(theirs.allow),
        without,
        _pattern("(?i)" + {**ours.parts, **theirs.parts}["key"].strip(), no_groups=True),
    )


def _spelled_out(file: File, more: dict[str, str] | None = None) -> Iterator[Rule]:
    parts = {**(more or {}), **file.parts}
    for rule in file.rules:
        pattern = rule.pattern
        for name, part in parts.items():
            pattern = pattern.replace("{{" + name + "}}", part.strip())
        yield msgspec.structs.replace(rule, pattern=pattern)


def _compiled(rule: Rule, path: Path) -> Compiled:
    import re2  # type: ignore[import-untyped] # it has no types: see Pattern

    try:
        if len(rule.pattern) > _LONGEST:
            raise re2.error(f"it is longer than {_LONGEST} characters")
        found = _pattern(rule.pattern)
        unless = None if rule.unless is None else _pattern(rule.unless)
    except re2.error as error:
        raise BadConfig(
            f"{path}: rule `{rule.name}`: {_words(error)}", hint="mend the pattern; its form is that of RE2"
        ) from error
    if found.search(b"") is not None:
        raise BadConfig(
            f"{path}: rule `{rule.name}`: its pattern finds the empty text", hint="mend the pattern"
        )
    return Compiled(rule, found, unless)


def _pattern(pattern: str, *, no_groups: bool = False) -> Pattern:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    options.never_capture = no_groups
    compiled: Pattern = re2.compile(pattern.encode(), options)
    return compiled


def _words(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _read(path: Path) -> File:
    import yaml

    try:
        value: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} cannot be read: {error}", hint="mend or remove the file") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}"
        problem = getattr(error, "problem", None) or "it is no YAML"
        raise BadConfig(f"{path}{where}: {problem}", hint="mend the line") from error
    try:
        file = msgspec.convert({} if value is None else value, File)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadConfig(
            f"{path}: {_named(value, str(error))}", hint="docs/redaction.md says what stands there"
        ) from error
    _refuse_twice(path, file.rules)
    return file


def _named(value: Any, problem: str) -> str:
    """The message with the name of the rule that it is about, where it has one."""
    rules = value.get("rules") if isinstance(value, dict) else None
    for at, rule in enumerate(rules if isinstance(rules, list) else ()):
        try:
            msgspec.convert(rule, Rule)
        except msgspec.ValidationError as error:
            name = rule.get("name") if isinstance(rule, dict) else None
            return f"rule `{name or at + 1}`: {error}"
    return problem


def _refuse_twice(path: Path, rules: Iterable[Rule]) -> None:
    seen = set[str]()
    for rule in rules:
        if rule.name in seen:
            raise BadConfig(f"{path}: rule `{rule.name}` stands there twice", hint="keep one of them")
        seen.add(rule.name)
