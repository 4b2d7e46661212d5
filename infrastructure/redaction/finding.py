"""Where secrets stand in a text: by the rules file, and by betterleaks, which knows hundreds of kinds.

Both are linear in the text: RE2 is what Go's and Google's regular expressions are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from .masks import PRIVATE_KEY, STARS, is_harmless, is_mixed, masked, reads_as_code
from .rules import Compiled, Rules

_BESIDE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_ESCAPES: Final = frozenset(b"nrtbf")
_ALLOWED = re.compile(r"(leaks):(allow)", re.IGNORECASE)
"""With these words in a line betterleaks finds nothing in it: right in a repository, not here."""
_DIGEST = re.compile(rb"(?:h1|sha[0-9]{1,3})[:=-]$")
"""Before what lock files hold, which the rules of betterleaks that guess take for a key."""
_LEAST: Final = 4
"""Shorter values are masked only where they were found, not wherever they stand."""

_SHORT: Final = 80
_KEPT: Final = 2048
"""Of so many texts of so many characters it is kept what came of them."""

_PIECE: Final = 256 << 10
_OVERLAP: Final = 16 << 10
"""Bytes that betterleaks is given at once, and of those that it is given again with the next."""

Scan = Callable[[str], list[Any]]


class Span(NamedTuple):
    """A stretch of the text as UTF-8, what found it, and what is to stand there."""

    start: int
    end: int
    rule: str
    mask: str


class Finder:
    """Finds secrets in texts."""

    def __init__(self, rules: Rules) -> None:
        from betterleaks import scan_string

        self._rules = rules
        self._scan: Scan = scan_string
        self._masked_short = functools.lru_cache(_KEPT)(self._masked)

    def mask(self, text: str) -> tuple[str, list[str]]:
        """The text without its secrets, and the name of a rule for each that was in it.

        `text` holds no lone surrogates. Of short texts, which names of columns, roles and ids are in every
        row, the last ones are kept in memory with what came of them.
        """
        changed, rules = self._masked(text) if len(text) > _SHORT else self._masked_short(text)
        return changed, list(rules)

    def _masked(self, text: str) -> tuple[str, list[str]]:
        encoded = text.encode()
        spans = self._spans(encoded)
        if not spans:
            return text, []
        pieces, end = list[bytes](), 0
        for span in spans:
            value = encoded[span.start : span.end].decode(errors="replace")
            pieces += [encoded[end : span.start], masked(value, span.mask).encode()]
            end = span.end
        pieces.append(encoded[end:])
        return b"".join(pieces).decode(), [each.rule for each in spans]

    def _spans(self, encoded: bytes) -> list[Span]:
        spans = _apart(self.by_rules(encoded))
        return _apart([*spans, *self._by_betterleaks(_filled(encoded, spans))])

    # --- the rules file -------------------------------------------------------------------------------

    def by_rules(self, encoded: bytes) -> Iterator[Span]:
        """What the rules files find in a text as UTF-8."""
        if self._rules.any_of.search(encoded) is None:
            return
        for each in self._rules.each:
            if each.unless is not None and each.unless.search(encoded) is not None:
                continue
            for found in each.pattern.finditer(encoded):
                group = found.lastindex or 0
                start, end = found.span(group)
                if end > start and self._counts(each, encoded, start, end):
                    yield Span(start, end, each.rule.name, each.rule.mask)

    def _counts(self, each: Compiled, encoded: bytes, start: int, end: int) -> bool:
        rule = each.rule
        if rule.whole and not _stands_alone(encoded, start, end):
            return False
        value = encoded[start:end].decode(errors="replace")
        if value in self._rules.allow:
            return False
        if (rule.mixed or rule.plain) and not is_mixed(value):
            return False
        if rule.value and is_harmless(value):
            return False
        return not (rule.plain and reads_as_code(value))

    # --- betterleaks ----------------------------------------------------------------------------------

    def _by_betterleaks(self, encoded: bytes) -> Iterator[Span]:
        for start, end in _pieces(len(encoded)):
            piece = encoded[start:end].replace(b"\0", b" ")  # it takes a C string, which a NUL would end
            text = piece.decode(errors="ignore")
            found = {str(each.secret): str(each.rule_id) for each in self._scan(_ALLOWED.sub(r"\1_\2", text))}
            for value, rule in found.items():
                if self._is_meant(rule, value):
                    where = list(_wherever(piece, value.encode()))
                    if not where:
                        raise LookupError(f"{rule} found what does not stand in the text")
                    if rule.startswith("generic"):
                        where = [
                            each for each in where if not _DIGEST.search(piece[max(0, each[0] - 8) : each[0]])
                        ]
                    mask = PRIVATE_KEY if "PRIVATE KEY" in value else "ends"
                    yield from (Span(start + at, start + to, rule, mask) for at, to in where)

    def _is_meant(self, rule: str, value: str) -> bool:
        if rule in self._rules.without or value in self._rules.allow:
            return False
        if rule.startswith("generic") and (is_harmless(value) or self._rules.is_name(value)):
            return False  # such as password=db_password
        return value.count("*") * 2 < len(value)  # else a rule of ours has it: only what is secret of it


def _filled(encoded: bytes, spans: list[Span]) -> bytes:
    """The text with stars where secrets stood, so that none is looked at twice: each takes its time."""
    if not spans:
        return encoded
    filled = bytearray(encoded)
    for span in spans:
        filled[span.start : span.end] = b"*" * (span.end - span.start)
    return bytes(filled)


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    """Stretches that overlap: what is found is looked for again in the stretch that it stands in."""
    start = 0
    while start + _PIECE < size:
        yield start, start + _PIECE
        start += _PIECE - _OVERLAP
    yield start, size


def _wherever(text: bytes, wanted: bytes) -> Iterator[tuple[int, int]]:
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        yield at, at + len(wanted)
        if len(wanted) < _LEAST:
            return
        at = text.find(wanted, at + len(wanted))


def _stands_alone(encoded: bytes, start: int, end: int) -> bool:
    before = start == 0 or encoded[start - 1] not in _BESIDE
    if not before and start > 1:  # the n of a line end that is escaped
        before = encoded[start - 2] == 0x5C and encoded[start - 1] in _ESCAPES
    return before and (end == len(encoded) or encoded[end] not in _BESIDE)


def _apart(spans: Iterable[Span]) -> list[Span]:
    """In order, none over another: what overlaps is masked as one."""
    apart = list[Span]()
    for span in sorted(spans, key=lambda each: (each.start, -each.end)):
        if not apart or span.start >= apart[-1].end:
            apart.append(span)
        elif span.end > apart[-1].end:
            last = apart[-1]
            mask = last.mask if last.mask not in ("ends", "phone") else STARS
            apart[-1] = Span(last.start, span.end, last.rule, mask)
    return apart
