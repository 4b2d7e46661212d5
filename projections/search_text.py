"""What a message tells the search index, so that stock `unicode61` finds every word in it.

The index keeps no copy of the text, so a row leaves it only by being told again what it was told.
Everything here is therefore a pure function of the message: the text of the delete is the text of
the insert, computed again. Any change to what these functions return is a new version of the fold.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from array import array
from collections.abc import Iterator

from ..domain.message import STRUCTURED as STRUCTURED

# Frozen ranges, not categories of `unicodedata`: those differ between Python versions, and what an
# older Python told the index a newer one must be able to take back. Letters only: a mark is no
# token of unicode61 (see _IGNORED).
UNSPACED = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"  # signs that stand for or with Han
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # Han
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"  # Kana
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"  # Hangul
    "\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46"  # Thai
    "\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf"  # Lao
    "\u1780-\u17b3\u17d7\u17dc"  # Khmer
    "\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070"  # Myanmar
    "\u1075-\u1081\u108e"
    "\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a\uaa7e\uaa7f"  # Myanmar, extended
)
_RUN = re.compile(f"[{UNSPACED}]+")
_RUNS = re.compile(f"([{UNSPACED}]+)")
_ENDING = re.compile(f"(?P<pair>[{UNSPACED}]{{2}} )?(?P<single>[{UNSPACED}])[\\W_]*$")

# Invisible characters that split a word for unicode61 but for no reader, and the vowel, tone and
# voicing marks of the scripts above, which it would take for spaces. Thai is thus searched by its
# letters, as Latin without accents.
IGNORABLE = (
    "\u00ad\u200b-\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef\u3099\u309a"
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u17b4-\u17d3\u17dd"
    "\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f"
    "\u109a-\u109d\uaa7b-\uaa7d"
)
_IGNORED = re.compile(f"[{IGNORABLE}]+")

# unicode61 knows Unicode 6.1 and takes what came later for letters: a newer emoji or currency sign
# would be glued to the word beside it. Lone surrogates cannot be written to SQLite at all.
_SEPARATORS = (
    "\0\u061c\u2000-\u206f\u20a0-\u20cf\u2190-\u2bff\u2e00-\u2e7f\ud800-\udfff"
    "\U0001f000-\U0001fbef\U000e0000-\U000e007f"
)
_SEPARATING = re.compile(f"[{_SEPARATORS}]+")
_SPLITTING = re.compile(f"[{IGNORABLE}{_SEPARATORS}]")

# NFKC makes the same of them, one character at a time and of all that stands around; most text in
# Chinese and Japanese holds nothing else that it would change.
_WIDE = tuple(zip("，：；！？（）", ",:;!?()", strict=True))

# A word character that unicode61 takes for one, too; all of `\w` but these few (tried over all code
# points).
_INDEXABLE = re.compile("[^\\W_\u19b0-\u19c9\u1cf2\u1cf3]")

_decode_calls = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).decode
_LETTER_ESCAPE = re.compile(r"\\[bfnrtu]")
_FEW_SIGNS = 12
_ASCII = bytes(range(128))
_UTF_32 = f"utf-32-{sys.byteorder[0]}e"
_SPACE = array("I", [ord(" ")])
_UNBROKEN_CHARS = 256  # a longer string without a space is an encoded file, nothing anybody said


def indexed_text(
    content: str | bytes | None, tool_name: str | bytes | None, tool_calls: str | bytes | None
) -> str:
    """The text told to the index when this message enters it, and told again when it leaves."""
    if (
        type(content) is str
        and not tool_name
        and not tool_calls
        and content.isascii()
        and "\0" not in content
    ):
        return content  # as `plain_text` and `prepare` would leave it: most messages
    text = plain_text(content)
    if tool_name:
        text = f"{text} {_as_text(tool_name)}"
    if tool_calls:
        text = f"{text} {unescaped(_as_text(tool_calls))}"
    return prepare(text)


def _as_text(value: str | bytes) -> str:
    """A source may hold bytes where text should be."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def plain_text(content: str | bytes | None) -> str:
    """What a person reads in a content value: the text parts of a structured one, else all."""
    if content is None:
        return ""
    text = _as_text(content)
    if not text.startswith(STRUCTURED):
        return text
    try:
        # Not msgspec: Python's json.dumps writes lone surrogates and NaN, and only its own reader
        # takes them back.
        parts = json.loads(text[len(STRUCTURED) :])
    except (ValueError, RecursionError):
        return text
    said = [value for key, value in _strings(parts) if key == "text"]
    return "\n".join(said or (value for _, value in _strings(parts) if not _is_encoded(value)))


def prepare(text: str) -> str:
    """Rewrite `text` so that unicode61 makes findable words of it.

    A run in a script without spaces becomes its overlapping pairs and its last character alone, set
    off from what stands beside it: any part of two or more characters is a phrase of pairs, any
    single one a prefix.
    ASCII comes back as it is, but for NULs.
    """
    if text.isascii():
        return text.replace("\0", " ") if "\0" in text else text
    for wide, narrow in _WIDE:
        if wide in text:
            text = text.replace(wide, narrow)
    text = unicodedata.normalize("NFKC", text)
    # Most of most text is ASCII: what is not is looked at without it, a tenth of the time.
    rest = text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")
    text = _split(text, set(_SPLITTING.findall(rest)))
    return _paired(text) if _RUN.search(rest) else text


def _split(text: str, signs: set[str]) -> str:
    """`text` with these signs, all that it holds of their kinds, left out or made spaces."""
    if "\0" in text:
        signs.add("\0")
    if len(signs) > _FEW_SIGNS:
        return _SEPARATING.sub(" ", _IGNORED.sub("", text))
    for sign in signs:
        text = text.replace(sign, "" if _IGNORED.match(sign) else " ")
    return text


def is_indexable(prepared: str) -> bool:
    """Whether unicode61 finds at least one token in a prepared text."""
    return _INDEXABLE.search(prepared) is not None


def ends_indexable(prepared: str) -> bool:
    """Whether the last character belongs to a token: `*` right after it means "begins with"."""
    return _INDEXABLE.match(prepared[-1:]) is not None


def open_end(prepared: str) -> tuple[str, bool]:
    """A prepared term as it stands inside a longer run, and whether it is a prefix there.

    The single character that closes a run in the index is there only where the run ends; a term
    that ends in a run leaves it out. Where it is all there is of the run, it is a prefix of the
    pair that begins with it.
    """
    last = _ENDING.search(prepared)
    if last is None:
        return prepared, False
    if last["pair"]:
        return prepared[: last.start("single")].rstrip(), False
    return prepared[: last.end("single")], True


def _paired(text: str) -> str:
    """`text` with each run as its overlapping pairs and its last character, spaces before and after.

    All runs at once, with a NUL after each: every third place is a space, every next a character, every
    third the one after it. Run by run takes twice the time.
    """
    parts = _RUNS.split(text)  # what stands between runs, and every second time a run
    runs = parts[1::2]
    points = array("I", ("\0".join(runs) + "\0").encode(_UTF_32))
    placed = _SPACE * (3 * len(points) - 3)
    placed[1::3] = points[:-1]
    placed[2::3] = points[1:]
    pairs = placed.tobytes().decode(_UTF_32)[:-1].split("\0 \0")
    parts[1::2] = [f"{each} " for each in (pairs[0], *(each[1:] for each in pairs[1:]))]
    return "".join(parts)


def _strings(value: object) -> Iterator[tuple[str, str]]:
    """Every string in a JSON value with the key it stands under ("" for none), in reading order."""
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        key, item = waiting.pop()
        if isinstance(item, str):
            yield key, item
        elif isinstance(item, list):
            waiting.extend((key, part) for part in reversed(item))
        elif isinstance(item, dict):
            waiting.extend(reversed(item.items()))


def _is_encoded(value: str) -> bool:
    return value.startswith("data:") or (
        len(value) > _UNBROKEN_CHARS and value.isascii() and " " not in value
    )


def unescaped(tool_calls: str) -> str:
    r"""Tool calls without JSON's escapes, which hide words: `\n` glues an n to the next one.

    Quotes and braces are no tokens, so where nothing is escaped the raw text already says the same.
    """
    if not _LETTER_ESCAPE.search(tool_calls):
        return tool_calls
    words = _json_words(tool_calls)
    return tool_calls if words is None else " ".join(words)


def _json_words(text: str) -> list[str] | None:
    """Keys and values of a JSON text in reading order, those of JSON in its strings too."""
    try:
        value = _decode_calls(text)
    except (ValueError, RecursionError):
        return None
    words: list[str] = []
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            # Arguments are JSON in a string; so is, at times, what stands in them.
            inner = _json_words(item) if item[:1] in ("{", "[") else None
            words.extend([item] if inner is None else inner)
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, dict):
            waiting.extend(part for key, value in reversed(item.items()) for part in (value, key))
        else:
            words.append(json.dumps(item))
    return words
