"""Cuts from a message the one line that shows why it was found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

from .search_text import STRUCTURED, is_unspaced, plain_text

ELLIPSIS = "…"
_MAX_LITERALS = 32  # of a pasted page, these are enough to mark
_MAX_TRIES = 1000  # hits inside words, before a literal is taken wherever it stands
_CHUNK_CHARS = 4096
_FOLDED_CHARS = 65_536  # folding is dear: a longer text is searched as typed, its head folded
_MAX_CLUSTER_CHARS = 64  # longer than any emoji; who piles more marks on a letter may see it cut
_MAX_SNAP_CHARS = 15

# Line ends and other controls become spaces; so do those that turn the writing direction of a
# terminal's line.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_SPACES = re.compile("[ \u3000]{2,}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ACCENT = re.compile("[\u0300-\u036f]+")
_WORD = re.compile(r"[^\W_]+")


def snippet(
    text: str, literals: Sequence[str], *, width: int = 160, start: str = ">>>", end: str = "<<<"
) -> str:
    """One line of at most `width` characters around the first match, every literal in it marked.

    Markers and ellipses are not counted. A literal that does not stand there as typed is marked
    word by word. Letter case, Latin accents and full-width forms make no difference. Without a
    match it is the head of the text.
    """
    if text.startswith(STRUCTURED):
        text = plain_text(text)
    needles = [literal.strip() for literal in literals if literal.strip()][:_MAX_LITERALS]
    found = _first(text, needles)
    if found is None:
        words = [word for needle in needles for word in _WORD.findall(needle)]
        found = None if words == needles else _first(text, words[:_MAX_LITERALS])
    at = found or 0
    low, high = _boundary_before(text, max(0, at - 2 * width)), at + 4 * width
    line = _one_line(text[low:high])
    spans = [] if found is None else _spans(line, needles)
    near = len(_one_line(text[low:at]))
    nearest = min(spans, key=lambda span: abs(span[0] - near), default=(0, 0))
    first, last = _window(line, nearest, width)
    before = ELLIPSIS if (low or first) and (low or line[:first].strip()) else ""
    after = ELLIPSIS if high < len(text) or line[last:].strip() else ""
    return before + _marked(line, spans, first, last, start, end).strip() + after


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


def _first(text: str, needles: Sequence[str]) -> int | None:
    """Where the first needle stands in a text of any size.

    As typed but for case, in all of it; else with accents and widths folded, in the head of it.
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # a few capitals become two characters, and positions would shift
        lowered = text
    best: int | None = None
    for needle in needles:
        for form in {needle.lower(), _folded(needle)} - {""}:
            at = next(_occurrences(lowered, form, best), None)
            best = best if at is None else at
    if best is not None or text.isascii():
        return best
    return _first_folded(text[:_FOLDED_CHARS], needles)


def _first_folded(text: str, needles: Sequence[str]) -> int | None:
    folded = [form for needle in needles if (form := _folded(needle))]
    overlap = max(map(len, folded), default=0)
    for low in range(0, len(text), _CHUNK_CHARS):
        chunk = text[low : low + _CHUNK_CHARS + overlap]
        haystack = _folded(chunk)
        if any(form in haystack for form in folded):
            spans = _spans(chunk, needles)
            if spans:
                return low + spans[0][0]
    return None


def _occurrences(haystack: str, needle: str, stop: int | None = None) -> Iterator[int]:
    """Where the needle begins a word; if it nowhere does, where it stands at all."""
    positions, missed = 0, 0
    at = first = haystack.find(needle, 0, stop)
    while at >= 0:
        if _begins_word(haystack, at):
            positions += 1
            yield at
        elif (missed := missed + 1) > _MAX_TRIES:
            break
        at = haystack.find(needle, at + len(needle), stop)
    if not positions:
        while first >= 0:
            yield first
            first = haystack.find(needle, first + len(needle), stop)


def _begins_word(text: str, at: int) -> bool:
    if not at or not text[at].isalnum() or not text[at - 1].isalnum():
        return True
    return is_unspaced(text[at]) or is_unspaced(text[at - 1])


def _spans(line: str, needles: Sequence[str]) -> list[tuple[int, int]]:
    """Where the needles stand in a short text: in order, no overlaps, whole clusters each."""
    forms = [_folded_char(char) for char in line]
    haystack = "".join(forms)
    source = [index for index, form in enumerate(forms) for _ in form] + [len(line)]
    taken = bytearray(len(line))
    spans: list[tuple[int, int]] = []
    for needle in needles:
        hits = list(_hits(line, haystack, source, _folded(needle)))
        if not hits:
            hits = [
                hit for word in _WORD.findall(needle) for hit in _hits(line, haystack, source, _folded(word))
            ]
        for left, right in hits:
            if not any(taken[left:right]):
                taken[left:right] = b"\1" * (right - left)
                spans.append((left, right))
    return sorted(spans)


def _hits(line: str, haystack: str, source: Sequence[int], needle: str) -> Iterator[tuple[int, int]]:
    if not needle:
        return
    for at in _occurrences(haystack, needle):
        stop = at + len(needle)
        inside_left = at > 0 and source[at - 1] == source[at]
        inside_right = source[stop - 1] == source[stop]  # か in が, 가 in 각: another letter
        if not inside_left and not inside_right:
            yield _boundary_before(line, source[at]), _boundary_after(line, source[stop - 1] + 1)


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return _ACCENT.sub("", unicodedata.normalize("NFKD", text).casefold())


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
