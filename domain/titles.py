"""Titles that people and models give: how they are cleaned, cut, numbered and matched."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from .errors import BadTitle

MAX_TITLE: Final = 100

_ZWJ: Final = "\u200d"
# A place where words part, though nothing is seen: becomes a space.
_UNSEEN_SPACE: Final = re.compile("[\u200b\u200c\u180e\u3164\uffa0]")
# Bidirectional marks and overrides, joiners, byte order mark, annotations, soft hyphen: go.
_UNSEEN: Final = re.compile("[\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffc]")
_CONTROL: Final = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NUMBERED: Final = re.compile(r"(?P<base>.*\S) #(?P<number>[0-9]{1,18})\Z", re.DOTALL)
_QUOTES: Final = "\"'`*\u201c\u201d\u2018\u2019\u00ab\u00bb\u300c\u300d"
_LABEL: Final = re.compile(r"\Atitle\s*:\s*", re.IGNORECASE)
# Kept where an emoji needs it, yet nothing to read when it stands alone.
_BLANK: Final = re.compile("[\ufe00-\ufe0f\u2800\U000e0000-\U000e0fff\u200d\\s]*\\Z")


def clean_title(text: str) -> str:
    """A title given by a person, fit to be stored.

    Raises:
        BadTitle: nothing to read is left, or it is over 100 characters (never cut: it is theirs).
    """
    title = _cleaned(text)
    if len(title) > MAX_TITLE:
        raise BadTitle(
            f"Title too long ({len(title)} characters, max {MAX_TITLE})",
            hint="give a shorter title",
        )
    return title


def cut_title(text: str, limit: int = MAX_TITLE) -> str:
    """A title that a program made, cleaned and cut where a character as people see it ends.

    Raises:
        BadTitle: nothing to read is left.
    """
    return _cut(_cleaned(text), limit)


def made_title(text: str) -> str:
    """A title that a model made: without the quotes and the `Title:` that models put around it, cut to fit.

    Raises:
        BadTitle: nothing to read is left.
    """
    bare = text.strip()
    while (stripped := _LABEL.sub("", bare.strip().strip(_QUOTES)).strip()) != bare:
        bare = stripped
    return cut_title(bare)


def composed(text: str) -> str:
    """The text as titles are compared: what is written in one character or in several is the same."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def spellings(title: str) -> list[str]:
    """The title as it is given, and as it may be written otherwise: stores keep it as it came."""
    return list(dict.fromkeys((title, composed(title), unicodedata.normalize("NFD", title))))


def base_of(title: str) -> str:
    """`plan` of `plan #3`; a title without a number is its own base."""
    found = _NUMBERED.match(title)
    return found["base"] if found else title


def lineage_number(title: str) -> int:
    """3 of `plan #3`; a title without a number is the first of its lineage."""
    found = _NUMBERED.match(title)
    return int(found["number"]) if found else 1


def lineage_matches(title: str, candidate: str) -> bool:
    """Whether `candidate` is `title` or a numbered one after it: `plan #2`, but not `plan #bar`.

    Only matched, never cleaned: an imported title is data.
    """
    if candidate == title:
        return True
    found = _NUMBERED.match(candidate)
    return found is not None and found["base"] == title


def next_in_lineage(title: str, taken: Iterable[str]) -> str:
    """The next free title of a lineage: `plan`, then `plan #2`, `plan #3` …

    A base too long to take the number is cut, so the answer is never over 100 characters.
    """
    base = base_of(title)
    known = set(taken)
    held = {other for other in known if lineage_matches(base, other)}
    if not held and len(base) <= MAX_TITLE:
        return base
    number = max((lineage_number(other) for other in held), default=1) + 1
    # A cut base is another lineage, whose numbers may be taken: count on until one is free.
    while True:
        suffix = f" #{number}"
        numbered = _cut(base, MAX_TITLE - len(suffix)) + suffix
        if numbered not in known:
            return numbered
        number += 1


def _cleaned(text: str) -> str:
    text = _SURROGATE.sub("\ufffd", text)
    text = _UNSEEN.sub("", _UNSEEN_SPACE.sub(" ", _CONTROL.sub("", text)))
    text = composed(" ".join(_joined(text).split()))
    if _BLANK.match(text):
        raise BadTitle("A title needs something to read", hint="give a title with visible characters")
    return text


def _joined(text: str) -> str:
    """Without the zero-width joiners that hold no emoji together."""
    kept = []
    for at, character in enumerate(text):
        if character == _ZWJ and not (
            at + 1 < len(text) and _ends_emoji(text[max(0, at - 4) : at]) and _is_pictured(text[at + 1])
        ):
            continue
        kept.append(character)
    return "".join(kept)


def _ends_emoji(before: str) -> bool:
    bare = before.rstrip("\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
    return bool(bare) and _is_pictured(bare[-1])


def _is_pictured(character: str) -> bool:
    # Arrows join heads ("shaking"), and some count as mathematics, not as pictures.
    return unicodedata.category(character) == "So" or character in "\u2194\u2195\u27a1"


def _cut(title: str, limit: int) -> str:
    if len(title) <= limit:
        return title
    at = limit
    while at > 0 and not _parts(title, at):
        at -= 1
    return title[: at or limit].rstrip()


def _parts(title: str, at: int) -> bool:
    """Whether a character as people see it ends just before `at`."""
    after, before = title[at], title[at - 1]
    if after == _ZWJ or before == _ZWJ or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return False
    if _is_flag(after) and _is_flag(before):  # flags are pairs: count back to where the run begins
        run = len(title[:at]) - len(title[:at].rstrip("".join(map(chr, range(0x1F1E6, 0x1F200)))))
        return run % 2 == 0
    # Jamo that are written apart make one syllable.
    return not ("\u1160" <= after <= "\u11ff" and "\u1100" <= before <= "\u11ff")


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
