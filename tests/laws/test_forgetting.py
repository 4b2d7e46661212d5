"""After any history, once a text was forgotten no byte of it is in any file of the home, and it stays so."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retold.domain import events as e
from retold.domain.errors import RetoldError
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.history import state_at
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.verify import verify
from retold.infrastructure.when import Point
from retold.tests.infrastructure.filled import content, told_from_nothing
from retold.tests.infrastructure.test_erasing import SECRET, traces

T0_US = 1_778_000_000_000_000
SESSIONS = ("s1", "s2", "s3")
TEXTS = (
    SECRET,
    f"before {SECRET} after",
    json.dumps({"a": [SECRET, {"b": json.dumps(SECRET)}]}),
    f'\0json:[{{"type":"text","text":"{SECRET}"}}]',
    f"{SECRET}{SECRET}",
    "x" * 3000 + SECRET,
    "nothing to hide",
)

sessions = st.sampled_from(SESSIONS)
said = st.sampled_from(TEXTS)
Step = Callable[[SessionEngine], object]


def write(session_id: str, payload: e.Payload) -> Step:
    def step(engine: SessionEngine) -> None:
        engine.session(session_id)
        version = engine.event_log.stream_version(f"session:{session_id}") + 1
        engine.save_events([e.Event(f"session:{session_id}", version, payload, T0_US)])

    return step


def last_message(session_id: str, then: Callable[[SessionEngine, int], object]) -> Step:
    def step(engine: SessionEngine) -> None:
        engine.projector.catch_up()
        sql = "SELECT max(id) FROM messages WHERE session_id = ?"
        (found,) = engine.state.reader().execute(sql, (session_id,)).fetchall()
        if isinstance(found[0], int):
            then(engine, found[0])

    return step


steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        lambda s, t, c: lambda en: en.append_message(s, "assistant", t, tool_calls=json.dumps([c])),
        sessions,
        said,
        said,
    ),
    st.builds(lambda s, t: lambda en: en.append_message(s, "user", t, idempotency_key=t), sessions, said),
    st.builds(
        lambda s, t: lambda en: en.append_messages(s, [{"role": "user", "content": t}] * 70), sessions, said
    ),
    st.builds(lambda s, t: lambda en: en.title_session(s, t[:60]), sessions, said),
    st.builds(lambda s, t: lambda en: en.compress_session(s, t), sessions, said),
    st.builds(lambda s, t: write(s, e.PromptChanged("ab" * 16, text=t)), sessions, said),
    st.builds(lambda s, t: write(s, e.TurnQueued("t1", t, "slot", about={"n": t})), sessions, said),
    st.builds(lambda s, t: write(s, e.ModelChanged(t, t)), sessions, said),
    st.builds(
        lambda s, t: write(s, e.IdentityLost({"display_name": t}, {"display_name": t})), sessions, said
    ),
    st.builds(
        lambda s, t: last_message(s, lambda en, m: write(s, e.MessageEdited(m, {"content": t}))(en)),
        sessions,
        said,
    ),
    st.builds(lambda s: last_message(s, lambda en, m: en.forget_message(s, m)), sessions),
    st.builds(lambda s, t: lambda en: en.delete_session(s, t), sessions, said),
    st.builds(lambda s: lambda en: en.delete_session(s, now=True), sessions),
    st.builds(lambda s: lambda en: en.undelete_session(s), sessions),
    st.just(lambda en: en.forget_text(SECRET)),
    st.just(lambda en: en.projector.settle(wait_ms=10_000)),
    st.just(lambda en: state_at(en.event_log, en.home, Point(position=en.head().position)).close()),
    st.just(lambda en: rebuild(en.projector, ["transcripts"])),
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
@given(st.lists(steps, min_size=3, max_size=15))
def test_after_any_history_nothing_of_a_forgotten_text_is_left(told: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with open_home(home, synchronous="NORMAL") as engine:
            for session_id in SESSIONS:
                engine.create_session("telegram", session_id=session_id, display_name=SECRET)
            for each in told:
                with contextlib.suppress(RetoldError):  # a rule may forbid it there
                    each(engine)
            engine.forget_text(SECRET)

            assert traces(home) == {}
            found = verify(home)
            assert (found.exit_code, found.log.problems, found.problems) == (0, [], [])
            assert content(engine.projector) == told_from_nothing(engine.event_log)
            names = list(engine.projector.projections)
            assert all(each.equal for each in rebuild(engine.projector, names, compare=True))
            assert traces(home) == {}
        assert traces(home) == {}
