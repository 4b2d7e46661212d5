"""`sessions show` says what runs and waits in a session, and what a restart or a handoff left on it."""

from __future__ import annotations

from pathlib import Path

from retold.domain import events as e
from retold.tests.conftest import Run
from retold.tests.histories import MINUTE_US, T0_US, history

S1 = "session:s1"


def header(run: Run) -> dict[str, str]:
    """The facts above the messages, by name."""
    rows = [line.strip().split(maxsplit=1) for line in run("sessions", "show", "s1").stdout.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def test_a_turn_and_what_waits_are_shown(home: Path, run: Run) -> None:
    with history(home) as told:
        told.session("s1", at_us=T0_US)
        told.append(S1, e.TurnStarted("t1", T0_US + 2 * MINUTE_US, gateway="main"), at_us=T0_US)
        told.append(S1, e.TurnQueued("t2", "later", "overflow"))
        told.append(S1, e.TurnQueued("t3", "first", "slot"))
    answer = run("sessions", "show", "s1", "--json").json

    assert answer["turn"] == {
        "id": "t1",
        "started_at": "2026-05-05T16:53:20Z",
        "lease_until_at": "2026-05-05T16:55:20Z",
        "gateway": "main",
    }
    assert answer["queued"] == 2
    assert header(run)["turn"] == (
        "t1 since 2026-05-05 16:53:20, gateway main; counts as cut off after 2026-05-05 16:55:20; 2 queued"
    )


def test_marks_and_handoffs_are_shown(home: Path, run: Run) -> None:
    with history(home) as told:
        told.session("s1", at_us=T0_US)
        told.append(S1, e.ResumeMarked("restart_interrupted", 2), at_us=T0_US)
        told.append(S1, e.HandoffRequested("telegram", T0_US))
        told.append(S1, e.HandoffFailed("the bot was blocked"))
    answer = run("sessions", "show", "s1", "--json").json
    marked_at = "2026-05-05T16:53:20Z"

    assert answer["resume"] == {"reason": "restart_interrupted", "marked_at": marked_at, "restarts": 2}
    assert answer["handoff"] == {"state": "failed", "platform": "telegram", "error": "the bot was blocked"}
    facts = header(run)
    assert facts["resume"] == (
        "to be gone on with (restart_interrupted), marked 2026-05-05 16:53:20, 2 restarts in a row"
    )
    assert facts["handoff"] == "failed to telegram: the bot was blocked"


def test_a_suspended_session_is_shown_as_such(home: Path, run: Run) -> None:
    with history(home) as told:
        told.session("s1")
        told.append(S1, e.SessionSuspended("stuck", 3))

    assert run("sessions", "show", "s1", "--json").json["suspended"] == "stuck"
    assert header(run)["resume"] == "suspended (stuck): the chat's next message begins a new session"


def test_where_nothing_is_under_way_nothing_is_said_of_it(home: Path, run: Run) -> None:
    with history(home) as told:
        told.session("s1")

    assert not header(run).keys() & {"turn", "resume", "handoff"}
