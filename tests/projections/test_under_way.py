"""What is under way in a session: the columns of its row say what the aggregate says, after any history."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from retold.domain import events as e
from retold.domain import session
from retold.domain.session import Session
from retold.infrastructure.home import Home
from retold.projections.gateway import highest_update, open_handoffs, run_by, to_recover
from retold.projections.live_columns import waiting_of
from retold.projections.sessions import page
from retold.tests.histories import MINUTE_US, T0_US, folded, history
from retold.tests.laws.stories import under_way

ends = st.sampled_from(
    [e.SessionEnded("agent_close", hard=False), e.SessionReopened(), e.SessionReset("person")]
)


@given(st.lists(under_way | ends, max_size=25))
def test_the_row_of_a_session_says_what_its_aggregate_says(payloads: list[e.Payload]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with history(home) as told, told.together():
            told.session("s1")
            for each in payloads:
                told.append("session:s1", each)
        with folded(home) as opened:
            state = aggregate(opened)
            row = opened.state.reader().execute(
                "SELECT running_turn, coalesce(lease_until_us, 0), coalesce(turn_since_us, 0), turn_gateway,"
                " resume_reason, coalesce(resume_marked_us, 0), restarts, suspended, handoff_state,"
                " handoff_platform, handoff_error, coalesce(handoff_deadline_us, 0), waiting FROM sessions"
            )
            (found,) = row.fetchall()
            shown = page(opened.state.reader(), "s1").under_way

    now, marks, handoff = state.turns, state.marks, state.handoff
    assert found[:4] == (now.running, now.lease_until_us, now.since_us, now.gateway)
    assert found[4:8] == (marks.resume, marks.marked_us, marks.restarts, marks.suspended)
    deadline_us = handoff.deadline_us if handoff.open else 0
    assert found[8:12] == (handoff.state, handoff.platform, handoff.error, deadline_us)
    waiting = None if found[12] is None else str(found[12])
    assert waiting_of(waiting) == [(each.turn, each.lane) for each in now.waiting]
    assert (shown.turn, shown.waiting, shown.resume) == (now.running, len(now.waiting), marks.resume)


def aggregate(opened: Home) -> Session:
    state: Session | None = None
    for event in opened.log.stream_events("session:s1"):
        state = session.evolve(state, "s1", event.version, event.payload, event.at_us)
    assert state is not None
    return state


def test_a_start_looks_at_those_in_a_turn_those_marked_and_those_active(home: Path) -> None:
    with history(home) as told:
        for name in ("silent", "active", "marked", "running"):
            told.session(name, source="telegram")
            told.route(f"K {name}", name)
        told.say("silent", "long ago", at_us=T0_US)
        told.say("active", "just now", at_us=T0_US + 10 * MINUTE_US)
        told.append("session:marked", e.ResumeMarked("restart_interrupted", 1))
        told.append("session:running", e.TurnStarted("t1", T0_US, gateway="main"))
        told.session("unrouted")
        told.append("session:unrouted", e.TurnStarted("t1", T0_US, gateway="second"))
    with folded(home) as opened:
        db = opened.state.reader()
        main = {each.session_id: each.key for each in to_recover(db, "main", T0_US + 10 * MINUTE_US)}
        second = {each.session_id: each.key for each in to_recover(db, "second", T0_US + 60 * MINUTE_US)}

        assert main == {name: f"K {name}" for name in ("active", "marked", "running")}
        assert second == {"marked": "K marked", "running": "K running", "unrouted": None}
        assert (run_by(db, "main"), run_by(db, "second")) == (["running"], ["unrouted"])


def test_a_handoff_that_an_import_brought_is_nobodys_to_claim(home: Path) -> None:
    with history(home) as told:
        told.session("imported", columns={"handoff_state": "pending", "handoff_platform": "telegram"})
        told.session("ours")
        told.append("session:ours", e.HandoffRequested("telegram", T0_US))
    with folded(home) as opened:
        assert open_handoffs(opened.state.reader()) == ["ours"]


def test_the_highest_update_is_by_number_and_what_is_no_number_has_none(home: Path) -> None:
    with history(home) as told:
        for update in ("9", "10", "x", "99999999999999999999"):
            told.append("inbox:aa", e.UpdateSeen("telegram", update))
        told.append("inbox:bb", e.UpdateSeen("telegram", "11"))
        told.append("inbox:cc", e.UpdateSeen("slack", "abc"))
    with folded(home) as opened:
        db = opened.state.reader()

        assert (highest_update(db, "telegram"), highest_update(db, "telegram", "inbox:aa")) == (11, 10)
        assert highest_update(db, "slack") is None


def test_what_gateways_did_and_what_is_set_is_told(home: Path) -> None:
    with history(home) as told:
        told.append("gateway:main", e.GatewayStarted(clean=True, platforms=["telegram"]))
        told.append("gateway:main", e.RecoveryRan(["s1"], passed_over={"b": "2", "a": "1"}))
        told.append("gateway:main", e.SettingChanged("drain", "admin", until_us=5))
        told.append("gateway:main", e.GatewayStopped(clean=False, reason="restart", running=["s1"]))
        told.append("gateway:main", e.GatewayStarted(clean=False))
        told.append("gateway:main", e.MaintenanceRan("prune", {"sessions": 3}))
        told.append("gateway:main", e.HomeChannelSet("telegram", "1"))
        told.append("gateway:main", e.HomeChannelSet("telegram", "2", name="n"))
        told.append("gateway:main", e.HomeChannelSet("slack", "3"))
        told.append("gateway:main", e.HomeChannelSet("slack", None))
    with folded(home) as opened:
        db = opened.state.reader()
        runs = db.execute("SELECT clean, platforms, stopped_clean, reason, running FROM gateway_runs")
        recovered = db.execute("SELECT marked, passed_over, loop FROM recovery_runs")
        settings = db.execute("SELECT gateway, name, value, until_us FROM settings")
        channels = db.execute("SELECT platform, chat_id, name FROM home_channels")

        assert runs.fetchall() == [
            (1, '["telegram"]', 0, "restart", '["s1"]'),
            (0, "[]", None, None, None),
        ]
        assert recovered.fetchall() == [('["s1"]', '{"a":"1","b":"2"}', 0)]
        assert settings.fetchall() == [("main", "drain", "admin", 5)]
        assert channels.fetchall() == [("telegram", "2", "n")]
        assert db.execute("SELECT kind, done FROM maintenance_runs").fetchall() == [
            ("prune", '{"sessions":3}')
        ]
