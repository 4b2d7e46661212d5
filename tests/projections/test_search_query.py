"""What people type, held against a real FTS5 table: never an error, never silently nothing."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retold.projections.search_query import MAX_QUERY_CHARS, Query, parse
from retold.projections.search_text import indexed_text

TABLE = "CREATE VIRTUAL TABLE found USING fts5(text, content='', tokenize='unicode61 remove_diacritics 2')"


class Index:
    """Messages and their index, asked as the search asks."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.db = apsw.Connection(":memory:")
        self.db.execute(TABLE)
        for row, text in enumerate(texts):
            told = indexed_text(text, None, None)
            self.db.execute("INSERT INTO found(rowid, text) VALUES (?, ?)", (row, told))

    def matched(self, match: str | None) -> set[str]:
        if match is None:
            return set()
        return {self.texts[row] for (row,) in self.db.execute("SELECT rowid FROM found(?)", (match,))}

    def search(self, query: str) -> set[str]:
        asked = parse(query)
        if asked.match is None:
            return {text for text in self.texts if asked.scan and asked.scan in text}
        return self.matched(asked.match) or self.matched(asked.relaxed)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("昨晚我们讨论了记忆断裂的问题", "记忆断裂"),
        ("昨晚我们讨论了记忆断裂的问题", "昨晚"),
        ("昨晚我们讨论了记忆断裂的问题", "题"),
        ("昨晚我们讨论了记忆断裂的问题", "忆"),
        ("昨晚我们讨论了记忆断裂的问题", "记忆断裂？"),
        ("昨晚我们讨论了记忆断裂的问题", "昨* 问题*"),
        ("ひらがなとカタカナ", "がな"),
        ("ひらがなとカタカナ", "カタ"),
        ("서버를 다시 시작했습니다", "시작"),
        ("서버를 다시 시작했습니다", "서버"),
        ("古字𠀀𠀁𠀂在此", "𠀀𠀁"),
        ("古字𠀀𠀁𠀂在此", "𠀂"),
    ],
)
def test_d1_part_of_a_sentence_without_spaces_is_found(text: str, query: str) -> None:
    assert Index(text, "unrelated 其他").search(query) == {text}


def test_d3_or_of_two_character_terms_finds_both() -> None:
    assert Index("广西游", "桂林游", "北京游").search("广西 OR 桂林") == {"广西游", "桂林游"}


@pytest.mark.parametrize(
    "query", ["youer", "服务端 youer", "youer服务端", "修改youer", "改youer服", "YOUER", "youer*"]
)
def test_latin_glued_to_other_scripts_is_found(query: str) -> None:
    assert Index("修改youer服务端").search(query) == {"修改youer服务端"}


def test_a_mixed_word_matches_adjacent_text_only() -> None:
    texts = Index("重跑build了", "build重跑", "重跑一次build", "5月8日上线", "15月8日")

    assert texts.search("重跑build") == {"重跑build了"}
    assert texts.search("跑build") == {"重跑build了"}
    assert texts.search("build重") == {"build重跑"}
    assert texts.search("5月8日") == {"5月8日上线"}


def test_hyphenated_terms_break_nothing() -> None:
    texts = Index("这道错题", "my wrong-book", "open chat-send now", "chat now, send later")

    assert texts.search("错题 OR wrong-book") == {"这道错题", "my wrong-book"}
    assert texts.search("chat-send") == {"open chat-send now"}


EVERYDAY = [
    "it's",
    "gateway/run.py",
    "user@host",
    "50%",
    ".env",
    "--force",
    "a,b",
    "why?",
    "#12",
    "C:\\x",
    "foo:bar",
    "(cat",
    "*",
    '""',
    "AND",
    "NOT cat",
    "cat AND AND sat",
    "cat AND",
    "OR cat",
    "AND OR NOT",
    "AND NOT",
    "my_var",
    "TODO: fix",
    "C++",
    "(x OR y)",
    '"unbalanced phrase',
    'a "quoted phrase" b',
    '5" disk and 3" drive',
    "“smart quotes” too",
    "^caret",
    "{braces} [brackets]",
    "+plus -minus",
    "NEAR(a b)",
    "col : value",
    "**bold** text",
    "foo* bar",
    "😀",
    "🤔🤔",
    "🚀 launch",
    "'single'",
    "a;b--",
    "%_%",
    "\\",
    "not and or",
    "ÀÉÎ",
    "½ ①",
    "１２３",
    "a\tb\nc",
    "中文，标点。",
    "x\u0301\u0302",
    "\u0e31",
]


@pytest.mark.parametrize("query", EVERYDAY)
def test_d7_an_everyday_query_finds_its_text_alone(query: str) -> None:
    text = f"before {query} after"

    assert Index(text, "nothing of it").search(query) == {text}


@pytest.mark.parametrize("query", ["", " ", "\n\t", "\0", "\u3000", "\ud800"])
def test_a_blank_query_asks_nothing(query: str) -> None:
    assert parse(query) == Query(match=None, relaxed=None, literals=(), scan=None)


def test_like_wildcards_are_letters_like_any_other() -> None:
    texts = Index("a_b", "axb", "100%", "1000")

    assert texts.search("a_b") == {"a_b"}
    assert texts.search("100%") == {"100%"}
    assert parse("%") == Query(match=None, relaxed=None, literals=("%",), scan="%")


def test_operators_bind_as_in_fts5() -> None:
    texts = Index("a", "b", "a b", "a c", "b c", "d")

    assert texts.search("a AND b OR d") == {"a b", "d"}
    assert texts.search("d OR a AND b") == {"a b", "d"}
    assert texts.search("a NOT b") == {"a", "a c"}
    assert texts.search("a AND NOT b NOT c") == {"a"}
    assert texts.search("d OR c NOT a") == {"d", "b c"}
    assert texts.search("a c") == {"a c"}


def test_lower_case_operators_are_words() -> None:
    texts = Index("cat and dog", "cat dog", "cat not dog")

    assert texts.search("cat and dog") == {"cat and dog"}
    assert texts.search("cat not dog") == {"cat not dog"}


def test_an_operator_without_operand_is_a_word_first_and_dropped_then() -> None:
    assert Index("NOT cat", "cat").search("NOT cat") == {"NOT cat"}
    assert Index("a cat", "dog").search("NOT cat") == {"a cat"}
    assert parse("cat AND AND sat") == parse("cat AND sat")


def test_a_star_after_a_word_means_begins_with() -> None:
    texts = Index("configure", "config", "reconfigure", "run the gateway/runner.py")

    assert texts.search("config*") == {"configure", "config"}
    assert texts.search("gateway/run*") == {"run the gateway/runner.py"}
    assert texts.search('"the gate"*') == {"run the gateway/runner.py"}
    assert texts.search("*config") == {"config"}


def test_a_phrase_stands_together() -> None:
    assert Index("one two three", "two one").search('"one two"') == {"one two three"}


def test_accents_and_case_make_no_difference() -> None:
    assert Index("Café").search("CAFE") == {"Café"}
    assert Index("cafe").search("café") == {"cafe"}


def test_what_is_no_word_is_left_out_of_the_match_and_still_marked() -> None:
    asked = parse("🚀 launch")

    assert asked == Query(match='"launch"', relaxed=None, literals=("launch", "🚀"), scan=None)
    assert parse("🚀 NOT launch").scan == "🚀"
    assert parse("🚀 OR 🎉").scan == "🚀"
    assert parse("🚀 🎉").scan == "🚀 🎉"


def test_literals_are_as_typed_longest_first_without_what_is_refused() -> None:
    assert parse('b "A Phrase" NOT c OR longest-word*').literals == (
        "longest-word",
        "A Phrase",
        "b",
    )


@pytest.mark.parametrize(
    "query",
    [
        " NOT ".join("a" * 400),
        " OR ".join("ab" * 300),
        " AND ".join("ab" * 300),
        "a " * 2000,
        "服" * 5000,
        "服 " * 2000,
        '"' * 5000,
        '"a' * 1500,
        "(" * 5000,
        "a OR b NOT c " * 200,
        "🚀" * 3000,
        "“" * 3000,
    ],
)
def test_a_long_query_is_cut_and_runs(query: str) -> None:
    asked = parse(query)
    index = Index("a b c 服")
    index.matched(asked.match)
    index.matched(asked.relaxed)

    assert len(asked.scan or "") <= MAX_QUERY_CHARS


WORDS = [
    "AND",
    "OR",
    "NEAR",
    "and",
    "not",
    "cat",
    "Sat",
    "run",
    "12",
    "é",
    "服务",
    "端",
    "ひ",
    "한",
    "🚀",
    "🤔",
    "₿",
    "ａ",
    "ไทย",
    "́",
    "\u200d",
]
PIECES = st.sampled_from([*"\"'()*^:+-{}[]%_#@.,;!?/\\|&<>=~`$“”\0 ", *WORDS])
TYPED = st.lists(PIECES | st.just(" "), max_size=12).map("".join)


@settings(max_examples=400)
@given(TYPED | st.text(max_size=30))
@example("NOT cat")
@example("服务端 OR 🚀 AND x*")
def test_d7_any_query_runs_and_finds_the_text_that_is_the_query(query: str) -> None:
    asked = parse(query)
    text = f"before {query} after"
    index = Index(text, "other")
    found = index.matched(asked.match) | index.matched(asked.relaxed)

    if asked.match is None:
        assert asked.scan is None or asked.scan in text.replace("\0", " ")
    else:
        assert text in found


@settings(max_examples=400)
@given(st.lists(PIECES | st.just("NOT") | st.just(" "), max_size=16).map(" ".join))
def test_any_query_with_operators_runs(query: str) -> None:
    asked = parse(query)
    index = Index("cat 服务")

    index.matched(asked.match)
    index.matched(asked.relaxed)
