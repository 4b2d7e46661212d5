"""A session's context against a plain list: whatever is said, edited, compacted, undone and redone."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retold import Message
from retold.domain.errors import NothingToDo
from retold.domain.view import View
from retold.infrastructure.engine import SessionEngine, open_home

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["say", "say", "say", "call", "user", "edit", "rewind", "undo", "redo", "compact", "move"]
        ),
        st.integers(0, 6),
    ),
    min_size=6,
    max_size=30,
)
SESSION = itertools.count()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionEngine]:
    with open_home(tmp_path_factory.mktemp("contexts") / "home", synchronous="NORMAL") as opened:
        yield opened


class Chat:
    """What a person would expect: lists of messages by number, and what each of them says."""

    def __init__(self) -> None:
        self.live: list[int] = []
        self.history: list[int] = []
        self.says: list[str] = []
        self.users: set[int] = set()
        self.before: dict[int, list[int]] = {}
        """What stood in the context before a message, when it last came into it."""
        self.came: dict[int, int] = {}
        """When it last came into the context."""
        self.redoable: list[dict[str, Any]] = []
        self.moved = 0
        self._now = 0

    def say(self, text: str, *, user: bool) -> int:
        number = len(self.says)
        self.says.append(text)
        if user:
            self.users.add(number)
        self.history.append(number)
        self._enter(number)
        self.redoable.clear()
        return number

    def _enter(self, number: int) -> None:
        self._now += 1
        self.before[number], self.came[number] = list(self.live), self._now
        self.live.append(number)

    def compact(self, summary: str, keep: int) -> None:
        turns = [each for each in self.live if each in self.users]
        kept = [] if keep == 0 else self.live[self.live.index(turns[-keep]) :]
        self.live = []
        self.say(summary, user=False)
        for each in kept:
            self._enter(each)

    def move(self, summary: str, keep: int) -> None:
        self.moved = self._now
        self.compact(summary, keep)

    def rewind(self, number: int) -> None:
        state = ("live", "history", "before", "came")
        self.redoable.append({name: copy.deepcopy(getattr(self, name)) for name in state})
        left = self.live[: self.live.index(number)] if number in self.live else self.before[number]
        since = self.came[number]
        self.history = [each for each in self.history if self.came[each] < since or each in left]
        self.live = left

    def redo(self) -> None:
        vars(self).update(self.redoable.pop())

    def turns(self) -> list[int]:
        """Those that can be gone back to: a session knows what it kept of the one before, and no more."""
        return [each for each in self.history if each in self.users and self.came[each] > self.moved]


class Run:
    """The same steps on an engine's session and on a list."""

    def __init__(self, engine: SessionEngine) -> None:
        self.engine = engine
        self.session = f"s{next(SESSION)}"
        self.chat = Chat()
        self.ids: list[int] = []
        """Of each message of the list its id."""
        engine.create_session("cli", session_id=self.session)

    def append(self, message: Message, said: str) -> None:
        self.ids.append(self.engine.append(self.session, message).position)
        self.chat.say(said, user=message.role == "user")

    def step(self, name: str, pick: int) -> None:
        chat, engine, session, number = self.chat, self.engine, self.session, len(self.ids)
        if name in ("say", "user", "call"):
            self.append(Message("user", f"u{number}"), f"u{number}")
        if name == "call":
            call = {"id": f"c{pick}", "function": {"name": "weather"}}
            self.append(Message("assistant", f"t{number}", tool_calls=[call]), f"t{number}")
            self.append(Message("tool", f"r{number}", tool_call_id=f"c{pick}"), f"r{number}")
        if name in ("say", "call"):
            self.append(Message("assistant", f"a{number}"), f"a{number}")
        turns, said = chat.turns(), [each for each in chat.history if each in chat.users]
        if name == "edit" and said:
            edited = said[pick % len(said)]
            chat.says[edited] = f"e{number} {pick}"
            engine.edit_message(session, chat.says[edited], message=self.ids[edited])
        elif name == "rewind" and turns:
            chosen = turns[pick % len(turns)]
            engine.rewind(session, self.ids[chosen])
            chat.rewind(chosen)
        elif name == "undo" and turns:
            engine.undo_turns(session, pick + 1)
            chat.rewind(turns[max(0, len(turns) - pick - 1)])
        elif name == "redo":
            self.redo()
        elif name in ("compact", "move"):
            keep = min(pick, sum(each in chat.users for each in chat.live))
            self.compress(f"s{number}", keep, in_place=name == "compact")

    def redo(self) -> None:
        if self.chat.redoable:
            self.engine.redo(self.session)
            self.chat.redo()
        else:
            with pytest.raises(NothingToDo):
                self.engine.redo(self.session)

    def compress(self, summary: str, keep: int, *, in_place: bool) -> None:
        chat, engine, session = self.chat, self.engine, self.session
        leaving = chat.live[:]
        if keep:
            leaving = leaving[: leaving.index([each for each in leaving if each in chat.users][-keep])]
        if all(chat.says[each].startswith("s") for each in leaving) and (in_place or keep):
            with pytest.raises(NothingToDo):
                engine.compress(session, summary, keep_last=keep, in_place=in_place)
            return
        self.session = engine.compress(session, summary, keep_last=keep, in_place=in_place).session_id
        self.ids.append(self.engine.view(self.session).messages[0].id)
        (chat.compact if in_place else chat.move)(summary, keep)

    def check(self) -> None:
        chat = self.chat
        view, history = self.engine.view(self.session), self.engine.history(self.session)

        assert said(view) == [chat.says[each] for each in chat.live]
        assert said(history) == [chat.says[each] for each in chat.history]
        assert view.warnings == []
        assert [each.visibility for each in history.messages] == [
            "live" if each in chat.live else "compacted" for each in chat.history
        ]
        db = self.engine.state.reader()
        counts = db.execute("SELECT message_count FROM sessions WHERE id = ?", (self.session,)).fetchall()
        assert counts == [(len(chat.live),)]
        assert view.version == self.engine.session(self.session).version


def said(view: View) -> list[Any]:
    return [each.content for each in view.messages]


@settings(max_examples=60)
@given(STEPS)
@example([("say", 0), ("say", 0), ("compact", 1), ("undo", 1), ("redo", 0)])
@example([("call", 0), ("say", 0), ("compact", 1), ("call", 0), ("compact", 1), ("rewind", 0), ("redo", 0)])
@example([("say", 0), ("say", 0), ("compact", 0), ("rewind", 1), ("redo", 0)])
@example([("say", 0), ("compact", 0), ("undo", 6), ("say", 0), ("redo", 0)])
def test_views_history_and_counts_are_those_of_a_plain_list(engine: SessionEngine, steps: list[Step]) -> None:
    run = Run(engine)
    for name, pick in steps:
        run.step(name, pick)
        run.check()
