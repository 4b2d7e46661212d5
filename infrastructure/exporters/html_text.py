"""Text as HTML in which nothing runs: escaped, or Markdown of which only known tags are written."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST_MARKDOWN: Final = 32_768
"""Characters up to which a text is read as Markdown: its reader takes longer than linear for hostile ones."""
_BREAKS: Final = dict.fromkeys(("\r", "\x85", "\u2028", "\u2029"), "\n")
_PICTURES: Final = {chr(code): chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"}
_NO_TEXT: Final = {chr(code): "\ufffd" for code in (*range(0x80, 0x85), *range(0x86, 0xA0))}
_TURNING: Final = dict.fromkeys(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))), "")
_SHOWN: Final = str.maketrans(_PICTURES | {"\x7f": "\u2421"} | _NO_TEXT | _BREAKS | _TURNING)
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_URL: Final = re.compile(r"https?://[^\s<>\"'`\u2026\u3000-\u303f\uff00-\uffef]{1,2000}", re.IGNORECASE)
_LINKED: Final = ("http", "https", "mailto")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_PLAIN: Final = re.compile(r"[*_`#>\[\]<~|\\&]|^[ \t]|^[-+=]|^\d{1,9}[.)]", re.MULTILINE)
"""What a text must hold to be more than paragraphs in Markdown."""
_TAGS: Final = {
    "blockquote": "blockquote", "bullet_list": "ul", "list_item": "li", "thead": "thead", "tbody": "tbody",
    "tr": "tr", "em": "em", "strong": "strong", "s": "s",
}  # fmt: skip
"""Tags that are written as they are, by the name of their token without `_open` and `_close`."""


def shown(text: str) -> str:
    """`text` as a page can bear it: control characters as their pictures (␛), lines ended by \\n alone.

    Marks that turn around what is shown after them are dropped, as in a terminal.
    """
    if _UNSEEN.search(text) is None:
        return text
    return _SURROGATE.sub("\ufffd", text.replace("\r\n", "\n")).translate(_SHOWN)


def escaped(text: str) -> str:
    """`text` for between tags, or between the quotes of an attribute."""
    return html.escape(shown(text))


def plain(text: str) -> str:
    """Text as it was typed, line by line; fenced code as code, and addresses of the web as links."""
    return "".join(_plain(shown(text)))


def markdown(text: str) -> str:
    """Markdown as HTML; what it does not know, and any HTML in it, stays text."""
    if len(text) > LONGEST_MARKDOWN:
        return plain(text)
    text = shown(text)
    if _PLAIN.search(text) is None:
        paragraphs = filter(None, (each.strip("\n") for each in re.split(r"\n[ \t]*\n", text)))
        return "\n".join(f"<p>{linked(each).replace(chr(10), '<br>')}</p>" for each in paragraphs)
    return "".join(_blocks(_reader().parse(text)))


def code(text: str, language: str = "") -> str:
    """Code, or what a tool said: as it is."""
    named = f'<span class="language">{escaped(language)}</span>' if language else ""
    # The first line end after <pre> is no part of it to who reads HTML; one of the text's own is.
    return f'<div class="code">{named}<pre dir="auto">\n<code>{escaped(text)}</code></pre></div>'


def linked(text: str) -> str:
    """Text for between tags, addresses of the web in it as links."""
    if "://" not in text:
        return escaped(text)
    pieces, end = list[str](), 0
    for found in _URL.finditer(text):
        url = _trimmed(found[0])
        if not _goes(url):
            continue
        goal = url if url.isascii() else _normal(url)
        pieces += escaped(text[end : found.start()]), _opening(goal), escaped(url), "</a>", _goal(goal, url)
        end = found.start() + len(url)
    return "".join((*pieces, escaped(text[end:])))


def _trimmed(url: str) -> str:
    """Without what ends the sentence that it stands in."""
    while url:
        if url[-1] in ".,;:!?*_" or (
            url[-1] in ")]}" and url.count(url[-1]) > url.count("([{"[")]}".index(url[-1])])
        ):
            url = url[:-1]
        else:
            break
    return url


def _goes(url: str) -> bool:
    """Whether it is an address elsewhere that a page may lead to."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    scheme = parts.scheme.lower()
    return scheme in _LINKED and bool(parts.path if scheme == "mailto" else parts.hostname)


def _normal(url: str) -> str:
    """An address as it goes over the wire: letters of other scripts may look like Latin ones."""
    from markdown_it.common.normalize_url import normalizeLink

    return normalizeLink(url)


def _opening(url: str) -> str:
    return f'<a href="{escaped(url)}" rel="noopener noreferrer nofollow" target="_blank">'


def _plain(text: str) -> Iterator[str]:
    """Stretches of text, and between them what stands between fences."""
    held, fence, language = list[str](), "", ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if not fence and found is not None:
            yield from _stretch(held)
            held, fence, language = [], found[1], found[2].strip()
        elif fence and found is not None and not found[2] and found[1].startswith(fence):
            yield code("\n".join(held), language)
            held, fence = [], ""
        else:
            held.append(line)
    if fence:  # it was never closed
        held.insert(0, fence + language)
    yield from _stretch(held)


def _stretch(lines: Sequence[str]) -> Iterator[str]:
    text = "\n".join(lines).strip("\n")
    if text:
        yield f'<div class="plain" dir="auto">{linked(text)}</div>'


# --- Markdown ---------------------------------------------------------------------------------------


@cache
def _reader() -> MarkdownIt:
    """CommonMark with tables, without HTML, and without definitions, which would be read and not shown."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False})
    reader.enable(["table", "strikethrough"])
    reader.disable(["reference", "html_block", "html_inline"])
    reader.validateLink = _goes  # type: ignore[method-assign] # the library's own way to say it
    return reader


def _blocks(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        name, _, end = token.type.rpartition("_")
        match token.type:
            case "inline":
                yield _inline(token.children or ())
            case "fence" | "code_block":
                yield code(token.content.removesuffix("\n"), token.info.strip())
            case "hr":
                yield "<hr>\n"
            case "paragraph_open" | "paragraph_close" if token.hidden:  # in a tight list
                yield "\n"
            case "paragraph_open":
                yield '<p dir="auto">'
            case "paragraph_close":
                yield "</p>\n"
            case _ if name in ("heading", "table", "ordered_list", "th", "td"):
                yield _opened(token, name) if end == "open" else f"</{_tag(token)}>{_AFTER.get(name, '')}"
            case _ if name in _TAGS:
                yield f"<{_TAGS[name]}>" if end == "open" else f"</{_TAGS[name]}>"
            case _:
                yield escaped(token.content)


_AFTER: Final = {"table": "</div>\n", "ordered_list": "\n", "heading": "\n"}


def _tag(token: Token) -> str:
    """Headings go on where the page's own end, at the third level."""
    return f"h{min(6, int(token.tag[1]) + 3)}" if token.type.startswith("heading") else token.tag


def _opened(token: Token, name: str) -> str:
    """A tag with what little is taken over of its attributes."""
    if name == "table":
        return '<div class="table"><table>'
    start = token.attrGet("start")
    if name == "ordered_list" and isinstance(start, int):
        return f'<ol start="{start}">'
    aligned = str(token.attrGet("style") or "").removeprefix("text-align:")
    if aligned in ("left", "right", "center"):
        return f'<{_tag(token)} class="{aligned}">'
    return f"<{_tag(token)}>"


def _inline(tokens: Sequence[Token]) -> str:
    pieces, opened, said = list[str](), "", list[str]()
    text: Callable[[str], str] = linked
    for token in tokens:
        name, _, end = token.type.rpartition("_")
        match token.type:
            case "text":
                pieces.append((escaped if opened else text)(token.content))
                said.append(token.content)
            case "code_inline":
                pieces.append(f"<code>{escaped(token.content)}</code>")
                said.append(token.content)
            case "softbreak" | "hardbreak":
                pieces.append("<br>\n")
            case "link_open":
                opened, said = str(token.attrGet("href") or ""), []
                pieces.append(_opening(opened))
            case "link_close":
                pieces.append(f"</a>{_goal(opened, ''.join(said))}")
                opened = ""
            case "image":
                pieces.append(_image(token, inside=bool(opened)))
            case _ if name in _TAGS:
                pieces.append(f"<{_TAGS[name]}>" if end == "open" else f"</{_TAGS[name]}>")
            case _:
                pieces.append(escaped(token.content))
    return "".join(pieces)


def _goal(url: str, said: str) -> str:
    """Where a link goes, in words, where its own words do not say so."""
    parts = urlsplit(url)
    goal, said = parts.hostname or url, said.strip().lower()
    if "@" not in parts.netloc and said.removeprefix(f"{parts.scheme}://").partition("/")[0] in (
        goal,
        parts.netloc,
    ):
        return ""
    return f' <span class="goal">({escaped(goal)})</span>'


def _image(token: Token, *, inside: bool) -> str:
    """A page loads nothing: an image is a link to where it lies."""
    alt = f"[Image: {token.content}]" if token.content else "[Image]"
    url = str(token.attrGet("src") or "")
    if inside or not _goes(url):
        return escaped(alt)
    return f"{_opening(url)}{escaped(alt)}</a>{_goal(url, alt)}"
