"""The search tool answers as REFERENCE.md 6 says: finds, scrolls, reads and browses; what it refuses.

Over 400 lines because every test asks the same function of the same few sessions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

import retold
from retold.infrastructure.backup import back_up, restore
from retold.infrastructure.home import Home
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.session_search import SessionSearch, session_search
from retold.tests.histories import DAY_US, MINUTE_US, T0_US, History, history

Tell = Callable[[History], object]


class Ask(Protocol):
    def __call__(self, *query: object, **asked: object) -> dict[str, Any]: ...


@contextmanager
def told(home: Path, tell: Tell) -> Iterator[Ask]:
    with history(home) as h:
        tell(h)
    with SessionSearch(home) as tool:
        yield lambda *query, **asked: json.loads(tool(*query, **asked))


def talk(count: int, *, of: str = "s1", about: dict[int, str] | None = None) -> Tell:
    """A session of messages m0, m1, … by a user and an assistant in turn."""

    def tell(h: History) -> None:
        h.session(of, source="telegram", title="boat repair", model="m-1")
        for number in range(count):
            role = "assistant" if number % 2 else "user"
            h.say(of, (about or {}).get(number, f"m{number}"), role)

    return tell


def ids(found: dict[str, Any]) -> list[str]:
    return [each["session_id"] for each in found["results"]]


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [each["content"] for each in messages]


# --- finds ----------------------------------------------------------------------------------------


def test_a_find_has_the_match_its_window_and_both_ends(home: Path) -> None:
    with told(home, talk(30, about={15: "the hull leaks"})) as ask:
        found = ask("hull")
    (hit,) = found["results"]
    anchor = [each for each in hit["messages"] if each.get("anchor")]

    assert {name: found[name] for name in found if name != "results"} == {
        "success": True, "mode": "discover", "query": "hull", "count": 1, "sessions_searched": 1,
    }  # fmt: skip
    assert set(hit) == {
        "session_id", "when", "source", "model", "title", "matched_role", "match_message_id", "snippet",
        "bookend_start", "messages", "bookend_end", "messages_before", "messages_after",
    }  # fmt: skip
    assert (hit["when"], hit["source"], hit["model"]) == ("May 05, 2026 at 04:53 PM", "telegram", "m-1")
    assert (hit["title"], hit["matched_role"]) == ("boat repair", "assistant")
    assert hit["snippet"] == "the >>>hull<<< leaks"
    assert texts(hit["bookend_start"]) == ["m0", "m1", "m2"]
    assert texts(hit["messages"]) == [*(f"m{n}" for n in range(10, 15)), "the hull leaks",
                                      *(f"m{n}" for n in range(16, 21))]  # fmt: skip
    assert texts(hit["bookend_end"]) == ["m27", "m28", "m29"]
    assert (hit["messages_before"], hit["messages_after"]) == (5, 5)
    assert [each["id"] for each in anchor] == [hit["match_message_id"]]
    assert set(anchor[0]) == {"id", "role", "content", "timestamp", "anchor"}


def test_at_an_edge_the_window_is_shorter_and_has_no_bookend_there(home: Path) -> None:
    with told(home, talk(8, about={1: "the hull leaks"})) as ask:
        (hit,) = ask("hull")["results"]

    assert (hit["messages_before"], hit["messages_after"]) == (1, 5)
    assert hit["bookend_start"] == []
    assert texts(hit["bookend_end"]) == ["m7"]


def test_a_window_shows_people_and_assistants_and_counts_what_is_between(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1")
        h.say("s1", "look at the hull")
        h.say("s1", None, "assistant", tool_calls='[{"id":"c1"}]')
        h.say("s1", "planks", "tool", tool_name="read_file", tool_call_id="c1")
        h.say("s1", "it is sound", "assistant")

    with told(home, tell) as ask:
        (by_person,) = ask("hull")["results"]
        (by_tool,) = ask("planks", role_filter="user, tool")["results"]
        in_a_list = ask("planks", role_filter=["user", "tool"])["results"]
        nothing = ask("planks")

    assert [each["role"] for each in by_person["messages"]] == ["user", "assistant", "assistant"]
    assert by_person["messages_after"] == 3
    assert by_person["messages"][1]["tool_calls"] == [{"id": "c1"}]
    assert by_person["messages"][1]["content"] is None
    assert [each["role"] for each in by_tool["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert (by_tool["messages"][2]["tool_name"], by_tool["messages"][2]["tool_call_id"]) == (
        "read_file",
        "c1",
    )
    assert in_a_list == [by_tool]
    assert (nothing["count"], nothing["results"]) == (0, [])


def test_what_is_not_there_is_said_and_is_no_error(home: Path) -> None:
    with told(home, talk(2)) as ask:
        assert ask("zebra") == {
            "success": True, "mode": "discover", "query": "zebra", "results": [], "count": 0,
            "message": "No matching sessions found.",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "count"), [(None, 3), (0, 1), (-5, 1), ("2", 2), ("x", 3), (2.9, 2), (99, 10), ([], 3)]
)
@pytest.mark.parametrize("query", ["hull", ""])
def test_the_limit_is_clamped_and_what_is_no_number_is_three(
    home: Path, query: str, limit: object, count: int
) -> None:
    def tell(h: History) -> None:
        for number in range(12):
            h.session(f"s{number}")
            h.say(f"s{number}", "the hull leaks")

    with told(home, tell) as ask:
        assert ask(query, limit=limit)["count"] == count


def test_a_lineage_is_found_once_under_its_roots_title(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1", source="telegram", title="boat", at_us=T0_US)
        h.say("s1", "the hull")
        h.compress("s1", "s2", source="telegram", title="boat #2", at_us=T0_US + DAY_US)
        h.say("s2", "hull hull hull", at_us=T0_US + DAY_US)
        h.session("s3", parent_session_id="s1", parent_kind="branch", at_us=T0_US + MINUTE_US)
        h.say("s3", "a hull of another kind", at_us=T0_US + MINUTE_US)
        h.session("other", at_us=T0_US + MINUTE_US)
        h.say("other", "one more hull, far away and in more words than these", at_us=T0_US + 2 * MINUTE_US)

    with told(home, tell) as ask:
        found = ask("hull", limit=10)
        newest = ask("hull", limit=10, sort=" Newest ")
        oldest = ask("hull", limit=10, sort="oldest")
        inside = ask("hull", limit=10, current_session_id="s3")

    of_boat = next(each for each in found["results"] if each["title"] == "boat")
    assert found["count"] == 2
    assert of_boat["session_id"] == "s2"
    assert (of_boat["parent_session_id"], of_boat["when"]) == ("s1", "May 05, 2026 at 04:53 PM")
    assert ids(newest)[0] == "s2"
    assert ids(oldest)[0] == "s1"
    assert ids(inside) == ["other"]


def test_what_a_reset_began_is_another_conversation(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1")
        h.say("s1", "the hull")
        h.session("s2", parent_session_id="s1", parent_kind="reset")
        h.say("s2", "hull again")

    with told(home, tell) as ask:
        assert sorted(ids(ask("hull"))) == ["s1", "s2"]
        assert ids(ask("hull", current_session_id="s2")) == ["s1"]


@pytest.mark.parametrize("sort", [None, "newest", "oldest"])
def test_d12_cron_comes_after_all_else_whatever_the_order(home: Path, sort: str | None) -> None:
    def tell(h: History) -> None:
        for number in range(25):
            h.session(f"early{number}", source="cron")
            h.say(f"early{number}", "hull")
        h.session("chat", source="telegram")
        h.say("chat", "about the hull of that boat, at some length, among other things")
        for number in range(25):
            h.session(f"late{number}", source="cron")
            h.say(f"late{number}", "hull")

    with told(home, tell) as ask:
        assert ids(ask("hull", sort=sort))[0] == "chat"


def test_delegates_and_tools_are_left_out_and_archived_sessions_are_not(home: Path) -> None:
    def tell(h: History) -> None:
        kinds: dict[str, dict[str, Any]] = {
            "person": {},
            "archived": {},
            "tool": {"source": "tool"},
            "subagent": {"source": "subagent"},
            "delegate": {"parent_session_id": "person", "parent_kind": "delegate"},
        }
        for name, fields in kinds.items():
            h.session(name, title=f"title of {name}", **fields)
            h.say(name, "hull")
        h.archive("archived")

    with told(home, tell) as ask:
        assert sorted(ids(ask("hull", limit=10))) == ["archived", "person"]
        assert sorted(ids(ask(limit=10))) == ["person"]
        assert ids(ask("title of delegate")) == []


def test_a_title_is_found_first_and_counts(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1", title="boat repair")
        h.say("s1", "hello there")
        h.session("s2")
        h.say("s2", "a boat repair")

    with told(home, tell) as ask:
        first, second = ask(' `"boat repair"` ')["results"]
        (only,) = ask("boat repair", limit=1)["results"]
        inside = ask("boat repair", current_session_id="s1")

    assert (first["session_id"], first["matched_role"]) == ("s1", "session_title")
    assert first["snippet"] == "Session title matched: boat repair"
    assert (first["messages"][0]["id"], first["messages"][0]["anchor"]) == (first["match_message_id"], True)
    assert second["session_id"] == "s2"
    assert only == first
    assert ids(inside) == ["s2"]


def test_a_title_of_a_session_without_messages_is_found_without_an_anchor(home: Path) -> None:
    with told(home, lambda h: h.session("s1", title="boat")) as ask:
        (hit,) = ask("boat")["results"]

    assert (hit["match_message_id"], hit["messages"], hit["messages_before"]) == (None, [], 0)


def test_d20_what_was_undone_is_found_flagged_and_stands_in_no_other_window(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1")
        h.say("s1", "the hull")
        undone = h.say("s1", "the keel")
        h.rewind("s1", [undone])
        h.say("s1", "the mast")

    with told(home, tell) as ask:
        (undone,) = ask("keel")["results"]
        (other,) = ask("hull")["results"]

    assert [each.get("visibility") for each in undone["messages"]] == [None, "rewound", None]
    assert texts(other["messages"]) == ["the hull", "the mast"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("昨晚我们讨论了记忆断裂的问题", "记忆断裂"),
        ("修改youer服务端", "服务端 youer"),
        ("错题", "错题 OR wrong-book"),
        ("it's a C++ thing", "(it's"),
        ("see gateway/run.py, 50% done", "gateway/run.py"),
        ("a_b", "a_b"),
        ("the cat AND the mat", "NOT cat"),
    ],
)
def test_a_query_is_taken_as_it_is_typed(home: Path, text: str, query: str) -> None:
    with told(home, talk(3, about={1: text})) as ask:
        assert ids(ask(query)) == ["s1"]


@pytest.mark.parametrize("query", ["*", '"', "AND", "cat AND AND sat", "(", "\x00", "\ud800", "a" * 5000])
def test_no_query_is_an_error(home: Path, query: str) -> None:
    with told(home, talk(3)) as ask:
        assert ask(query)["success"] is True


def test_k7_what_is_given_and_what_it_costs_does_not_grow_with_the_session(home: Path) -> None:
    with told(home, talk(800, about={400: "the hull leaks"})) as ask:
        ask("hull")
        begun = time.perf_counter()
        (hit,) = ask("hull")["results"]
        took_s = time.perf_counter() - begun

    assert len(hit["bookend_start"]) + len(hit["messages"]) + len(hit["bookend_end"]) == 3 + 11 + 3
    assert took_s < 0.5


# --- scroll ---------------------------------------------------------------------------------------


def positions(ask: Ask, session_id: str) -> list[int]:
    return [each["id"] for each in ask(session_id=session_id)["messages"]]


def test_a_scroll_is_the_messages_around_one_and_goes_before_a_query(home: Path) -> None:
    with told(home, talk(20)) as ask:
        at = positions(ask, "s1")
        found = ask("anything", session_id=" s1 ", around_message_id=str(at[10]), window=2)

    messages = found.pop("messages")
    assert found == {
        "success": True, "mode": "scroll", "session_id": "s1", "around_message_id": at[10], "window": 2,
        "session_meta": {
            "when": "May 05, 2026 at 04:53 PM", "source": "telegram", "model": "m-1", "title": "boat repair",
        },
        "messages_before": 2, "messages_after": 2,
    }  # fmt: skip
    assert texts(messages) == ["m8", "m9", "m10", "m11", "m12"]
    assert [each.get("anchor") for each in messages] == [None, None, True, None, None]


def test_scrolling_on_from_the_last_message_meets_every_message(home: Path) -> None:
    with told(home, talk(25)) as ask:
        at = positions(ask, "s1")
        seen, page = [], ask(session_id="s1", around_message_id=at[0], window=4)
        seen += texts(page["messages"])
        while page["messages_after"] == page["window"]:
            page = ask(session_id="s1", around_message_id=page["messages"][-1]["id"], window=4)
            seen += texts(page["messages"][page["messages_before"] + 1 :])

    assert seen == [f"m{number}" for number in range(25)]


@pytest.mark.parametrize(("window", "shown"), [(None, 5), (0, 1), ("3", 3), ("x", 5), (99, 20)])
def test_the_window_is_clamped(home: Path, window: object, shown: int) -> None:
    with told(home, talk(60)) as ask:
        anchor = ask(session_id="s1")["messages"][0]["id"] + 30
        found = ask(session_id="s1", around_message_id=anchor, window=window)

    assert (found["window"], found["messages_before"], found["messages_after"]) == (shown, shown, shown)


def test_a_scroll_shows_every_role_and_what_was_undone_or_compacted(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1")
        old = h.say("s1", "old")
        h.say("s1", "result", "tool")
        undone = h.say("s1", "undone")
        h.compact("s1", [old])
        h.rewind("s1", [undone])

    with told(home, tell) as ask:
        (tool,) = positions(ask, "s1")
        found = ask(session_id="s1", around_message_id=tool)

    assert texts(found["messages"]) == ["old", "result", "undone"]
    assert [each.get("visibility") for each in found["messages"]] == ["compacted", None, "rewound"]


def test_an_anchor_of_the_same_lineage_is_followed_and_that_is_said(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("s1")
        h.say("s1", "before")
        h.compress("s1", "s2")
        h.say("s2", "after")
        h.session("other")
        h.say("other", "elsewhere")

    with told(home, tell) as ask:
        (after,), (elsewhere,) = positions(ask, "s2"), positions(ask, "other")
        found = ask(session_id="s1", around_message_id=after)
        refused = ask(session_id="s1", around_message_id=elsewhere)

    assert (found["session_id"], texts(found["messages"])) == ("s2", ["after"])
    assert "s2" in found["warning"]
    assert refused == {"error": f"around_message_id {elsewhere} not in session_id s1", "success": False}


def test_what_cannot_be_scrolled_is_refused_in_these_words(home: Path) -> None:
    with told(home, talk(2)) as ask:
        at = positions(ask, "s1")[0]
        said = [
            ask(around_message_id=at),
            ask(session_id="s1", around_message_id="x"),
            ask(session_id="s1", around_message_id=at, current_session_id="s1"),
            ask(session_id="nope", around_message_id=at),
            ask(session_id="s1", around_message_id=10**30),
            ask(session_id="nope"),
            ask("x", profile="work"),
        ]

    assert {each["success"] for each in said} == {False}
    assert [each["error"] for each in said] == [
        "scroll requires session_id",
        "scroll requires integer around_message_id",
        "scroll rejected: anchor lives in the current session lineage (already in your active context)",
        "session_id not found: nope",
        f"around_message_id {10**30} not in session_id s1",
        "session_id not found: nope",
        "profile 'work': a Retold home has no profiles; leave it out",
    ]


# --- read and browse ------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "truncated"), [(30, False), (31, True)])
def test_a_session_is_read_whole_or_its_two_ends(home: Path, count: int, truncated: bool) -> None:
    with told(home, talk(count)) as ask:
        found = ask(session_id="@session:work/s1")

    every = [f"m{number}" for number in range(count)]
    assert (found["mode"], found["session_id"], found["message_count"]) == ("read", "s1", count)
    assert found["truncated"] is truncated
    assert texts(found["messages"]) == (every[:20] + every[-10:] if truncated else every)
    assert ("message" in found) is truncated


def test_browsing_lists_what_was_in_use_last_but_for_the_conversation_that_asks(home: Path) -> None:
    def tell(h: History) -> None:
        h.session("old", title="old one", at_us=T0_US)
        h.say("old", "touched now", at_us=T0_US + 9 * DAY_US)
        h.session("s1", at_us=T0_US + DAY_US)
        h.say("s1", "first words", at_us=T0_US + DAY_US)
        h.compress("s1", "s2", at_us=T0_US + 2 * DAY_US)
        h.say("s2", "going on", at_us=T0_US + 3 * DAY_US)
        h.session("b", parent_session_id="s1", parent_kind="branch", at_us=T0_US + DAY_US)
        h.say("b", "another way", at_us=T0_US + DAY_US + MINUTE_US)
        h.session("empty", at_us=T0_US + 4 * DAY_US)

    with told(home, tell) as ask:
        found = ask("  ", limit=10)
        inside = ask(limit=10, current_session_id="b")

    assert (found["mode"], found["count"], ids(found)) == ("browse", 4, ["old", "empty", "s2", "b"])
    assert found["results"][0] == {
        "session_id": "old", "title": "old one", "source": "cli", "started_at": T0_US / 1e6,
        "last_active": (T0_US + 9 * DAY_US) / 1e6, "message_count": 1, "preview": "touched now",
    }  # fmt: skip
    assert found["results"][2]["started_at"] == (T0_US + DAY_US) / 1e6
    assert ids(inside) == ["old", "empty"]


# --- the home -------------------------------------------------------------------------------------


def test_the_tool_stays_open_while_others_write_and_sees_what_they_wrote(home: Path) -> None:
    with retold.open_home(home) as engine, retold.SessionSearch(home) as tool:
        session = engine.create_session("cli").session_id
        before = json.loads(tool("hull"))
        engine.append_message(session, "user", "the hull leaks")
        after = json.loads(tool("hull"))

    assert (before["count"], after["count"]) == (0, 1)


def test_the_tool_goes_on_when_the_projections_are_damaged_lost_or_told_again(home: Path) -> None:
    with told(home, talk(3, about={1: "the hull leaks"})) as ask:
        counts = [ask("hull")["count"]]
        with Home(home) as opened:
            rebuild(opened.projector, ["transcripts"])
        counts.append(ask("hull")["count"])
        with (home / "state.db").resolve().open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * ((home / "state.db").stat().st_size - 4096))
        counts.append(ask("hull")["count"])
        (home / "state.db").unlink()
        counts.append(ask("hull")["count"])

    assert counts == [1, 1, 1, 1]


def test_the_tool_goes_on_with_a_backup_that_is_put_in_place(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with history(home) as h:
        talk(3, about={1: "the hull leaks"})(h)
    back_up(home, copy)
    with SessionSearch(home) as tool:
        with retold.open_home(home) as engine:
            engine.append_message("s1", "user", "the mast, too")
        before = json.loads(tool("mast"))["count"]
        restore(copy, home, replace=True)
        after = json.loads(tool("mast"))["count"], json.loads(tool("hull"))["count"]

    assert (before, after) == (1, (0, 1))


def test_a_home_that_is_not_there_is_an_error_in_the_answer(home: Path) -> None:
    found = json.loads(session_search("hull", home=home))

    assert found["success"] is False
    assert str(home) in found["error"]
    assert not home.exists()


def test_one_call_is_enough_and_the_home_may_be_named_by_the_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETOLD_HOME", str(home))
    with history(home) as h:
        talk(2, about={1: "the hull leaks"})(h)

    assert json.loads(retold.session_search("hull"))["count"] == 1
