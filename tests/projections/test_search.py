"""Search finds what was said, however it was typed; each test a history and a query (FIELD_CASES D).

Over 400 lines because every test is a history and a query of the same search.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from retold import open_home
from retold.domain.events import MessageAppended, MessageEdited
from retold.infrastructure.rebuild import rebuild
from retold.projections import search as module
from retold.projections.base import Connection
from retold.projections.conversations import Conversations
from retold.projections.search import SearchResult, search
from retold.tests.histories import DAY_US, T0_US, History, folded, history, many_sessions

Tell = Callable[[History], object]


@contextmanager
def told(home: Path, tell: Tell) -> Iterator[apsw.Connection]:
    with history(home) as written:
        tell(written)
    with folded(home) as opened:
        yield opened.state.reader()


def said(*texts: str) -> Tell:
    """A session for each text: s0, s1, …"""

    def tell(h: History) -> None:
        for number, text in enumerate(texts):
            h.session(f"s{number}")
            h.say(f"s{number}", text)

    return tell


def sessions(result: SearchResult) -> list[str]:
    return [each.session_id for each in result.hits]


# --- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("昨晚我们讨论了记忆断裂的问题", "记忆断裂"),
        ("昨晚我们讨论了记忆断裂的问题", "昨晚"),
        ("ひらがなとカタカナ", "カタ"),
        ("한국어로 이야기했습니다", "이야기"),
        ("\U00020000\U00020001\U00020002", "\U00020001\U00020002"),
    ],
    ids=["Chinese", "two characters", "kana", "Hangul", "extension B"],
)
def test_d1_a_query_in_a_script_without_spaces_finds_its_part_of_a_sentence(
    home: Path, text: str, query: str
) -> None:
    with told(home, said(text, "something else")) as db:
        assert sessions(search(db, query)) == ["s0"]


def test_or_decides_for_each_term(home: Path) -> None:
    with told(home, said("广西游", "桂林游", "北京游")) as db:
        assert set(sessions(search(db, "广西 OR 桂林"))) == {"s0", "s1"}


@pytest.mark.parametrize("query", ["youer", "服务端 youer", "修改youer"])
def test_d5_a_latin_word_glued_to_chinese_is_found(home: Path, query: str) -> None:
    with told(home, said("修改youer服务端")) as db:
        assert sessions(search(db, query)) == ["s0"]


def test_d6_a_hyphenated_term_does_not_break_the_query(home: Path) -> None:
    with told(home, said("the 错题 list", "a wrong-book", "run chat-send now", "chat and send")) as db:
        assert set(sessions(search(db, "错题 OR wrong-book"))) == {"s0", "s1"}
        assert sessions(search(db, "chat-send")) == ["s2"]


@pytest.mark.parametrize(
    "query",
    [
        *("it's", "gateway/run.py", "user@host", "50%", ".env", "--force", "a,b", "why?", "#12"),
        *("C:\\x", "foo:bar", "(cat", "*", "AND", "NOT cat", "cat AND AND sat", "-x", '"', "cat)", "^cat"),
    ],
)
def test_d7_everyday_punctuation_finds_the_text_that_has_it(home: Path, query: str) -> None:
    with told(home, said(f"so here is {query} as it was typed", "nothing of the kind")) as db:
        assert sessions(search(db, query)) == ["s0"]


@pytest.mark.parametrize("query", ["", " ", '""', "\0", "\ud800"])
def test_a_query_of_nothing_finds_nothing_and_says_so(home: Path, query: str) -> None:
    with told(home, said("cat")) as db:
        result = search(db, query)

    assert result.hits == []
    assert result.notes


def marked(result: SearchResult) -> list[str]:
    return [each.snippet for each in result.hits]


def test_the_words_that_matched_are_marked_and_no_others(home: Path) -> None:
    filler = "category of categories; a catalogue. "
    with told(home, said(filler * 20 + "my cat sat", r"Custom C:\x", "except é")) as db:
        [cat] = marked(search(db, "cat"))

        assert cat.count(">>>") == 1
        assert "my >>>cat<<< sat" in cat
        assert marked(search(db, r"C:\x")) == [r"Custom >>>C:\x<<<"]
        assert marked(search(db, "é")) == ["except >>>é<<<"]
        assert marked(search(db, "cust*")) == [r">>>Cust<<<om C:\x"]
        assert marked(search(db, "OR custom")) == [r">>>Custom<<< C:\x"]


def test_what_matched_in_a_tool_call_is_shown_though_json_escapes_it(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s0")
        calls = [{"function": {"name": "write", "arguments": json.dumps({"text": "one\ntwo"})}}]
        h.append("session:s0", MessageAppended("assistant", ">>> running", tool_calls=json.dumps(calls)))

    with told(home, tell) as db:
        [hit] = marked(search(db, "two"))

    assert ">>>two<<<" in hit


def test_what_is_read_without_the_index_is_marked_where_it_stands(home: Path) -> None:
    with history(home) as written:
        said("concat")(written)
    with folded(home) as opened:
        with opened.projector.transaction() as db:
            db.execute("UPDATE search_state SET stale = 'it was broken on purpose'")
        db = opened.state.reader()

        assert marked(search(db, "cat")) == ["con>>>cat<<<"]


def test_d9_percent_and_underscore_are_no_wildcards(home: Path) -> None:
    with told(home, said("a_b", "axb", "100%", "100 of them", "%", "_")) as db:
        assert sessions(search(db, "a_b")) == ["s0"]
        assert "s1" not in sessions(search(db, "100%"))
        assert sessions(search(db, "%")) == ["s4", "s2"]
        assert sessions(search(db, "_")) == ["s5", "s0"]


def test_what_holds_no_word_is_read_for_and_that_is_said(home: Path) -> None:
    with told(home, said("a =>> b", "a => b")) as db:
        result = search(db, "=>>")

    assert sessions(result) == ["s0"]
    assert result.hits[0].snippet == "a >>>=>><<< b"
    assert result.notes == [
        "the query holds no word, so the newest 100,000 messages were read for '=>>' as it stands,"
        " newest first"
    ]


def test_text_after_a_nul_is_found(home: Path) -> None:
    with told(home, said("before\0behind ~~")) as db:
        assert sessions(search(db, "behind")) == ["s0"]
        assert sessions(search(db, "~~")) == ["s0"]


def test_names_and_arguments_of_tools_are_found_and_shown(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        h.say("s", "let me see", "assistant", tool_calls='[{"function":{"name":"grep","arguments":"{}"}}]')

    with told(home, tell) as db:
        hit = search(db, "grep").hits[0]

    assert ">>>grep<<<" in hit.snippet


def test_a_query_without_hits_is_asked_again_without_its_dangling_operators(home: Path) -> None:
    with told(home, said("the cat sat")) as db:
        assert sessions(search(db, "NOT cat")) == ["s0"]


# --- conversations, order and pages ---------------------------------------------------------------


def test_d11_the_limit_counts_conversations_and_not_messages(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1")
        for number in range(25):
            h.say("s1", f"needle {number}")
        h.session("s2")
        h.say("s2", "a needle that is in a longer sentence")

    with told(home, tell) as db:
        result = search(db, "needle", limit=2)

    assert [(each.session_id, each.more) for each in result.hits] == [("s1", 24), ("s2", 0)]
    assert (result.ranked_over, result.conversations) == (26, 2)


@pytest.mark.parametrize("sort", ["relevance", "newest", "oldest"])
def test_d11_pages_never_repeat_or_skip_where_all_hits_are_equal(home: Path, sort: module.Sort) -> None:
    def tell(h: History) -> None:
        for number in range(23):
            h.session(f"s{number}", at_us=T0_US)
            h.say(f"s{number}", "needle", at_us=T0_US)

    with told(home, tell) as db:
        pages = [
            sessions(search(db, "needle", limit=5, offset=first, sort=sort)) for first in range(0, 30, 5)
        ]
        whole = sessions(search(db, "needle", limit=100, sort=sort))

    assert [name for page in pages for name in page] == whole
    assert len(set(whole)) == 23


def test_d12_a_chat_is_found_among_fifty_cron_jobs(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("chat", source="telegram")
        h.say("chat", "what did the report say about the harbour, now that I think of it")
        for number in range(50):
            h.session(f"cron{number}", source="cron")
            h.say(f"cron{number}", "report report report")

    with told(home, tell) as db:
        assert sessions(search(db, "report"))[0] == "chat"
        assert len(sessions(search(db, "report", limit=100))) == 51
        assert "chat" not in sessions(search(db, "report", source="cron", limit=100))


def test_d20_segments_and_branches_of_one_conversation_are_one_hit_and_a_reset_begins_another(
    home: Path,
) -> None:
    def tell(h: History) -> None:
        h.session("s0", title="plan")
        h.say("s0", "needle")
        h.compress("s0", "s1", title="plan #2")
        h.say("s1", "needle")
        h.session("b", parent_session_id="s0", parent_kind="branch")
        h.say("b", "needle")
        h.session("r", parent_session_id="s1", parent_kind="reset")
        h.say("r", "needle")

    with told(home, tell) as db:
        result = search(db, "needle")

    assert [(each.session_id, each.title, each.more) for each in result.hits] == [
        ("r", None, 0),
        ("b", None, 2),
    ]


def test_parents_in_a_circle_or_missing_are_one_conversation(home: Path) -> None:
    def tell(h: History) -> None:
        for name, parent in (("a", "b"), ("b", "a"), ("c", "gone"), ("d", "gone")):
            h.session(name, parent_session_id=parent, parent_kind="child")
            h.say(name, "needle")

    with told(home, tell) as db:
        assert [each.more for each in search(db, "needle").hits] == [1, 1]


def test_what_is_known_of_a_conversation_does_not_depend_on_how_many_are_asked_about(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        for name, parent, kind in (
            ("delegate", "s", "delegate"),
            ("went-on", "delegate", "continuation"),
            ("reset", "went-on", "reset"),
            ("branch", "reset", "branch"),
            ("orphan", "gone", "child"),
            ("a", "b", "child"),
            ("b", "a", "child"),
        ):
            h.session(name, parent_session_id=parent, parent_kind=kind)
        h.session("cron", source="cron")
        h.session("tool", source="tool")
        for number in range(40):
            h.session(f"plain{number}")

    with told(home, tell) as db:
        every = [row[0] for row in db.execute("SELECT id FROM sessions")]
        together = Conversations(db, every)
        for name in every:
            alone = Conversations(db, {name})
            assert alone.roots().get(name, name) == together.roots().get(name, name)
            for source in (None, "tool"):
                assert (name in alone.hidden(source)) == (name in together.hidden(source))
            assert (name in alone.of_cron()) == (name in together.of_cron())

    assert together.hidden(None) == {"delegate", "went-on", "tool"}
    assert together.of_cron() == {"cron"}
    assert together.roots() == {
        **dict.fromkeys(("s", "delegate", "went-on"), "s"),
        **dict.fromkeys(("reset", "branch"), "reset"),
        **dict.fromkeys(("orphan", "gone"), "gone"),
        **dict.fromkeys(("a", "b"), "a"),
        "cron": "cron",
        "tool": "tool",
    }


def test_newest_and_oldest_go_by_the_time_of_the_message_and_not_by_when_it_came_in(home: Path) -> None:
    def tell(h: History) -> None:
        for name, day in (("tuesday", 2), ("monday", 1), ("wednesday", 3)):
            h.session(name)
            h.say(name, "needle", at_us=T0_US + day * DAY_US)

    with told(home, tell) as db:
        newest, oldest = search(db, "needle", sort="newest"), search(db, "needle", sort="oldest")

    assert sessions(newest) == ["wednesday", "tuesday", "monday"]
    assert sessions(oldest) == ["monday", "tuesday", "wednesday"]


def test_relevance_is_ranked_over_the_newest_hits_and_that_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RANKED", 10)
    with told(home, said(*["needle"] * 10)) as db:
        assert (search(db, "needle").ranked_over, search(db, "needle").notes) == (10, [])

    with told(home.with_name("more"), said(*["needle"] * 12)) as db:
        result = search(db, "needle", limit=100)

    assert result.ranked_over == 10
    assert sessions(result) == [f"s{number}" for number in range(11, 1, -1)]
    assert result.notes == ["ranked over the newest 10 hits; older ones are not among these"]


def test_hits_that_do_not_count_take_no_place_among_the_newest(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(h: History) -> None:
        h.session("s")
        h.say("s", "needle")
        h.session("d", source="subagent", parent_session_id="s", parent_kind="delegate")
        h.session("t", source="telegram")
        h.say("t", "needle", "assistant")
        for _ in range(20):
            h.say("d", "needle")

    monkeypatch.setattr(module, "RANKED", 5)
    with told(home, tell) as db:
        assert set(sessions(search(db, "needle"))) == {"s", "t"}
        assert sessions(search(db, "needle", source="cli")) == ["s"]
        assert sessions(search(db, "needle", roles=["assistant"])) == ["t"]


# --- what counts ----------------------------------------------------------------------------------


def test_d18_archived_sessions_are_searched_and_delegates_on_request(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        h.say("s", "needle")
        h.archive("s")
        h.session("d", parent_session_id="s", parent_kind="delegate")
        h.say("d", "needle of a delegate")
        h.compress("d", "d2")
        h.say("d2", "needle of what the delegate became")
        h.session("t", source="tool")
        h.say("t", "needle of a tool")

    with told(home, tell) as db:
        shown, every = search(db, "needle"), search(db, "needle", hidden=True)
        tool = search(db, "needle", source="tool")

    assert [(each.session_id, each.more) for each in shown.hits] == [("s", 0)]
    assert [(each.session_id, each.more) for each in every.hits] == [("s", 2), ("t", 0)]
    assert sessions(tool) == ["t"]


def test_d20_what_was_undone_is_found_flagged_and_after_what_was_not(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("undone")
        undone = h.say("undone", "needle")
        h.session("compacted")
        compacted = h.say("compacted", "a needle in a sentence that goes on for a while")
        h.rewind("undone", [undone])
        h.compact("compacted", [compacted])

    with told(home, tell) as db:
        hits = search(db, "needle").hits

    assert [(each.session_id, each.visibility) for each in hits] == [
        ("compacted", "compacted"),
        ("undone", "rewound"),
    ]


def test_roles_and_sources_narrow_the_search(home: Path) -> None:
    def tell(h: History) -> None:
        for source in ("cli", "telegram"):
            h.session(source, source=source)
            for role in ("user", "assistant", "tool"):
                h.say(source, f"needle {role}", role)

    with told(home, tell) as db:
        result = search(db, "needle", roles=["user", "tool"], source="telegram")

    assert result.ranked_over == 2
    assert sessions(result) == ["telegram"]


def test_a_copy_that_compaction_kept_is_not_found_twice(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        first = h.say("s", "needle ~~")
        h.say("s", "needle ~~", copy_of=first)

    with told(home, tell) as db:
        assert search(db, "needle").ranked_over == 1
        assert search(db, "~~").ranked_over == 1


# --- an index that trails, fails or lies ----------------------------------------------------------


def test_an_edited_message_is_found_by_its_new_text_alone(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        message = h.say("s", "old words")
        h.append("session:s", MessageEdited(message, {"content": "new words"}))

    with told(home, tell) as db:
        assert search(db, "old").hits == []
        assert sessions(search(db, "new")) == ["s"]
        assert search(db, "words").ranked_over == 1


def test_messages_that_are_not_indexed_yet_are_found(home: Path) -> None:
    with history(home) as written:
        said("old needle")(written)
        with folded(home) as opened:
            written.session("new")
            written.say("new", "new needle")
            opened.catch_up(wait_ms=10_000)
            result = search(opened.state.reader(), "needle")

    assert set(sessions(result)) == {"s0", "new"}
    assert result.notes == []


def test_a_message_erased_while_it_is_searched_for_is_left_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(home) as engine:
        for name in ("stays", "leaves"):
            engine.create_session("cli", session_id=name)
            erased = engine.append_message(name, "user", "needle").position

        def meanwhile(db: Connection, ids: Collection[str]) -> Conversations:
            engine.erase_messages([erased], reason="a secret")
            return Conversations(db, ids)

        monkeypatch.setattr(module, "Conversations", meanwhile)
        assert sessions(search(engine.state.reader(), "needle")) == ["stays"]


def test_a_stale_index_is_passed_over_and_that_is_said(home: Path) -> None:
    with history(home) as written:
        said("a needle in it", "nothing", "the NEEDLE and the hay", "只有汉字")(written)
    with folded(home) as opened:
        with opened.projector.transaction() as db:
            db.execute("UPDATE search_state SET stale = 'it was broken on purpose'")
        reader = opened.state.reader()
        result = search(reader, "needle")

        assert sessions(result) == ["s2", "s0"]
        assert sessions(search(reader, "needle hay")) == ["s2"]
        assert set(sessions(search(reader, "hay OR nothing"))) == {"s1", "s2"}
        assert sessions(search(reader, "汉字")) == ["s3"]
        assert result.notes[0].startswith("the search index failed (it was broken on purpose)")

        rebuild(opened.projector, ["transcripts"])

        assert search(opened.state.reader(), "needle").notes == []


def test_a_damaged_index_is_passed_over_and_telling_it_again_mends_it(home: Path) -> None:
    with history(home) as written:
        said("a needle in it", "nothing")(written)
    with folded(home) as opened:
        with opened.projector.transaction() as db:
            db.execute("UPDATE search_data SET block = zeroblob(40) WHERE id > 10")
        opened.state.close()
        result = search(opened.state.reader(), "needle")

        assert sessions(result) == ["s0"]
        assert result.notes[0].startswith("the search index cannot be read")

        rebuild(opened.projector, ["transcripts"])
        result = search(opened.state.reader(), "needle")

        assert (sessions(result), result.notes) == (["s0"], [])


# --- how fast -------------------------------------------------------------------------------------


def _words() -> Sequence[str]:
    """Texts of some hundred characters; each of 50 needles in one message of a session."""
    filler = "the harbour was quiet and nobody came to ask where the boats had gone that night " * 3
    return tuple(f"{filler} needle{number} {filler}" for number in range(50))


@pytest.mark.slow
def test_a_search_with_2_000_hits_among_100_000_messages_takes_a_few_ms(home: Path) -> None:
    # The bar of 10 ms is the benchmark's; here a machine that is busy with other tests may be slow.
    with told(home, lambda h: many_sessions(h, 2_000, 50, texts=_words())) as db:
        result: Any = None
        took_ms: list[float] = []
        for _ in range(15):
            began = time.thread_time()
            result = search(db, "needle7")
            took_ms.append((time.thread_time() - began) * 1000)

    assert result.ranked_over == 2_000
    assert min(took_ms) < 25
