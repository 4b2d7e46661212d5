"""Whether the projections stand at the head is told without loading a fold, and never too kindly."""

from __future__ import annotations

from pathlib import Path

import pytest

from retold.infrastructure.engine import open_home
from retold.infrastructure.home import Home
from retold.infrastructure.lag import none_behind


@pytest.fixture
def told(home: Path) -> Home:
    """A home with a message that every projection has folded, open for reading."""
    engine = open_home(home)
    session = engine.create_session("cli").session_id
    engine.append_message(session, "user", "hello")
    engine.close()
    return Home(home, read_only=True)


def test_what_stands_at_the_head_is_not_behind(told: Home) -> None:
    with told:
        assert none_behind(told.log, told.state) == told.projector.lag()


def test_a_log_that_went_on_is_for_the_projector(told: Home) -> None:
    before = none_behind(told.log, told.state)
    engine = open_home(told.path)
    engine.projector.follow = lambda *_: None  # type: ignore[method-assign]  # as if killed right here
    engine.create_session("cli")
    engine.close()

    with told:
        assert before is not None
        assert none_behind(told.log, told.state) is None


@pytest.mark.parametrize(
    "change",
    [
        "fold_version = 99",
        "chain = x'00'",
        "log_id = 'another'",
        "detached = 'it failed'",
        "unknown_topics = '[\"later.1\"]'",
        "passed_over = '[[1, 1]]'",
        "position = 1",
    ],
)
def test_a_checkpoint_that_says_anything_else_is_for_the_projector(told: Home, change: str) -> None:
    with told:
        with told.projector.transaction() as db:
            db.execute(f"UPDATE checkpoints SET {change} WHERE projection = 'routing'")

        assert none_behind(told.log, told.state) is None


def test_a_fold_with_other_unicode_tables_is_for_the_projector(told: Home) -> None:
    with told:
        with told.projector.transaction() as db:
            db.execute("UPDATE checkpoints SET unicode = '3.2.0' WHERE projection = 'transcripts'")

        assert none_behind(told.log, told.state) is None


def test_a_projection_that_is_missing_is_for_the_projector(told: Home) -> None:
    with told:
        with told.projector.transaction() as db:
            db.execute("DELETE FROM checkpoints WHERE projection = 'usage'")

        assert none_behind(told.log, told.state) is None
