"""A change of rows that masks secrets in every string of them, at any depth and in names, and notes where."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from ...domain.errors import RedactionFailed
from ...domain.text import scrub
from .finding import Finder
from .masks import is_harmless, is_mixed, masked
from .rules import NAME, load_rules

Fields = dict[str, Any]
MODULES: Final = ("betterleaks", "re2")
"""What the extra `redact` brings."""
_NAMED: Final = "named-value"
_PASSWORDS: Final = ("password", "passwd", "passphrase", "passwort", "pwd")
_DEEPEST: Final = 200


class Masked(msgspec.Struct, frozen=True):
    """What was masked, and never the secret itself.

    Attributes:
        message: None for a column of the session. field: the path to it, as tool_calls[0].function.arguments.
        rule: of rules.yaml, of a file of the user's, or of betterleaks.
    """

    session: str
    message: int | str | None
    field: str
    rule: str
    count: int


class Redactor:
    """A change of rows, for one export; `report` says what it did.

    Raises:
        RedactionFailed: something could not be looked through; nothing of it may leave.
    """

    def __init__(self, home: Path, own: str | None = None, *, what: str = "content") -> None:
        path = home / (NAME if own is None else Path(own).expanduser())
        rules = load_rules(path if own is not None or path.exists() else None)
        self._finder = Finder(rules)
        self._is_secret = rules.is_name
        self._what = what
        self._found: dict[tuple[str, int | str | None, str, str], int] = {}

    @property
    def report(self) -> list[Masked]:
        """What was masked, in the order in which it was met."""
        return [Masked(*where, count) for where, count in self._found.items()]

    def __call__(self, kind: Literal["session", "message"], fields: Fields) -> Fields:
        """The row without its secrets; the row itself is left as it is."""
        walk = _Walk(self._finder, self._is_secret)
        try:
            changed: Fields = walk.value(fields, "", 0)
        except Exception as error:  # whatever it is: what was not looked through stays here
            raise RedactionFailed(*_whose(kind, fields), self._what) from error
        whose = _whose(kind, changed)
        for (field, rule), count in walk.found.items():
            self._found[(*whose, field, rule)] = count
        return changed


def _whose(kind: str, fields: Fields) -> tuple[str, int | str | None]:
    if kind == "session":
        return str(fields.get("id")), None
    number = fields.get("id")
    return str(fields.get("session_id")), number if isinstance(number, int) else str(number)


class _Walk:
    """One row."""

    def __init__(self, finder: Finder, is_secret: Any) -> None:
        self._finder = finder
        self._is_secret = is_secret
        self.found = Counter[tuple[str, str]]()

    def value(self, value: Any, path: str, depth: int) -> Any:
        """The value without secrets; the same object where there were none in it."""
        if depth > _DEEPEST:
            raise RecursionError("nested too deep")
        match value:
            case str():
                return self._text(value, path, depth)
            case dict():
                return self._mapping(value, path, depth)
            case list() | tuple():
                return [self.value(each, f"{path}[{at}]", depth + 1) for at, each in enumerate(value)]
            case bytes():
                return self._text(value.decode("latin-1"), path, depth).encode("latin-1", "replace")
            case None | bool() | int() | float():
                return value
            case _:
                raise TypeError(f"a {type(value).__name__} cannot be looked through")

    def _mapping(self, value: dict[Any, Any], path: str, depth: int) -> dict[Any, Any]:
        changed: dict[Any, Any] = {}
        for key, each in value.items():
            name = self._plain(key, f"{path}.(name)".lstrip(".")) if isinstance(key, str) else key
            while name in changed:  # two names that were secrets
                name += "*"
            inner = f"{path}.{name}".lstrip(".")
            if isinstance(each, str) and isinstance(key, str) and self._is_value(key, each):
                self.found[inner, _NAMED] += 1
                changed[name] = masked(each, "ends")
            else:
                changed[name] = self.value(each, inner, depth + 1)
        return changed

    def _is_value(self, key: str, value: str) -> bool:
        """Whether it is what a name like `password` is for."""
        if not value or not self._is_secret(key) or is_harmless(value):
            return False
        return key.lower().endswith(_PASSWORDS) or (is_mixed(value) and " " not in value)

    def _text(self, text: str, path: str, depth: int) -> str:
        """A text, and what is in it where it is JSON: an escape hides nothing."""
        inner = _decoded(text)
        if inner is not None:
            before = self.found.total()
            changed = self.value(inner, path, depth + 1)
            if self.found.total() > before:
                gaps = (", ", ": ") if '": ' in text else (",", ":")
                text = json.dumps(changed, ensure_ascii=False, separators=gaps)
        return self._plain(text, path)

    def _plain(self, text: str, path: str) -> str:
        if not text:
            return text
        changed, rules = self._finder.mask(scrub(text)[0])
        for rule in rules:
            self.found[path, rule] += 1
        return changed if rules else text


def _decoded(text: str) -> Any:
    """The object or list that a text is as JSON, else None."""
    if text[:1] not in ("{", "[", " ", "\n") or text.rstrip()[-1:] not in ("}", "]"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
