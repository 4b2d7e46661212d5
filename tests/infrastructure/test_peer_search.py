"""The real Hermes' search tool and ours answer alike on one home, but for what docs/hermes-parity.md says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from retold.infrastructure.engine import open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.reading import reading
from retold.infrastructure.session_search import SessionSearch
from retold.tests.peer import searched_by_peer

pytestmark = pytest.mark.slow
QUERIES = (
    "garden", '"type constructor"', "kitchen", "boat repair", "kitchen plan", "class OR method", "exception",
    "세션", "文件", "tax return", "unicode", "string NOT list", "zzzqqq",
)  # fmt: skip
WAYS: tuple[dict[str, Any], ...] = (
    {}, {"sort": "newest"}, {"sort": "oldest"}, {"role_filter": "tool"},
    {"current_session_id": "20260508_141930_46dc1a26"},
)  # fmt: skip


class Both:
    """One home, in both programs; messages go by the ids that Hermes gave them."""

    def __init__(self, hermes_home: Path, home: Path) -> None:
        with open_home(home) as engine:
            import_hermes(engine, hermes_home)
        with reading(home) as view:
            found = view.db.execute("SELECT id, source_id, session_id, active FROM messages ORDER BY id")
            rows = cast("list[tuple[int, int, str, int]]", found.fetchall())
        self.theirs_of = {row[0]: row[1] for row in rows}
        self.ours_of = {row[1]: row[0] for row in rows}
        self.by_session: dict[str, list[int]] = {}
        for row in rows:
            self.by_session.setdefault(row[2], []).append(row[1])
        self.undone_in = {row[2] for row in rows if not row[3]}
        self._home, self._hermes_home = home, hermes_home

    def ask(self, *asked: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
        """Each question with our answer and theirs."""
        with SessionSearch(self._home) as tool:
            for each, theirs in zip(asked, searched_by_peer(self._hermes_home, *asked), strict=True):
                ours = dict(each)
                if "around_message_id" in ours:
                    ours["around_message_id"] = self.ours_of[ours["around_message_id"]]
                yield each, self._as_theirs(json.loads(tool(**ours))), theirs

    def _as_theirs(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._as_theirs(each) for each in value]
        if not isinstance(value, dict):
            return value
        found = {name: self._as_theirs(each) for name, each in value.items() if name != "visibility"}
        for name in ("match_message_id", "around_message_id", *(["id"] if "content" in found else [])):
            if name in found:
                found[name] = self.theirs_of.get(found[name], found[name])
        return found


@pytest.fixture
def both(hermes_home: Path, home: Path) -> Both:
    return Both(hermes_home, home)


def test_every_session_is_read_as_hermes_reads_it(both: Both) -> None:
    differ = []
    for asked, ours, theirs in both.ask(*({"session_id": each} for each in both.by_session)):
        assert ("message" in ours) == ("message" in theirs)
        if ours | {"message": ""} != theirs | {"message": ""}:
            differ.append(asked)

    assert len(both.by_session) > 50
    assert differ == []


def test_every_window_is_scrolled_as_hermes_scrolls_it(both: Both) -> None:
    asked = [
        {"session_id": session, "around_message_id": message, "window": 4}
        for session, messages in both.by_session.items()
        for message in messages[::5]
    ]

    assert len(asked) > 150
    assert [each for each, ours, theirs in both.ask(*asked) if ours != theirs] == []


def test_every_find_shows_what_hermes_shows(both: Both) -> None:
    """The conversations and all fields; not the order of rank, nor windows of what was undone."""
    compared = 0
    for asked, ours, theirs in both.ask(*({"query": q, "limit": 10, **way} for q in QUERIES for way in WAYS)):
        of_ours, of_theirs = _by_conversation(ours), _by_conversation(theirs)
        assert of_ours.keys() == of_theirs.keys(), asked
        assert ours.get("message") == theirs.get("message"), asked
        if asked.get("sort") == "newest":
            assert list(of_ours) == list(of_theirs), asked
        for conversation, find in of_ours.items():
            other = of_theirs[conversation]
            if find["match_message_id"] != other["match_message_id"]:
                continue  # of two messages that fit as well, the other
            if find["matched_role"] == "session_title":
                other["bookend_start"] = []
                other["bookend_end"] = find["bookend_end"]
            if find["session_id"] not in both.undone_in:
                compared += 1
                assert find | {"snippet": ""} == other | {"snippet": ""}, asked

    assert compared > 100


def _by_conversation(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each.get("parent_session_id", each["session_id"]): each for each in answer["results"]}


def test_the_latest_conversations_are_those_of_hermes(both: Both) -> None:
    for asked, ours, theirs in both.ask({"limit": 10}, {}, {"limit": "7"}, {"limit": 99}):
        for each in (*ours["results"], *theirs["results"]):
            del each["preview"]  # theirs ends in three dots, and may be a summary

        assert ours["results"] == theirs["results"], asked
        assert ours["count"] == theirs["count"]


def test_refusals_are_those_of_hermes(both: Both) -> None:
    session = next(iter(both.by_session))
    message = both.by_session[session][0]
    asked: list[dict[str, Any]] = [
        {"session_id": "nope"},
        {"session_id": "nope", "around_message_id": message},
        {"session_id": session, "around_message_id": message, "current_session_id": session},
    ]

    for each, ours, theirs in both.ask(*asked):
        assert ours == theirs, each
