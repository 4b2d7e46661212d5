"""What lists, pages, trees and counts say of sessions; each test a history and what is told of it.

Over 400 lines because lists, pages and trees are held against the same few histories.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from retold.domain.errors import Ambiguous, BadUsage, NoSuchSession
from retold.domain.events import ParentKind, SourceRowChanged
from retold.projections.find import find_session
from retold.projections.listing import REASONS, Listing, list_sessions
from retold.projections.sessions import (
    Message,
    SourceCount,
    counts,
    messages,
    micros,
    page,
)
from retold.projections.tree import chain, tip, tree
from retold.tests.histories import DAY_US, MINUTE_US, T0_US, History, folded, history, many_sessions

Tell = Callable[[History], object]
KEY = "agent:main:telegram:dm:1001"


@contextmanager
def told(home: Path, tell: Tell) -> Iterator[apsw.Connection]:
    with history(home) as written:
        tell(written)
    with folded(home) as opened:
        yield opened.state.reader()


def ids(listing: Listing) -> list[str]:
    return [each.id for each in listing.rows]


def left_out(listing: Listing) -> dict[str, int]:
    return {reason: count for reason, count in listing.not_shown.items() if count}


# --- the list -------------------------------------------------------------------------------------


def test_d12_the_list_goes_by_last_activity_and_not_by_start(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("old")
        h.session("new")
        h.say("new", "hello")
        h.say("old", "touched just now")

    with told(home, tell) as db:
        listing = list_sessions(db)

    assert ids(listing) == ["old", "new"]
    assert left_out(listing) == {}


def test_equal_activity_is_ordered_by_id(home: Path) -> None:
    def tell(h: History) -> None:
        for name in ("b", "c", "a"):
            h.session(name, at_us=T0_US)

    with told(home, tell) as db:
        assert ids(list_sessions(db)) == ["a", "b", "c"]


def test_what_a_tool_printed_late_is_no_activity(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("worked")
        h.say("worked", "go", at_us=T0_US + 1)
        h.session("talked", at_us=T0_US)
        h.say("talked", "hi", at_us=T0_US + 2)
        h.say("worked", "done", "tool", at_us=T0_US + 3)

    with told(home, tell) as db:
        assert ids(list_sessions(db)) == ["talked", "worked"]


def test_three_compactions_are_one_row_and_four_segments(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s0", title="plan")
        h.say("s0", "first words")
        for number in range(3):
            h.compress(f"s{number}", f"s{number + 1}", title=f"plan #{number + 2}")

    with told(home, tell) as db:
        listing = list_sessions(db)
        segments = chain(db, "s1")

    assert [(each.id, each.title, each.preview) for each in listing.rows] == [
        ("s3", "plan #4", "first words")
    ]
    assert left_out(listing) == {"older_segments": 3}
    assert [each.session_id for each in segments] == ["s0", "s1", "s2", "s3"]


def test_a_continuation_shows_its_own_first_real_message(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s0")
        h.say("s0", "how do I begin")
        h.compress("s0", "s1")
        h.say("s1", "[CONTEXT COMPACTION] so far: …")
        h.say("s1", "and how do I go on")

    with told(home, tell) as db:
        assert list_sessions(db).rows[0].preview == "and how do I go on"


def test_a_summary_is_no_real_message_of_a_list_or_of_a_session_that_is_shown(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s0")
        h.say("s0", "how do I begin")
        h.compress("s0", "s1")
        h.say("s1", "so far: how to begin", summary=True)
        h.say("s1", "look here", "assistant")

    with told(home, tell) as db:
        assert list_sessions(db).rows[0].preview == "how do I begin"
        assert page(db, "s1").line.preview == "how do I begin"


def test_each_session_that_is_not_shown_is_counted_once_with_its_reason(home: Path) -> None:
    kinds: tuple[ParentKind, ...] = ("branch", "reset", "delegate", "tool", "child")

    def tell(h: History) -> None:
        h.session("root")
        for kind in kinds:
            h.session(kind, parent_session_id="root", parent_kind=kind)
        h.compress("delegate", "delegate-goes-on")
        h.session("tool-made", source="tool")
        h.session("put-away")
        h.archive("put-away")
        h.session("s0")
        h.compress("s0", "s1")
        h.archive("s1")

    with told(home, tell) as db:
        listing = list_sessions(db, limit=2)
        everything = list_sessions(db, everything=True)

    assert ids(listing) == ["reset", "branch"]
    assert left_out(listing) == {
        "over_limit": 1,  # root
        "archived": 2,
        "older_segments": 1,
        "delegates": 2,
        "children": 2,
        "tool": 1,
    }
    assert len(everything.rows) == 2 + sum(listing.not_shown.values()) == 11
    assert left_out(everything) == {}
    assert tuple(listing.not_shown) == REASONS


def test_sessions_of_tools_are_shown_to_who_asks_for_that_source(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        h.session("t", source="tool")

    with told(home, tell) as db:
        assert ids(list_sessions(db)) == ["s"]
        assert ids(list_sessions(db, source="tool")) == ["t"]
        assert left_out(list_sessions(db, source="tool")) == {}


def test_the_workspace_is_looked_for_before_the_limit(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("mine", cwd="/home/me/Überbau/src", git_repo_root="/home/me/Überbau")
        h.session("folder", cwd="/srv/ÜBERBAU")
        for number in range(30):
            h.session(f"other{number:02}", cwd="/home/me/else")
        h.session("nowhere")

    with told(home, tell) as db:
        listing = list_sessions(db, workspace="überbau", limit=20)
        limited = list_sessions(db, workspace="else", limit=20)

    assert ids(listing) == ["folder", "mine"]
    assert left_out(listing) == {}
    assert left_out(limited) == {"over_limit": 10}


def test_a_workspace_is_its_repository_before_its_folder(home: Path) -> None:
    with told(home, lambda h: h.session("s", cwd="/home/me/repo/deep", git_repo_root="/home/me/repo")) as db:
        assert ids(list_sessions(db, workspace="deep")) == []
        assert ids(list_sessions(db, workspace="repo")) == ["s"]


def test_a_branch_stays_listed_however_its_parent_ends(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        h.session("b", parent_session_id="s", parent_kind="branch")
        h.end("s", "tui_close")

    with told(home, tell) as db:
        assert set(ids(list_sessions(db))) == {"s", "b"}


def test_sessions_that_continue_each_other_in_a_circle_still_have_a_row(home: Path) -> None:
    def tell(h: History) -> None:
        for name, parent in (("a", "c"), ("b", "a"), ("c", "b"), ("self", "self")):
            h.session(name, parent_session_id=parent, parent_kind="continuation")
        h.say("b", "the last word")

    with told(home, tell) as db:
        listing = list_sessions(db)
        limited = list_sessions(db, limit=1)
        segments = chain(db, "a")

    assert ids(listing) == ["b", "self"]
    assert left_out(listing) == {"older_segments": 2}
    assert left_out(limited) == {"older_segments": 2, "over_limit": 1}
    assert sorted(each.session_id for each in segments) == ["a", "b", "c"]


def test_a_continuation_whose_parent_is_missing_is_a_row(home: Path) -> None:
    with told(home, lambda h: h.session("s", parent_session_id="gone", parent_kind="continuation")) as db:
        assert ids(list_sessions(db)) == ["s"]
        assert left_out(list_sessions(db)) == {}


# --- finding --------------------------------------------------------------------------------------


def _names(h: History) -> None:
    h.session("20260504_aa", title="plan")
    h.compress("20260504_aa", "20260504_ab", title="plan #2")
    h.session("20260505_b", title="plan #bar")
    h.session("20260506_c", title="a_b")
    h.session("20260507_d", title="axb #2")
    h.session("20260508", title="20260504")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("20260504_aa", "20260504_aa"),
        ("20260505", "20260505_b"),
        ("20260508", "20260508"),
        ("plan", "20260504_ab"),
        ("plan #2", "20260504_ab"),
        ("plan #bar", "20260505_b"),
        ("a_b", "20260506_c"),
        ("20260504", "20260508"),
    ],
    ids=[
        "the whole id",
        "the beginning of one",
        "an id that others could begin with",
        "a title means the newest of its lineage",
        "a numbered title means that one",
        "what is no number is a title of its own",
        "an underscore is no wildcard",
        "a title before several beginnings",
    ],
)
def test_a_session_is_found_by(home: Path, name: str, found: str) -> None:
    with told(home, _names) as db:
        assert find_session(db, name) == found


def test_several_beginnings_are_refused_with_candidates(home: Path) -> None:
    with told(home, _names) as db:
        with pytest.raises(Ambiguous, match="2 sessions have an id that begins with '20260504_'") as refused:
            find_session(db, "20260504_")

        assert refused.value.candidates == ["20260504_aa", "20260504_ab"]
        with pytest.raises(NoSuchSession, match="'lan'"):
            find_session(db, "lan")
        for blank in ("", " "):
            with pytest.raises(BadUsage, match="no session is named"):
                find_session(db, blank)


def test_who_changes_a_session_by_its_title_means_the_one_that_bears_it(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s0", title="plan")
        h.session("s1", title="plan #2")

    with told(home, tell) as db:
        assert find_session(db, "plan") == "s1"
        assert find_session(db, "plan", exact=True) == "s0"
        assert find_session(db, "plan #2", exact=True) == "s1"


def test_a_renamed_continuation_is_found_by_its_new_name_at_once(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s0", title="fp")
        h.compress("s0", "s1", title="fp #2")
        h.title("s0", None)
        h.title("s1", "fp")

    with told(home, tell) as db:
        assert find_session(db, "fp") == "s1"
        assert len(list_sessions(db).rows) == 1


# --- chains and trees -----------------------------------------------------------------------------


def test_c9_a_delegate_is_never_followed_as_the_continuation(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s0")
        h.session("d", parent_session_id="s0", parent_kind="delegate")
        h.compress("s0", "s1")

    with told(home, tell) as db:
        expected = [("s0", "root"), ("s1", "continuation")]

        for member in ("s0", "s1"):
            assert [(each.session_id, each.kind) for each in chain(db, member)] == expected
        assert [each.session_id for each in chain(db, "d")] == ["d"]


def test_a_reset_child_is_no_continuation(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1")
        h.session("s2", parent_session_id="s1", parent_kind="reset")

    with told(home, tell) as db:
        assert tip(db, "s1") == "s1"
        assert chain(db, "s2")[0].kind == "reset"


def test_of_several_continuations_the_one_spoken_in_last_is_followed(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s0")
        for name in ("s1", "s2", "s3"):
            h.session(name, parent_session_id="s0", parent_kind="continuation")
        h.say("s3", "the newest")
        h.end("s3", "agent_close")

    with told(home, tell) as db:
        assert tip(db, "s0") == "s3"
        assert [each.session_id for each in chain(db, "s1")] == ["s0", "s1"]


def test_a_live_continuation_goes_before_one_that_ended_for_good(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s0")
        h.session("y", parent_session_id="s0", parent_kind="continuation")
        h.session("x", parent_session_id="s0", parent_kind="continuation")
        h.say("x", "later, but over")
        h.end("x", "session_reset", hard=True)

    with told(home, tell) as db:
        assert tip(db, "s0") == "y"


def test_a_tree_has_every_kind_under_its_oldest_ancestor(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("root", parent_session_id="gone", parent_kind="branch")
        h.session("d", parent_session_id="root", parent_kind="delegate")
        h.compress("root", "next")
        h.session("d2", parent_session_id="d", parent_kind="tool")

    with told(home, tell) as db:
        nodes = list(tree(db, "d2"))

    assert [(each.session_id, each.kind, each.last, each.missing) for each in nodes] == [
        ("gone", "root", (), True),
        ("root", "branch", (True,), False),
        ("d", "delegate", (True, False), False),
        ("d2", "tool", (True, False, True), False),
        ("next", "continuation", (True, True), False),
    ]


def test_a_tree_of_a_circle_ends(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("a", parent_session_id="b", parent_kind="child")
        h.session("b", parent_session_id="a", parent_kind="child")

    with told(home, tell) as db:
        nodes = list(tree(db, "a"))

    assert [(each.session_id, each.again) for each in nodes] == [("b", False), ("a", False), ("b", True)]


# --- one session ----------------------------------------------------------------------------------


def test_a_page_names_the_key_that_leads_here(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1", source="telegram", session_key=KEY)
        h.session("s2", source="telegram", session_key=KEY)
        h.route(KEY, "s1")
        h.route(KEY, "s2", previous="s1", cause="reset")

    with told(home, tell) as db:
        left, led = page(db, "s1"), page(db, "s2")

    assert (left.key, left.route, left.leads_to) == (KEY, None, "s2")
    assert (led.key, led.route, led.leads_to) == (KEY, KEY, "s2")


def test_messages_come_in_the_order_they_were_written_whatever_the_clock_said(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        for text, at_us in (("one", T0_US), ("two", T0_US), ("three", T0_US - DAY_US)):
            h.say("s", text, at_us=at_us)

    with told(home, tell) as db:
        found = list(messages(db, "s"))

    assert [each.content for each in found] == ["one", "two", "three"]
    assert [each.at_us for each in found] == [T0_US, T0_US, T0_US - DAY_US]


def test_a_message_says_whether_it_is_live_compacted_or_rewound(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        said = [h.say("s", text) for text in ("a", "b", "c")]
        h.compact("s", said[:1])
        h.rewind("s", said[2:])

    with told(home, tell) as db:
        assert [each.visibility for each in messages(db, "s")] == ["compacted", "live", "rewound"]


def test_pages_of_a_session_meet_without_gap_or_repeat(home: Path) -> None:
    with told(home, lambda h: many_sessions(h, 1, 25)) as db:
        every = [each.id for each in messages(db, "s000000")]
        forward: list[int] = []
        while found := list(messages(db, "s000000", first=7, after=forward[-1] if forward else None)):
            forward += [each.id for each in found]
        backward: list[int] = []
        while found := list(messages(db, "s000000", last=7, before=backward[0] if backward else None)):
            backward = [each.id for each in found] + backward

    assert every == forward == backward
    assert len(every) == 25


@pytest.mark.slow
def test_the_tail_and_the_head_of_a_session_of_300_000_messages_open_at_once(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("long")
        for _ in range(30):
            with h.together():
                for _ in range(10_000):
                    h.say("long", "again and again", at_us=T0_US)

    found: list[Message] = []
    with told(home, tell) as db:
        took_ms: dict[str, float] = {}
        for name, window in (("last", {"last": 100}), ("first", {"first": 50})):
            began = time.thread_time()
            found = list(messages(db, "long", **window))
            page(db, "long")
            took_ms[name] = (time.thread_time() - began) * 1000

    assert found[0].id == 2
    assert max(took_ms.values()) < 50


def test_what_is_no_time_has_none() -> None:
    assert micros(1_778_000_000.5) == T0_US + 500_000
    assert [micros(each) for each in (float("nan"), float("inf"), "noon", None, True)] == [None] * 5


# --- counts ---------------------------------------------------------------------------------------


def test_counts_hold_every_source_archived_sessions_children_and_undone_messages(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        said = [h.say("s", text) for text in ("a", "b", "c")]
        h.compact("s", said[:1])
        h.rewind("s", said[2:])
        h.session("d", source="subagent", parent_session_id="s", parent_kind="delegate")
        h.say("d", "x")
        h.session("t", source="matrix")
        h.archive("t")
        h.session("u", source="cli")

    with told(home, tell) as db:
        assert counts(db) == [
            SourceCount("cli", 2, 3),
            SourceCount("matrix", 1, 0),
            SourceCount("subagent", 1, 1),
        ]


@pytest.mark.slow
def test_k2_counts_of_15_000_sessions_and_240_000_messages_take_less_than_50_ms(home: Path) -> None:
    found: list[SourceCount] = []
    took_ms: list[float] = []
    with told(home, lambda h: many_sessions(h, 15_000, 16, texts=("yes", "no"))) as db:
        for _ in range(5):
            began = time.thread_time()
            found = counts(db)
            took_ms.append((time.thread_time() - began) * 1000)

    assert found == [SourceCount("cli", 15_000, 240_000)]
    assert statistics.median(took_ms) < 50


@pytest.mark.slow
def test_k6_a_list_of_50_among_5_197_sessions_takes_less_than_50_ms_while_a_writer_appends(
    home: Path,
) -> None:
    with history(home) as written:
        many_sessions(written, 5_197, 25, texts=("yes", "no"))
    with folded(home) as opened:
        stop, appended = threading.Event(), [0]

        def write() -> None:
            writer = History(opened.log)
            while not stop.is_set():
                writer.say("s000007", "one more", at_us=T0_US + 90 * DAY_US + appended[0] * MINUTE_US)
                opened.projector.catch_up()
                appended[0] += 1

        thread = threading.Thread(target=write)
        listing = list_sessions(opened.state.reader(), limit=50)
        thread.start()
        try:
            took_ms: list[float] = []
            while len(took_ms) < 20 or not appended[0]:
                began = time.thread_time()
                listing = list_sessions(opened.state.reader(), limit=50)
                took_ms.append((time.thread_time() - began) * 1000)
        finally:
            stop.set()
            thread.join()

    assert appended[0] > 0
    assert len(listing.rows) == 50
    assert statistics.median(took_ms) < 50


def test_a_message_is_named_by_its_position(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s")
        assert h.say("s", "x") == 2

    with told(home, tell) as db:
        assert next(messages(db, "s")) == Message(2, "user", "x", T0_US + 2_000_000, None, None, "live", None)


def test_a_parent_that_the_source_changed_moves_the_session(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("p")
        h.session("s")
        h.append(
            "session:s",
            SourceRowChanged("session", "s", {"parent_session_id": "p", "parent_kind": "delegate"}),
        )

    with told(home, tell) as db:
        assert left_out(list_sessions(db)) == {"delegates": 1}
