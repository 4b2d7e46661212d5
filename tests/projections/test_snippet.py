"""The line that shows why a message was found."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Sequence
from typing import Any

import apsw
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from retold.projections.search_query import parse
from retold.projections.search_text import indexed_text
from retold.projections.snippet import ELLIPSIS, cut
from retold.projections.transcripts import Transcripts


def snippet(text: str, literals: Sequence[str], **how: Any) -> str:
    return cut(text, literals, **how)[0]


FAMILY = "👨\u200d👩\u200d👧\u200d👦"


def test_every_match_in_the_window_is_marked() -> None:
    assert snippet("a cat, a Cat", ["cat"]) == "a >>>cat<<<, a >>>Cat<<<"


def test_the_window_is_one_line_around_the_first_match() -> None:
    line = snippet("word " * 200 + "the\nneedle\there\x1b[0m " + "word " * 200, ["needle"], width=40)

    assert line.startswith(ELLIPSIS)
    assert line.endswith(ELLIPSIS)
    assert "the >>>needle<<< here" in line
    assert "\n" not in line
    assert "\x1b" not in line


def test_without_a_match_it_is_the_head() -> None:
    assert snippet("short", ["absent"]) == "short"
    assert snippet("word " * 50, [], width=10) == "word word" + ELLIPSIS
    assert snippet("", ["x"]) == ""


@pytest.mark.parametrize(
    ("text", "literal", "marked"),
    [
        ("a café", "cafe", "a >>>café<<<"),
        ("a cafe\u0301!", "cafe", "a >>>cafe\u0301<<<!"),
        ("a cafe", "CAFÉ", "a >>>cafe<<<"),
        ("ＡＢＣ社", "abc", ">>>ＡＢＣ<<<社"),
        ("ABC", "ａｂｃ", ">>>ABC<<<"),
        ("ﾃﾞｰﾀ", "データ", ">>>ﾃﾞｰﾀ<<<"),
        ("İstanbul café", "cafe", "İstanbul >>>café<<<"),
        ("记忆断裂的", "断裂", "记忆>>>断裂<<<的"),
        ("修改youer服务端", "youer", "修改>>>youer<<<服务端"),
        ("修改 youer服务端", "修改youer", ">>>修改 youer<<<服务端"),
        ("かがか", "か", ">>>か<<<が>>>か<<<"),
        ("가각", "가", ">>>가<<<각"),
        ("100% of 50%", "50%", "100% of >>>50%<<<"),
        ("go 🚀 now", "🚀", "go >>>🚀<<< now"),
        ("concat cats cat", "cat", "concat cats >>>cat<<<"),
        ("concat", "cat", "concat"),
        ("except é e\u0301s", "é", "except >>>é<<< e\u0301s"),
        (r"Custom C:\x, c-x", r"C:\x", r"Custom >>>C:\x<<<, >>>c-x<<<"),
        ("the cat sat", "(cat", "the >>>cat<<< sat"),
        ("the (cat) sat", "(cat", "the >>>(cat<<<) sat"),
        ("run the gateway", "gateway/run", "run the gateway"),
        ("Gateway\n run, rerun", "gateway/run", ">>>Gateway run<<<, rerun"),
        ("snake_case", "case", "snake_>>>case<<<"),
        ("a soft\u00adhyphen", "softhyphen", "a >>>soft\u00adhyphen<<<"),
        (f"our {FAMILY} here", "👩", f"our >>>{FAMILY}<<< here"),
    ],
)
def test_what_the_index_takes_for_the_same_is_marked(text: str, literal: str, marked: str) -> None:
    assert snippet(text, [literal]) == marked


def test_a_beginning_is_marked_where_the_query_asks_for_it() -> None:
    marked = snippet("configure concat a cone", ["con"], beginnings={"con"})

    assert marked == ">>>con<<<figure >>>con<<<cat a >>>con<<<e"
    assert snippet("a new yorker", ["new york"], beginnings={"new york"}) == "a >>>new york<<<er"


def test_what_was_found_by_reading_is_marked_where_it_stands() -> None:
    assert snippet("concat", ["cat"], as_it_stands=True) == "con>>>cat<<<"
    assert snippet("concat cat", ["cat"], as_it_stands=True) == "concat >>>cat<<<"


@pytest.mark.parametrize("within", ["category of categories; ", "concat, bobcat. ", "kategorie ä catä "])
def test_the_word_that_matched_is_shown_however_many_hold_it(within: str) -> None:
    line = snippet(within * 3_000 + "my cat sat " + within * 100, ["cat"])

    assert "my >>>cat<<< sat" in line
    assert line.count(">>>") == 1


LETTERS = "abcCé e\u0301ßẞsſKςΣσȩ服务かが각0²_-.\u00ad\u200b\u0e01\u0e31"


@example("ß", "ss", False)
@example("ΟΔΟΣ οδος", "οδοσ", False)
@given(st.text(LETTERS, max_size=12), st.text(LETTERS, min_size=1, max_size=4), st.booleans())
def test_a_mark_stands_where_the_index_finds_the_query_and_nowhere_else(
    text: str, typed: str, starred: bool
) -> None:
    asked = parse(f'"{typed}"{"*" * starred}')
    assume(asked.match is not None)
    db = apsw.Connection(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE search USING {Transcripts.virtual['search']}")
    db.execute("INSERT INTO search (rowid, text) VALUES (1, ?)", (indexed_text(text, None, None),))
    found = db.execute("SELECT 1 FROM search WHERE search MATCH ?", (asked.match,)).fetchall()

    assert (">>>" in snippet(text, asked.literals, beginnings=asked.beginnings)) == bool(found)


def test_the_longest_literal_wins_and_marks_do_not_nest() -> None:
    assert snippet("new york, york", ["new york", "york"]) == ">>>new york<<<, >>>york<<<"


def test_markers_can_be_chosen() -> None:
    assert snippet("a cat", ["cat"], marks=("[", "]")) == "a [cat]"


def test_structured_content_shows_its_text() -> None:
    content = "\0json:" + json.dumps([{"type": "text", "text": "look at 北京"}, {"url": "x"}])

    assert snippet(content, parse("北京").literals) == "look at >>>北京<<<"


def test_writing_direction_and_lone_surrogates_do_not_reach_the_terminal() -> None:
    assert snippet("a\u202eb \ud800", []) == "a b \ufffd"


@given(
    st.lists(
        st.sampled_from([FAMILY, "👍🏽", "🇩🇪", "e\u0301\u0302", "क्ष", "각", "a", " ", "服", "❤\ufe0f"]),
        min_size=1,
        max_size=60,
    ),
    st.integers(20, 40),
    st.data(),
)
def test_no_cluster_is_cut(clusters: list[str], width: int, data: st.DataObject) -> None:
    literal = data.draw(st.sampled_from(clusters))
    line = snippet("".join(clusters), [literal], width=width)
    plain = line.replace(">>>", "").replace("<<<", "").strip(ELLIPSIS)

    assert unicodedata.category((plain.strip() or "a")[0])[0] != "M"
    for whole in (FAMILY, "👍🏽", "🇩🇪", "❤\ufe0f", "e\u0301\u0302"):
        plain = plain.replace(whole, "")
    assert not set(plain) & set(FAMILY + "👍🏽🇩🇪\ufe0f\u0301\u0302")


@given(st.text(), st.lists(st.text(max_size=6), max_size=4), st.integers(1, 50))
def test_any_text_gives_one_line_of_the_width(text: str, literals: list[str], width: int) -> None:
    line = snippet(text, literals, width=width, marks=("", ""))
    line.encode()

    assert len(line) <= max(width, 64) + 2 * len(ELLIPSIS)
    assert len(line.splitlines()) <= 1


@given(st.text(alphabet="ab é服", max_size=80), st.text(alphabet="ab é服", min_size=1, max_size=3))
def test_what_stands_in_the_text_is_marked(text: str, literal: str) -> None:
    if literal.strip():
        assert ">>>" in snippet(f"{text} {literal} {text}", [literal], width=30)


@pytest.mark.parametrize("filler", ["lorem ipsum dolor ", "lörem ipsum ", "今日天气很好 ", "🚀 ok "])
def test_a_large_message_costs_one_scan(filler: str) -> None:
    text = filler * (2_000_000 // len(filler.encode())) + " Needle"
    snippet(text[:1000], ["warm-up"])
    took_s = min(timed(text, ["needle"]) for _ in range(3))

    assert took_s < 0.1  # of this thread alone: about 5 ms; a loop over characters takes seconds


def timed(text: str, literals: list[str]) -> float:
    began = time.thread_time()
    assert ">>>Needle<<<" in snippet(text, literals)
    return time.thread_time() - began
