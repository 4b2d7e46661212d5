"""Random lives of chats, held after every step against a small model of what a person would expect."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from retold.domain.session_source import SessionSource
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.rebuild import rebuild
from retold.tests.infrastructure.routing import (
    DAY,
    HOUR,
    MINUTE,
    Clock,
    findings,
    opened,
    rows,
)

CHATS = tuple(SessionSource("telegram", each, each, user_id=each, user_name=each) for each in ("1", "2"))
IDLE_MINUTES = 600
CONFIG = f"timezone: UTC\nsession_reset: {{mode: both, at_hour: 4, idle_minutes: {IDLE_MINUTES}}}\n"
chats = st.sampled_from(range(len(CHATS)))


class Talk(msgspec.Struct):
    """What a person knows of a chat: where it goes on, and what was said in each of its sessions."""

    here: str | None = None
    over: bool = False
    """It was reset, or ended for good: the next message begins anew."""
    used_us: int = 0
    said: dict[str, int] = {}
    """Messages by session."""


class Chats(RuleBasedStateMachine):
    """Two chats of one home."""

    @initialize(policy=st.booleans())
    def begin(self, policy: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.config = CONFIG if policy else ""
        self.policy = policy
        self.talks = [Talk() for _ in CHATS]
        self.open()

    def open(self) -> None:
        self.context = opened(Path(self.folder.name) / "home", self.clock, self.config)
        self.engine: SessionEngine = self.context.__enter__()

    def teardown(self) -> None:
        if hasattr(self, "context"):
            self.context.__exit__(None, None, None)
            self.folder.cleanup()

    def is_due(self, talk: Talk) -> bool:
        """The policy, told plainly: idle for too long, or four in the morning has come since."""
        if not self.policy or talk.here is None:
            return False
        idle = self.clock.now_us > talk.used_us + IDLE_MINUTES * MINUTE
        mornings = (self.clock.now_us - 4 * HOUR) // DAY - (talk.used_us - 4 * HOUR) // DAY
        exactly = (talk.used_us - 4 * HOUR) % DAY == 0 and mornings == 0
        return idle or (mornings > 0 and not exactly)

    # --- what happens ------------------------------------------------------------------------------

    @rule(chat=chats)
    def somebody_writes(self, chat: int) -> None:
        talk = self.talks[chat]
        anew = talk.here is None or talk.over or self.is_due(talk)

        found = self.engine.resolve(CHATS[chat])

        assert found.created == anew
        assert anew or found.session_id == talk.here
        assert self.engine.resolve(CHATS[chat]).positions == ()
        if anew:
            assert found.session_id not in talk.said
        self.engine.append_message(found.session_id, "user", "hello")
        talk.here, talk.over, talk.used_us = found.session_id, False, self.clock.now_us
        talk.said[found.session_id] = talk.said.get(found.session_id, 0) + 1

    @rule(us=st.sampled_from([1, MINUTE, HOUR, 9 * HOUR, 10 * HOUR, DAY]))
    def time_passes(self, us: int) -> None:
        self.clock.pass_by(us)

    @rule(chat=chats)
    def somebody_resets(self, chat: int) -> None:
        talk = self.talks[chat]
        found = self.engine.reset(self.engine.key_of(CHATS[chat]), source=CHATS[chat])

        assert found.session_id not in talk.said
        talk.here, talk.over, talk.used_us = found.session_id, False, self.clock.now_us
        talk.said[found.session_id] = 0

    @precondition(lambda self: any(each.here for each in self.talks))
    @rule(
        chat=chats, reason=st.sampled_from(["agent_close", "ws_orphan_reap", "session_reset", "new_session"])
    )
    def a_session_ends(self, chat: int, reason: str) -> None:
        talk = self.talks[chat]
        if talk.here is not None:
            self.engine.end_session(talk.here, reason)
            talk.over = talk.over or reason in ("session_reset", "new_session")

    @rule(chat=chats)
    def a_session_is_compressed(self, chat: int) -> None:
        talk = self.talks[chat]
        if talk.here is not None and not talk.over and not self.engine.session(talk.here).ended:
            found = self.engine.compress_session(talk.here, "what was said")
            talk.here, talk.used_us = found.session_id, self.clock.now_us
            talk.said[found.session_id] = 1

    @rule(chat=chats, which=st.integers(0, 9))
    def somebody_goes_back(self, chat: int, which: int) -> None:
        talk = self.talks[chat]
        if talk.said:
            asked = list(talk.said)[which % len(talk.said)]
            found = self.engine.resume(self.engine.key_of(CHATS[chat]), asked)
            assert found.session_id in talk.said
            last = rows(
                self.engine,
                "SELECT coalesce(last_active_us, started_us) FROM sessions WHERE id = ?",
                found.session_id,
            )
            talk.here, talk.over, talk.used_us = found.session_id, False, last[0][0]

    @rule(chat=chats)
    def a_job_runs_in_its_name(self, chat: int) -> None:
        key = self.engine.key_of(CHATS[chat])
        made = self.engine.create_session("cron", chat_id=CHATS[chat].chat_id, chat_type="dm").session_id
        self.engine.append_message(made, "user", "the job")
        assert self.engine.route_of(key) != made

    @rule()
    def a_watcher_looks(self) -> None:
        due = {each.here for each in self.talks if self.is_due(each) and not each.over}
        expired = {each.session_id for each in self.engine.expire_due()}

        assert expired <= due
        for talk in self.talks:
            if talk.here is not None and talk.here in due:
                assert talk.here in expired or self.engine.session(talk.here).hard_end
                talk.over = True

    @rule()
    def the_program_starts_again(self) -> None:
        self.context.__exit__(None, None, None)
        self.open()

    @rule()
    def everything_is_told_again(self) -> None:
        told = rebuild(self.engine.projector, list(self.engine.projector.projections), compare=True)
        assert told

    # --- what holds --------------------------------------------------------------------------------

    @invariant()
    def nothing_is_wrong(self) -> None:
        if not hasattr(self, "engine"):
            return
        over = {each.here for each in self.talks if each.over}  # until the next message
        assert [
            each
            for each in findings(self.engine)
            if each.kind != "routed_to_ended" or each.session_id not in over
        ] == []
        counts = dict(rows(self.engine, "SELECT id, message_count FROM sessions WHERE source = 'telegram'"))
        assert counts == {name: count for talk in self.talks for name, count in talk.said.items()}


Chats.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestChats = Chats.TestCase
