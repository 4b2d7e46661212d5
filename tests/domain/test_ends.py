"""Which end of a session holds."""

from __future__ import annotations

import pytest

from retold.domain.ends import HARD, RESET, is_compression, is_hard, is_reset, stronger


@pytest.mark.parametrize(
    "reason",
    ["session_reset", "session_switch", "idle", "daily", "suspended", "resume_pending_expired"],
)
def test_resets_and_switches_are_hard(reason: str) -> None:
    assert reason in RESET
    assert is_hard(reason)


def test_slash_new_is_a_hard_boundary_though_no_reset_class_end() -> None:
    assert is_hard("new_session")
    assert "new_session" in HARD
    assert "new_session" not in RESET


@pytest.mark.parametrize(
    "reason",
    [
        None,
        "agent_close",
        "ws_orphan_reap",
        "cli_close",
        "cron_complete",
        "idle_timeout",
        "compression",
        "superseded_by_repair",
        "a reason of next year",
    ],
)
def test_other_and_unknown_ends_are_soft(reason: str | None) -> None:
    assert not is_hard(reason)


def test_a_switch_is_no_reset_of_the_chat() -> None:
    assert is_reset("session_reset")
    assert is_reset("new_session")
    assert not is_reset("session_switch")
    assert not is_reset("agent_close")


@pytest.mark.parametrize(
    ("first", "second", "holds"),
    [
        ("agent_close", "session_reset", "session_reset"),
        ("session_reset", "agent_close", "session_reset"),
        ("agent_close", "ws_disconnect", "agent_close"),
        ("session_reset", "daily", "session_reset"),
        (None, "agent_close", "agent_close"),
        ("agent_close", None, "agent_close"),
        (None, None, None),
    ],
)
def test_hard_beats_soft_whichever_comes_first(
    first: str | None, second: str | None, holds: str | None
) -> None:
    assert stronger(first, second) == holds


def test_a_compressed_session_stays_compressed() -> None:
    assert is_compression("compression")
    assert stronger("compression", "session_reset") == "compression"
    assert stronger("agent_close", "compression") == "compression"
    assert stronger("session_reset", "compression") == "session_reset"
