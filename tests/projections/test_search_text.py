"""The prepared text, held against a real FTS5 table."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.projections.search_query import parse
from retold.projections.search_text import indexed_text, is_indexable, plain_text, prepare

TABLE = "CREATE VIRTUAL TABLE found USING fts5(text, content='', tokenize='unicode61 remove_diacritics 2')"
UNSPACED = "".join(
    chr(code)
    for low, high in [
        (0x3041, 0x3096),
        (0x30A1, 0x30FA),
        (0x30FC, 0x30FE),
        (0x4E00, 0x4E40),
        (0x3400, 0x3410),
        (0xAC00, 0xAC40),
        (0x20000, 0x20010),
        (0x2B820, 0x2B830),
        (0x30000, 0x30010),
        (0x3105, 0x3110),
        (0x0E01, 0x0E30),
        (0x1780, 0x1790),
    ]
    for code in range(low, high + 1)
)


def index(*texts: str) -> apsw.Connection:
    db = apsw.Connection(":memory:")
    db.execute(TABLE)
    for row, text in enumerate(texts, 1):
        told = indexed_text(text, None, None)
        db.execute("INSERT INTO found(rowid, text) VALUES (?, ?)", (row, told))
    return db


def hits(db: apsw.Connection, match: str | None) -> list[int]:
    assert match is not None
    rows = db.execute("SELECT rowid FROM found(?) ORDER BY rowid", (match,))
    return [row for (row,) in rows]


def is_token() -> Callable[[str], bool]:
    tokenize = apsw.Connection(":memory:").fts5_tokenizer("unicode61", ["remove_diacritics", "2"])
    return lambda text: bool(
        tokenize(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False)
    )


def test_ascii_is_indexed_as_it_is() -> None:
    text = "it's gateway/run.py, 100% of A_B\n"

    assert prepare(text) is text


def test_a_run_becomes_pairs_and_its_last_character_apart_from_latin() -> None:
    assert prepare("修改youer服务端").split() == ["修改", "改", "youer", "服务", "务端", "端"]


def test_a_long_run_is_paired_as_a_short_one() -> None:
    for run in ("服", "服务", "服务端" * 3, "𠀀服" * 9):
        pairs = [run[at : at + 2] for at in range(len(run) - 1)]

        assert prepare(run).split() == [*pairs, run[-1]]


def test_name_and_arguments_of_a_tool_stand_beside_the_content() -> None:
    assert indexed_text("a", "b", '{"c": "d"}') == 'a b {"c": "d"}'
    assert indexed_text(None, None, None) == ""


def test_bytes_are_decoded_and_nul_is_a_space() -> None:
    assert indexed_text(b"caf\xc3\xa9 \xff", None, None) == "café \ufffd"
    assert indexed_text("hello\0world", None, None) == "hello world"


def test_lone_surrogates_do_not_reach_sqlite() -> None:
    assert hits(index("left\ud83dright"), '"left" AND "right"') == [1]


@pytest.mark.parametrize("glued", ["done🦀", "🤔done", "₿done", "\u2066done\u2069", "done⸺x"])
def test_symbols_newer_than_unicode61_do_not_hide_the_word_beside_them(glued: str) -> None:
    assert hits(index(glued), '"done"') == [1]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("ﾃｽﾄﾃﾞｰﾀ", "テストデータ"),
        ("ＡＢＣ１２３", "abc123"),
        ("葛\U000e0100城市", "葛城"),
        ("co\u00adoperate", "cooperate"),
        ("ภาษาไทยง่าย", "ไทย"),
        ("ភាសាខ្មែរ", "ខ្មែរ"),
        ("မြန်မာစာ", "မာစာ"),
        ("ພາສາລາວ", "ລາວ"),
        ("か\u3099くせい", "がくせい"),
    ],
)
def test_ways_to_write_the_same_are_one(text: str, query: str) -> None:
    assert hits(index(text), parse(query).match) == [1]


def structured(value: object) -> str:
    return "\0json:" + json.dumps(value)


def test_of_structured_content_the_text_parts_are_indexed() -> None:
    content = structured(
        [
            {"type": "text", "text": "look at 北京"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "tool_result", "content": [{"type": "text", "text": "second"}]},
        ]
    )

    assert plain_text(content) == "look at 北京\nsecond"


def test_structured_content_without_text_parts_gives_its_strings_but_no_encoded_files() -> None:
    content = structured({"url": "data:image/png;base64,AAAA", "b64": "A" * 300, "alt": "a cat"})

    assert plain_text(content) == "a cat"


@pytest.mark.parametrize("broken", ["\0json:{", "\0json:" + "[" * 200_000])
def test_structured_content_that_is_no_json_is_indexed_raw(broken: str) -> None:
    assert indexed_text(broken, None, None) == broken.replace("\0", " ")


def test_words_behind_the_escapes_of_tool_calls_are_found() -> None:
    arguments = json.dumps({"text": "first\nsecond", "city": "北京市", "n": 1.50, "deep": [None, True]})
    calls = json.dumps([{"function": {"name": "write", "arguments": arguments}}])
    db = apsw.Connection(":memory:")
    db.execute(TABLE)
    db.execute("INSERT INTO found(rowid, text) VALUES (1, ?)", (indexed_text("", "t", calls),))

    for query in ("second", "北京", "city", "1.5", "write", "null", "true", '"name": "write"'):
        assert hits(db, parse(query).match) == [1], query


def test_tool_calls_that_are_no_json_are_indexed_raw() -> None:
    assert indexed_text("", None, r"C:\new {") == r" C:\new {"


def test_what_counts_as_indexable_is_a_token_of_unicode61() -> None:
    token = is_token()
    wrong = [
        hex(code)
        for code in range(0x110000)
        if not 0xD800 <= code < 0xE000
        and is_indexable(prepared := prepare(chr(code)))
        and not token(prepared)
    ]

    assert wrong == []


@given(st.text(alphabet=UNSPACED, min_size=2, max_size=40), st.data(), st.text(max_size=8))
def test_any_part_of_a_run_is_found(run: str, data: st.DataObject, around: str) -> None:
    run = unicodedata.normalize("NFKC", run)
    start = data.draw(st.integers(0, len(run) - 2))
    stop = data.draw(st.integers(start + 2, len(run)))
    db = index(f"{around} {run}", f"x{run}y {around}", "another")

    assert hits(db, parse(run[start:stop]).match) == [1, 2]
    assert {1, 2} <= set(hits(db, parse(run[start]).match))


@given(st.lists(st.text() | st.text(alphabet=UNSPACED + "ab🤔é "), min_size=1, max_size=5))
def test_telling_the_same_text_again_takes_it_out_of_the_index(texts: list[str]) -> None:
    db = index(*texts)
    for row, text in enumerate(texts, 1):
        told = indexed_text(text, None, None)
        db.execute("INSERT INTO found(found, rowid, text) VALUES ('delete', ?, ?)", (row, told))
    db.execute("INSERT INTO found(found) VALUES ('integrity-check')")

    for text in texts:
        match = parse(text).match
        if match:
            assert hits(db, match) == []


@given(st.text())
def test_a_prepared_text_is_writable_and_prepared_alike_again(text: str) -> None:
    told = prepare(text)

    assert told == prepare(text)
    assert "\0" not in told
    told.encode()
