"""Cuts from a message the one line that shows why it was found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from .search_text import IGNORABLE, STRUCTURED, UNSPACED, plain_text

ELLIPSIS = "…"
_MAX_LITERALS = 32  # of a pasted page, these are enough to mark
_CHUNK_CHARS = 4096
_FOLDED_CHARS = 65_536  # folding is dear: a longer text is searched as typed, its head folded
_MAX_CLUSTER_CHARS = 64  # longer than any emoji; who piles more marks on a letter may see it cut
_MAX_SNAP_CHARS = 15

# Line ends and other controls become spaces; so do those that turn the writing direction of a
# terminal's line.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_SPACES = re.compile("[ \u3000]{2,}")
_SURROGATE = re.compile("[\ud800-\udfff]")

# The index's tokens: words, and runs of a script without spaces, of which it knows every part.
# What it leaves out of a word is left out of a folded text, and parts no word in one that is not.
_VOICED = "\u3099\u309a"  # they make another letter of the one before
_UNSEEN = f"\u0300-\u036f{IGNORABLE.replace(_VOICED, '')}"
_FOLDED_AWAY = re.compile(f"[{_UNSEEN}]+")
_TOKEN = re.compile(f"(?P<run>[{UNSPACED}{_VOICED}]+)|[^\\W_{UNSPACED}]+")
_IN_WORD = f"(?:[^\\W_{UNSPACED}]|[{_UNSEEN}])"
_BETWEEN = f"(?:_|[^\\w{_UNSEEN}{_VOICED}])"


class _Needle(NamedTuple):
    """A literal in lower case, folded or not, as it is looked for in a text of that kind.

    `pattern` finds its tokens one after the other; `head` and `tail` is what the literal has around
    them, marked where it stands there, too. A literal without a token is its own pattern.
    """

    size: int
    first: str
    pattern: re.Pattern[str]
    head: str = ""
    tail: str = ""


class _Literal(NamedTuple):
    typed: _Needle
    folded: _Needle


def cut(
    text: str,
    literals: Sequence[str],
    *,
    beginnings: Collection[str] = (),
    as_it_stands: bool = False,
    width: int = 160,
    marks: tuple[str, str] = (">>>", "<<<"),
) -> tuple[str, bool]:
    """One line of at most `width` characters around the first match, and whether there is one.

    Every literal in the line is marked. What is marked is what the index finds: whole words, one
    after the other where a literal holds several, whatever separates them; letter case, accents and
    full-width forms make no difference. Marks and ellipses are not counted. Without a match it is
    the head of the text.

    Args:
        beginnings: the literals that may go on as a longer word.
        as_it_stands: literals that are nowhere there as words are marked wherever they stand.
    """
    if text.startswith(STRUCTURED):
        text = plain_text(text)
    chosen = [each for each in literals if each.strip()][:_MAX_LITERALS]
    needles = [_literal(each.strip(), each in beginnings) for each in chosen]
    found = _first(text, needles)
    if found is None and as_it_stands:
        needles = [_standing(each.strip()) for each in chosen]
        found = _first(text, needles)
    at = found or 0
    low, high = _boundary_before(text, max(0, at - 2 * width)), at + 4 * width
    line = _one_line(text[low:high])
    spans = [] if found is None else _spans(line, needles, cut=(low > 0, high < len(text)))
    near = len(_one_line(text[low:at]))
    nearest = min(spans, key=lambda span: abs(span[0] - near), default=(0, 0))
    first, last = _window(line, nearest, width)
    before = ELLIPSIS if (low or first) and (low or line[:first].strip()) else ""
    after = ELLIPSIS if high < len(text) or line[last:].strip() else ""
    return before + _marked(line, spans, first, last, *marks).strip() + after, found is not None


def _one_line(text: str) -> str:
    return _SPACES.sub(" ", _SURROGATE.sub("\ufffd", _CONTROL.sub(" ", text)))


def _marked(line: str, spans: Sequence[tuple[int, int]], first: int, last: int, start: str, end: str) -> str:
    pieces, done = [], first
    for left, right in spans:
        left, right = max(left, first), min(right, last)
        if left < right:
            pieces += [line[done:left], start, line[left:right], end]
            done = right
    return "".join([*pieces, line[done:last]])


def _window(line: str, span: tuple[int, int], width: int) -> tuple[int, int]:
    """Where to cut the line: a third of the room before the span, words and clusters left whole."""
    left, right = span
    room = max(0, width - (right - left))
    first = max(0, min(left - room // 3, len(line) - width)) if room else left
    last = min(len(line), first + width)
    if 0 < first < left and not line[first - 1].isspace():
        space = line.find(" ", first, min(left, first + _MAX_SNAP_CHARS))
        first = first if space < 0 else space + 1
    while first < left and not _is_boundary(line, first):
        first += 1
    back = _boundary_before(line, last)
    return first, back if back > first else last


# --- finding --------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _literal(text: str, begins: bool) -> _Literal:
    return _Literal(_needle(text.lower(), begins), _needle(_folded(text), begins))


@lru_cache(maxsize=256)
def _standing(text: str) -> _Literal:
    return _Literal(_sign(text.lower()), _sign(_folded(text)))


def _sign(form: str) -> _Needle:
    return _Needle(len(form), form, re.compile(re.escape(form)))


def _needle(form: str, begins: bool) -> _Needle:
    tokens = list(_TOKEN.finditer(form))
    if not tokens:
        return _sign(form)
    first, last = tokens[0], tokens[-1]
    # The word itself stands first in the pattern, which re then finds as fast as any string.
    parts = [re.escape(first[0])]
    if not first["run"]:
        parts.append(f"(?<!{_IN_WORD}{parts[0]})")
    for before, token in pairwise(tokens):
        touching = bool(before["run"]) != bool(token["run"])
        parts.append(f"{_BETWEEN}{'*' if touching else '+'}{re.escape(token[0])}")
    if last["run"]:
        parts.append(f"(?![{_VOICED}])")
    elif not begins:
        parts.append(f"(?!{_IN_WORD})")
    pattern = re.compile("".join(parts))
    return _Needle(len(form), first[0], pattern, form[: first.start()], form[last.end() :])


def _first(text: str, literals: Sequence[_Literal]) -> int | None:
    """Where the first literal stands in a text of any size.

    As typed but for case, in all of it; else with accents and widths folded, in the head of it.
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # a few capitals become two characters, and positions would shift
        lowered = text
    best: int | None = None
    for literal in literals:
        for needle in dict.fromkeys(literal):
            span = next(_occurrences(lowered, needle, best), None)
            best = best if span is None else span[0]
    if best is not None or text.isascii():
        return best
    return _first_folded(text, literals)


def _first_folded(text: str, literals: Sequence[_Literal]) -> int | None:
    needles = [literal.folded for literal in literals]
    overlap = _CHUNK_CHARS // 16 + max((needle.size for needle in needles), default=0)
    for low in range(0, min(len(text), _FOLDED_CHARS), _CHUNK_CHARS):
        begin, stop = max(0, low - _MAX_CLUSTER_CHARS), low + _CHUNK_CHARS + overlap
        chunk = text[begin:stop]
        haystack = _folded(chunk)
        if any(needle.first and needle.first in haystack for needle in needles):
            spans = _spans(chunk, literals, cut=(begin > 0, stop < len(text)))
            if spans:
                return begin + spans[0][0]
    return None


def _occurrences(haystack: str, needle: _Needle, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """Where the needle stands, from left to right; only what begins before `stop`."""
    if not needle.first or haystack.find(needle.first, 0, stop) < 0:
        return
    for found in needle.pattern.finditer(haystack):
        left, right = found.span()
        if stop is not None and left >= stop:
            return
        if needle.head and haystack.endswith(needle.head, 0, left):
            left -= len(needle.head)
        if needle.tail and haystack.startswith(needle.tail, right):
            right += len(needle.tail)
        yield left, right


def _spans(line: str, literals: Sequence[_Literal], *, cut: tuple[bool, bool]) -> list[tuple[int, int]]:
    """Where the literals stand in a short text: in order, no overlaps, whole clusters each.

    Nothing at an end where the line was cut off: what is left of a word there is no word.
    """
    least, most = int(cut[0]), len(line) - cut[1]
    haystack, source = _folded_line(line)
    taken = bytearray(len(line))
    spans: list[tuple[int, int]] = []
    for literal in literals:
        for left, right in _hits(line, haystack, source, literal.folded):
            if least <= left and right <= most and not any(taken[left:right]):
                taken[left:right] = b"\1" * (right - left)
                spans.append((left, right))
    return sorted(spans)


def _folded_line(line: str) -> tuple[str, Sequence[int]]:
    """A text folded, and for each of its characters where it comes from."""
    if line.isascii():
        return line.lower(), range(len(line) + 1)
    forms = [_folded_char(char) for char in line]
    return "".join(forms), [index for index, form in enumerate(forms) for _ in form] + [len(line)]


def _hits(line: str, haystack: str, source: Sequence[int], needle: _Needle) -> Iterator[tuple[int, int]]:
    for at, stop in _occurrences(haystack, needle):
        inside_left = at > 0 and source[at - 1] == source[at]
        inside_right = source[stop - 1] == source[stop]  # か in が, 가 in 각: another letter
        if not inside_left and not inside_right:
            yield _boundary_before(line, source[at]), _boundary_after(line, source[stop - 1] + 1)


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFKD", text).replace("ẞ", "ß").split("ß")
    return _FOLDED_AWAY.sub("", "ß".join(part.casefold() for part in parts))  # to the index it is no ss


@lru_cache(maxsize=4096)
def _folded_char(char: str) -> str:
    return _folded(char)


# --- clusters: what a reader takes for one character ----------------------------------------------


def _boundary_before(text: str, at: int) -> int:
    for back in range(at, max(-1, at - _MAX_CLUSTER_CHARS), -1):
        if _is_boundary(text, back):
            return back
    return at


def _boundary_after(text: str, at: int) -> int:
    for ahead in range(at, at + _MAX_CLUSTER_CHARS):
        if _is_boundary(text, ahead):
            return ahead
    return at


def _is_boundary(text: str, at: int) -> bool:
    """Whether text may be cut before `at`: of UAX #29, what marks, emoji, flags and jamo need."""
    if at <= 0 or at >= len(text):
        return True
    left, right = text[at - 1], text[at]
    if left.isascii() and right.isascii():
        return True
    if right == "\u200d" or left == "\u200d" or "\U0001f3fb" <= right <= "\U0001f3ff":
        return False
    if "\U000e0020" <= right <= "\U000e007f" or "\u1160" <= right <= "\u11ff":
        return False
    if _is_flag(left) and _is_flag(right):
        start = at - 1
        while start and at - start < _MAX_CLUSTER_CHARS and _is_flag(text[start - 1]):
            start -= 1
        return (at - start) % 2 == 0
    return not unicodedata.category(right).startswith("M")


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"
