"""Text on an exported page: whatever it says, only tags that were meant are written."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retold.infrastructure.exporters.html_text import LONGEST_MARKDOWN, code, escaped, markdown, plain
from retold.tests.cli.pages import ATTACKS, Tags

TAGS = {
    "p", "br", "div", "pre", "code", "span", "a", "ul", "ol", "li", "em", "strong", "s", "blockquote", "hr",
    "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTRIBUTES = {"class", "dir", "href", "rel", "target", "start"}
texts = st.text(
    st.one_of(st.characters(), st.sampled_from(list("<>&\"'`*_[]()!#|-~\\\n\t :/")), st.just("\u202e"))
) | st.lists(
    st.sampled_from(
        [*ATTACKS, "**", "`", "[", "](", ")", "<", ">", "\n", "\n\n", "    ", "- ", "> ", "http://a.b"]
    )
).map("".join)


@given(texts)
@example("[a](<javascript:1>)")
@example("&#106;avascript:1")
@example("<a href='javascript:1'>")
@example("\ud800")
def test_only_tags_that_a_page_knows_are_written_whatever_is_said(text: str) -> None:
    for written in (markdown(text), plain(text), code(text, text)):
        for tag, attributes in Tags(written).tags:
            assert tag in TAGS
            assert attributes.keys() <= ATTRIBUTES
            if tag == "a":
                goal = urlsplit(attributes["href"] or "")
                assert goal.scheme in ("http", "https", "mailto")
                assert attributes["rel"] == "noopener noreferrer nofollow"
        assert not set(written) & set(map(chr, (0, 0x1B, 0x7F, 0x85, 0x202E, 0x2066, 0x2028, 0xD800)))


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="~`")))
def test_what_was_typed_stands_there_to_the_letter(text: str) -> None:
    turned = {ord(each): None for each in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}

    assert Tags(plain(text)).text == text.translate(turned)


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("a\n\nb\nc", "<p>a</p>\n<p>b<br>c</p>"),
        ("**a** `b`", '<p dir="auto"><strong>a</strong> <code>b</code></p>\n'),
        ("- a\n- b", "<ul><li>\na\n</li><li>\nb\n</li></ul>"),
        ("# a", "<h4>a</h4>\n"),
        ("###### a", "<h6>a</h6>\n"),
        ("2. a", '<ol start="2"><li>\na\n</li></ol>\n'),
        ("~~a~~", '<p dir="auto"><s>a</s></p>\n'),
        ("<b>a</b>", '<p dir="auto">&lt;b&gt;a&lt;/b&gt;</p>\n'),
        ("[a]: https://b.example", None),
        ("[a](javascript:1)", '<p dir="auto">[a](javascript:1)</p>\n'),
        ("[a](/etc/passwd) [b](#m-1) [c](file:///x)", None),
    ],
)
def test_markdown_is_read_and_nothing_of_it_is_lost(said: str, written: str | None) -> None:
    found = markdown(said)

    if written is None:  # it stays as it was typed
        assert Tags(found).text.strip() == said
        assert "href" not in found.replace('href="https://b.example"', "")
    else:
        assert found == written


@pytest.mark.parametrize(
    ("said", "goal"),
    [
        ("[the bank](https://evil.example/x)", "(evil.example)"),
        ("[https://bank.example](https://evil.example/x)", "(evil.example)"),
        ("![a plan](https://a.example/plan.png)", "(a.example)"),
        ("[bаnk.example](https://xn--bnk-5cd.example)", "(xn--bnk-5cd.example)"),
        ("[mail](mailto:a@b.example)", "(mailto:a@b.example)"),
    ],
)
def test_a_link_says_where_it_goes(said: str, goal: str) -> None:
    assert goal in Tags(markdown(said)).text


@pytest.mark.parametrize(
    "said", ["https://a.example/x", "<https://a.example/x>", "[a.example](https://a.example/x)"]
)
def test_a_link_that_says_so_itself_is_told_once(said: str) -> None:
    assert Tags(markdown(said)).text.count("a.example") == 1


@pytest.mark.parametrize(
    ("said", "linked"),
    [
        ("see https://a.example/b.", "https://a.example/b"),
        ("(https://a.example/b_(c))", "https://a.example/b_(c)"),
        ("https://a.example/?q=1&r=2,", "https://a.example/?q=1&r=2"),
        ("<https://a.example>", "https://a.example"),
    ],
)
def test_an_address_is_a_link_without_the_end_of_its_sentence(said: str, linked: str) -> None:
    found = [attributes["href"] for tag, attributes in Tags(plain(said)).tags if tag == "a"]

    assert found == [linked]
    assert Tags(plain(said)).text == said


def test_fenced_code_is_code_in_what_a_person_typed_too() -> None:
    found = plain("look:\n```py\nif a < b:\n\n    *c*\n```\nthen")

    assert "<code>if a &lt; b:\n\n    *c*</code>" in found
    assert '<span class="language">py</span>' in found
    assert Tags(plain("```\nnever closed")).text == "```\nnever closed"


def test_code_keeps_the_empty_lines_that_it_begins_with() -> None:
    # A reader of HTML drops one line end after <pre>: it is not the code's own.
    assert '<pre dir="auto">\n<code>\n\na</code>' in code("\n\na")


def test_what_cannot_be_seen_is_shown_or_let_go() -> None:
    assert escaped("a\0b\x1b[1m\x7f\u202ec\u2066d\r\ne\u2028f\ud800") == "a␀b␛[1m␡cd\ne\nf\ufffd"


@pytest.mark.parametrize(
    "text", ["[", "![", "*a ", "`", "``a` ", "> ", "<", "- ", "[a](", "_a", "|", "http://a(", "\\"]
)
def test_no_text_takes_long(text: str) -> None:
    began = time.perf_counter()
    markdown(text * (LONGEST_MARKDOWN // len(text)))
    markdown(text * (1_000_000 // len(text)))

    assert time.perf_counter() - began < 10
