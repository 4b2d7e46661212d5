"""Random commands of several writers that crash, held against the model: sessions, messages, chats, turns.

Over 400 lines because it is one machine: hypothesis takes rules and checks from a single class.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from retold.cli.chats.answer import answer_for
from retold.cli.chats.text import lines as words_of
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.reading import reading
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.verify import verify
from retold.tests.infrastructure.filled import content, told_from_nothing
from retold.tests.infrastructure.importing import edit
from retold.tests.proof.model import DAY, FORGOTTEN, HOUR, MINUTE, Led, Policy, Refused, Said, Talk, Then
from retold.tests.proof.worker import CRASHES
from retold.tests.proof.world import CHANNELS, World
from retold.tests.proof.writers import DIED, Answer, Clock, Local, Remote, Server

SOURCES: tuple[dict[str, str], ...] = (
    {"platform": "telegram", "chat_id": "1001", "chat_name": "Boat", "user_id": "501"},
    {"platform": "telegram", "chat_id": "1002", "user_id": "502"},
    {"platform": "slack", "chat_id": "D7", "user_id": "U7"},
)
KEYS = ("agent:main:telegram:dm:1001", "agent:main:telegram:dm:1002", "agent:main:slack:dm:D7")
TITLES = ("plan", "plan #2", "計画", "boat", "the sail", "varnish")
ENDS = ("cli_close", "user_exit", "session_reset", "agent_close")
START_US = 1_600_000_000_000_000
LONG_AGO_US = 1_000_000_000_000_000
HERMES = "h1"
"""The one session of the Hermes home that is imported now and then."""
UNDOABLE = {
    *("title_session", "untitle_session", "auto_title", "archive_session", "unarchive_session"),
    *("pin_session", "unpin_session", "end_session", "reopen_session", "rewind", "redo", "compact"),
    *("delete_session", "undelete_session", "resume", "close_key", "create_session", "undo"),
    *("delete_conversation", "resume_session"),
    # A conflict that was settled by the words of a source is not: a text has no reverse.
}
"""Commands whose save can always be taken back while nothing came after it."""

Change: TypeAlias = Callable[[World, Answer], object]
number = st.integers(0, 11)
writers = st.sampled_from([0, 0, 0, 1, 1, 2])
crashes = st.sampled_from([None] * 9 + list(CRASHES))


class Home(RuleBasedStateMachine):
    """One home and what is expected of it."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.folder = Path(tempfile.mkdtemp(prefix="retold-proof-"))
        self.home = self.folder / "home"
        self.clock = Clock(START_US)
        self.model = World()
        self.last: tuple[str, list[int], World] | None = None
        """The latest command that saved anything: its positions, and what was expected before it."""
        self.past: list[tuple[int, dict[str, Then]]] = []
        """Every position after a command, and each session as it was then."""
        self.source_ids: dict[int, int] = {}
        """The messages that were imported: their positions, and their ids in the source."""
        self.made = self.told = 0
        self.writers: list[Local | Remote] = []

    @initialize()
    def open(self) -> None:
        self._configure()
        self.writers = [Local(self.home, self.clock), Local(self.home, self.clock)]
        self.eyes.engine.maintain(at_us=LONG_AGO_US)  # long ago, and no start of a gateway sees to it again
        for each, chat in zip(CHANNELS, ("1001", "D7"), strict=True):
            self.eyes.engine.set_home_channel(each, chat, at_us=START_US)
        self.writers.append(Remote(self.server, self.home, self.clock))
        self.resolve(chat=0, said=True, by=0, crash=None)
        self.create(pick=0, kind=None, by=0, crash=None)

    def teardown(self) -> None:
        try:
            if self.writers:
                self.compare()
        finally:
            for each in self.writers:
                each.close()
            shutil.rmtree(self.folder)

    # --- what every rule does ----------------------------------------------------------------------

    @property
    def eyes(self) -> Local:
        """The engine by which the home is looked at."""
        local = self.writers[self.made % 2]
        assert isinstance(local, Local)
        return local

    def name(self, kind: str = "s") -> str:
        self.made += 1
        return f"{kind}{self.made}"

    def any_talk(self, pick: int) -> str:
        """A session, the younger the likelier; also one that was deleted."""
        names = list(self.model.talks)[::-1]
        return names[pick % min(len(names), 6)] if names else "nobody"

    def do(
        self,
        command: str,
        given: dict[str, Any],
        change: Change,
        *,
        by: int = 0,
        crash: str | None = None,
        find: Callable[[], Answer] | None = None,
    ) -> Answer:
        """One command, by one of the writers, and what is expected of it.

        Args:
            find: what the command would have answered, where its writer died after the save.
        """
        given = {"at_us": self.clock.now_us, **given}
        heard = self.writers[by].tell(command, given, crash)
        if heard == DIED:
            if crash != "after":
                self.check()
                return heard
            saved = {"positions": [self.eyes.engine.head().position]}
            heard = {**saved, **(find() if find is not None else {})}
        before = self.model
        trial = copy.deepcopy(before)
        try:
            change(trial, heard)
        except Refused as expected:
            kinds: tuple[str, ...] = expected.kinds
        else:
            kinds, self.model = (), trial
        assert heard.get("refused") in (kinds or (None,)), (command, given, heard, kinds)
        if heard.get("positions"):
            self.last = command, heard["positions"], before
        self.check()
        return heard

    # --- sessions ----------------------------------------------------------------------------------

    @rule(
        pick=number,
        kind=st.sampled_from([None, None, None, "delegate", "branch", "continuation"]),
        by=writers,
        crash=crashes,
    )
    def create(self, pick: int, kind: str | None, by: int, crash: str | None) -> None:
        name, parent = self.name(), None
        if kind is not None and (known := self.any_talk(pick)) in self.model.talks:
            parent = known
        title = TITLES[pick % 8] if pick % 8 < len(TITLES) else None
        at = self.clock.now_us
        given = {"source": "cli", "session_id": name, "title": title, "parent": parent}
        self.do(
            "create_session",
            given | ({"parent_kind": kind} if parent else {}),
            lambda m, _: m.create(name, "cli", at, title=title, parent=parent, kind=kind if parent else None),
            by=by,
            crash=crash,
        )

    @rule(pick=number, end=st.sampled_from(ENDS), by=writers, crash=crashes)
    def end(self, pick: int, end: str, by: int, crash: str | None) -> None:
        name, at = self.any_talk(pick), self.clock.now_us
        given = {"session_id": name, "reason": end}
        self.do("end_session", given, lambda m, _: m.end(name, end, at), by=by, crash=crash)

    @rule(pick=number, by=writers, crash=crashes)
    def reopen(self, pick: int, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        self.do("reopen_session", {"session_id": name}, lambda m, _: m.reopen(name), by=by, crash=crash)

    @rule(
        pick=number,
        before=st.sampled_from([None, "end", "end", "stop", "compress", "delete"]),
        end=st.sampled_from(ENDS),
        by=writers,
        crash=crashes,
    )
    def resume_session(self, pick: int, before: str | None, end: str, by: int, crash: str | None) -> None:
        """A person goes on with a session in a terminal, after something was to be over there."""
        name = self.any_talk(pick)
        match before:
            case "end":
                self.end(pick=pick, end=end, by=by, crash=None)
            case "stop":
                self.stop(pick=pick, by=by, crash=None)
            case "compress":
                self.compress(pick=pick, keep=0, by=by, crash=None)
            case "delete":  # where it went on, which is not there then
                talk = self.model.talks.get(name)
                goes_on = None if talk is None else talk.goes_on
                if goes_on is not None:
                    at = self.clock.now_us
                    self.do("delete_session", {"session_id": goes_on}, lambda m, _: m.delete(goes_on, at))
        heard = self.do(
            "resume_session", {"session_id": name}, lambda m, _: m.resume_session(name), by=by, crash=crash
        )
        if heard.get("session") is not None:  # and is told where that is
            assert heard["session"] == self.model.tip(self.model.talks[name]).id, heard

    @rule(pick=number, what=st.sampled_from(["archive", "pin"]), on=st.booleans(), by=writers, crash=crashes)
    def flag(self, pick: int, what: str, on: bool, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        command = f"{'' if on else 'un'}{what}_session"
        flag: Any = {"archive": "archived", "pin": "pinned"}[what]
        self.do(command, {"session_id": name}, lambda m, _: m.flag(name, flag, on), by=by, crash=crash)

    # --- messages ----------------------------------------------------------------------------------

    @rule(pick=number, user=st.booleans(), more=st.integers(0, 3), by=writers, crash=crashes)
    def say(self, pick: int, user: bool, more: int, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        for number in range(more):
            self._say(name, self.name("message "), number % 2 == 0, by, None)
        self._say(name, self.name("message "), user, by, crash)

    @rule(pick=number, by=writers)
    def say_again(self, pick: int, by: int) -> None:
        """A platform delivers what it has delivered before."""
        if self.model.delivered:
            known = list(self.model.delivered)
            name, key = known[-1 - pick % len(known)]
            said = self.model.delivered[name, key]
            if said.text == key:
                self._say(name, key, said.user, by, None)

    def _say(self, name: str, text: str, user: bool, by: int, crash: str | None) -> None:
        at = self.clock.now_us
        given = {
            "session_id": name,
            "role": "user" if user else "assistant",
            "content": text,
            "idempotency_key": text,
        }

        def again() -> Answer:
            """Who was not answered sends it again, and it is not said twice."""
            return self.writers[(by + 1) % 3].tell("append_message", {**given, "at_us": at})

        self.do(
            "append_message",
            given,
            lambda m, heard: (
                m.append(name, text, text, user, at, (heard["positions"] or [0])[0])
                if "positions" in heard
                else m.append(name, text, text, user, at, -1)
            ),
            by=by,
            crash=crash,
            find=again,
        )

    def _live(self, name: str, pick: int, *, user: bool = False) -> int | None:
        """The place of a message in the context."""
        talk = self.model.talks.get(name)
        places = [
            place
            for place, each in enumerate(talk.live if talk is not None else [])
            if not (each.summary or each.erased or each.undone) and (each.user or not user)
        ]
        return places[-1 - pick % len(places)] if places else None

    def _id(self, name: str, place: int) -> int:
        """The id that the engine shows for what stands there."""
        shown = self.eyes.engine.view(name).messages
        at = sum(not (each.erased or each.undone) for each in self.model.talks[name].live[:place])
        return shown[at].id

    @rule(pick=number, which=number, by=writers, crash=crashes)
    def edit(self, pick: int, which: int, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        self._edit(name, self._live(name, which), by, crash)

    def _edit(self, name: str, place: int | None, by: int, crash: str | None) -> None:
        talk = self.model.talks.get(name)
        if talk is None or talk.deleted or place is None or talk.live[place].text == FORGOTTEN:
            return
        text, said = self.name("edited "), self._id(name, place)
        if self.model.tip(talk) is talk:  # what goes on elsewhere keeps what it was given
            self.do(
                "edit_message",
                {"session_id": name, "message": said, "content": text},
                lambda m, _: m.edit(name, m.talks[name].live[place], text),
                by=by,
                crash=crash,
            )

    @rule(pick=number, which=number, by=writers, crash=crashes)
    def rewind(self, pick: int, which: int, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        place = self._live(name, which, user=True)
        talk = self.model.talks.get(name)
        if talk is None or talk.deleted or place is None:
            return
        self.do(
            "rewind",
            {"session_id": name, "message": self._id(name, place)},
            lambda m, _: m.rewind(name, m.talks[name].live[place]),
            by=by,
            crash=crash,
        )

    @rule(pick=number, by=writers, crash=crashes)
    def redo(self, pick: int, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        self.do("redo", {"session_id": name}, lambda m, _: m.redo(name), by=by, crash=crash)

    @rule(pick=number, keep=st.integers(0, 2), by=writers, crash=crashes)
    def compress(self, pick: int, keep: int, by: int, crash: str | None) -> None:
        """In the way of the configuration."""
        name, child, summary = self.any_talk(pick), self.name("c"), self.name("summary ")
        at, in_place = self.clock.now_us, self.model.in_place
        given = {"session_id": name, "summary": summary, "keep_last": keep}
        self.do(
            "compress",
            given if in_place else {**given, "continuation_id": child},
            lambda m, _: (
                m.compact(name, summary, keep, at) if in_place else m.compress(name, child, summary, keep, at)
            ),
            by=by,
            crash=crash,
        )

    @rule(pick=number, titled=st.booleans(), lead=st.booleans(), by=writers, crash=crashes)
    def branch(self, pick: int, titled: bool, lead: bool, by: int, crash: str | None) -> None:
        name, made, at = self.any_talk(pick), self.name("b"), self.clock.now_us
        title = TITLES[pick % len(TITLES)] if titled else None
        self.do(
            "branch_session",
            {"session_id": name, "branch_id": made, "title": title, "lead": lead},
            lambda m, _: m.branch(name, made, title, lead, at),
            by=by,
            crash=crash,
        )

    def _seen(self, back: int) -> tuple[int, dict[str, Then]]:
        """A position of some commands ago, and what was there then."""
        return self.past[-1 - min(back, len(self.past) - 1)]

    @rule(pick=number, back=number, titled=st.booleans(), lead=st.booleans(), by=writers, crash=crashes)
    def branch_then(self, pick: int, back: int, titled: bool, lead: bool, by: int, crash: str | None) -> None:
        """From how it was some commands ago, whatever was undone, compressed or edited since."""
        position, then = self._seen(back * back // 4)
        spoke = [name for name, each in then.items() if each.live]
        name = spoke[-1 - pick % len(spoke)] if spoke and pick < 9 else self.any_talk(pick)
        made, at = self.name("b"), self.clock.now_us
        title = self.name("title ") if titled else None
        there = then.get(name, Then((), (), frozenset()))
        self.do(
            "branch_session",
            {"session_id": name, "branch_id": made, "title": title, "lead": lead, "as_of": position},
            lambda m, _: m.branch(name, made, title, lead, at, there),
            by=by,
            crash=crash,
        )

    # --- forgetting --------------------------------------------------------------------------------

    @rule(pick=number, which=number, by=writers, crash=crashes)
    def forget(self, pick: int, which: int, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        place = self._live(name, which)
        talk = self.model.talks.get(name)
        if talk is None or talk.deleted or place is None:
            return
        self.do(
            "forget_message",
            {"session_id": name, "message": self._id(name, place)},
            lambda m, _: m.forget(name, m.talks[name].live[place]),
            by=by,
            crash=crash,
        )
        self.last = None

    @rule(pick=number, which=number, by=writers, crash=crashes)
    def erase(self, pick: int, which: int, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        place = self._live(name, which)
        talk = self.model.talks.get(name)
        if talk is None or talk.deleted or place is None:
            return
        heard = self.writers[by].tell(
            "erase_messages", {"positions": [self._id(name, place)], "reason": "asked for"}, crash
        )
        assert "refused" not in heard, heard
        if heard != DIED or crash == "after":
            self.model.erase(talk.live[place])
        self.last = None
        self.check()

    @rule(pick=number, by=writers, crash=crashes)
    def delete(self, pick: int, by: int, crash: str | None) -> None:
        name, at = self.any_talk(pick), self.clock.now_us
        self.do("delete_session", {"session_id": name}, lambda m, _: m.delete(name, at), by=by, crash=crash)

    @rule(
        pick=number,
        back=st.sampled_from([0, 0, 0, 1, 2, 5]),
        along=st.booleans(),
        now=st.sampled_from([False, False, False, True]),
        by=writers,
        crash=crashes,
    )
    def delete_conversation(
        self, pick: int, back: int, along: bool, now: bool, by: int, crash: str | None
    ) -> None:
        """All segments as somebody saw them, with what was seen to go along."""
        name, at = self.any_talk(pick), self.clock.now_us
        talk = self.model.known(name)
        names = [name] if talk is None else [each.id for each in self.model.chain(talk)]
        position, then = self._seen(back)
        seen = {other for each in names if each in then for other in then[each].delegates}
        given: dict[str, Any] = {"session_ids": names, "as_of": position, "now": now}
        given["along"] = sorted(seen - set(names)) if along else None
        before = self.model
        heard = self.do(
            "delete_conversation",
            given,
            lambda m, heard: (
                _raise(Refused("changed_meanwhile"))
                if back and heard.get("refused") == "changed_meanwhile"  # there and back again
                else m.delete_conversation(names, at, then)
            ),
            by=by,
            crash=None if now else crash,
        )
        if now and "positions" in heard:
            for each in self.model.talks.values():
                if each.deleted and not before.talks[each.id].deleted:
                    self.model.erase_session(each.id)
            self.last = None
            self.check()

    @precondition(lambda self: any(each.deleted for each in self.model.talks.values()))
    @rule(pick=number, by=writers, crash=crashes)
    def undelete(self, pick: int, by: int, crash: str | None) -> None:
        gone = [each.id for each in self.model.talks.values() if each.deleted]
        name = (gone or [self.any_talk(pick)])[pick % max(1, len(gone))]
        self.do("undelete_session", {"session_id": name}, lambda m, _: m.undelete(name), by=by, crash=crash)

    @rule(pick=number, by=writers, crash=crashes)
    def erase_deleted(self, pick: int, by: int, crash: str | None) -> None:
        gone = [each.id for each in self.model.talks.values() if each.deleted and not each.erased]
        if gone:
            name = gone[pick % len(gone)]
            given = {"session_ids": [name], "reason": "asked for"}
            heard = self.writers[by].tell("erase_sessions", given, crash)
            if heard == DIED:  # whoever comes next finishes it
                heard = self.writers[(by + 1) % 3].tell("erase_sessions", given)
            assert "refused" not in heard, heard
            self.model.erase_session(name)
            self.last = None
            self.check()

    # --- titles ------------------------------------------------------------------------------------

    @rule(pick=number, title=st.sampled_from([*TITLES, None]), by=writers, crash=crashes)
    def title(self, pick: int, title: str | None, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        command = "untitle_session" if title is None else "title_session"
        given = {"session_id": name} | ({} if title is None else {"title": title})
        self.do(command, given, lambda m, _: m.title(name, title), by=by, crash=crash)

    @rule(pick=number, title=st.sampled_from(TITLES), by=writers, crash=crashes)
    def auto_title(self, pick: int, title: str, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        given = {"session_id": name, "title": title}
        self.do("auto_title", given, lambda m, _: m.auto_title(name, title), by=by, crash=crash)

    # --- chats -------------------------------------------------------------------------------------

    @rule(chat=st.integers(0, 2), said=st.booleans(), by=writers, crash=crashes)
    def resolve(self, chat: int, said: bool, by: int, crash: str | None) -> None:
        """The next message of a chat comes."""
        key, source, at = KEYS[chat], SOURCES[chat], self.clock.now_us
        heard = self.do(
            "resolve",
            {"source": source},
            lambda m, heard: m.resolve(key, source["platform"], at, heard["session"]),
            by=by,
            crash=crash,
            find=lambda: {"session": self.eyes.engine.route_of(key)},
        )
        if heard != DIED:
            assert heard["session"] == self.model.routes[key].to, heard
            if said:
                self._say(heard["session"], self.name("message "), True, by, None)

    @rule(chat=st.integers(0, 2), title=st.sampled_from([None, None, *TITLES]), by=writers, crash=crashes)
    def reset(self, chat: int, title: str | None, by: int, crash: str | None) -> None:
        key, source, made, at = KEYS[chat], SOURCES[chat], self.name(), self.clock.now_us
        self.do(
            "reset",
            {"key": key, "source": source, "session_id": made, "title": title},
            lambda m, _: m.reset(key, source["platform"], made, title, at),
            by=by,
            crash=crash,
        )

    @rule(chat=st.integers(0, 2), pick=number, by=writers, crash=crashes)
    def resume(self, chat: int, pick: int, by: int, crash: str | None) -> None:
        key, name, at = KEYS[chat], self.any_talk(pick), self.clock.now_us
        given = {"key": key, "session_id": name}
        self.do("resume", given, lambda m, _: m.resume(key, name, at), by=by, crash=crash)

    @rule(chat=st.integers(0, 2), by=writers, crash=crashes)
    def close_key(self, chat: int, by: int, crash: str | None) -> None:
        key, at = KEYS[chat], self.clock.now_us
        if key in self.model.routes:
            self.do("close_key", {"key": key}, lambda m, _: m.close_key(key, at), by=by, crash=crash)

    @rule(by=writers, crash=st.sampled_from([None, None, None, *CRASHES]), spared=st.integers(0, 2))
    def expire(self, by: int, crash: str | None, spared: int) -> None:
        """Each chat is a save of its own: whoever dies on the way leaves the others to the next."""
        at = self.clock.now_us
        writer = self.writers[by]
        if crash is not None and isinstance(writer, Local):
            writer.dies_in(crash, lambda: writer.engine.expire_due(at_us=at), spared=spared)
        self.do("expire_due", {}, lambda m, _: m.expire(at), by=by)
        self.last = None

    # --- turns -------------------------------------------------------------------------------------

    @rule(
        pick=number,
        what=st.sampled_from(["begin_turn", "begin_turn", "finish_turn", "next_turn", "enqueue", "enqueue"]),
        turn=st.integers(1, 5),
        lane=st.sampled_from(["slot", "overflow"]),
        gateway=st.sampled_from([None, "main", "spare"]),
        by=writers,
        crash=crashes,
    )
    def turn(
        self,
        pick: int,
        what: str,
        turn: int,
        lane: str,
        gateway: str | None,
        by: int,
        crash: str | None,
    ) -> None:
        name, at = self.any_talk(pick), self.clock.now_us
        mine = f"{name} t{turn}"
        talk = self.model.talks.get(name)
        if what in ("begin_turn", "finish_turn") and turn > 3 and talk is not None:  # one that is known here
            mine = talk.running or next((each for each, _ in talk.waiting), mine)
        given: dict[str, Any] = {"session_id": name, "turn": mine}
        change: Change
        match what:
            case "begin_turn":
                given["gateway"] = gateway
                change = lambda m, _: m.begin(name, mine, at, gateway)  # noqa: E731
            case "finish_turn":
                change = lambda m, _: m.finish(name, mine, at)  # noqa: E731
            case "next_turn":
                given = {"session_id": name, "gateway": gateway}
                change = lambda m, _: m.next_turn(name, at, gateway)  # noqa: E731
            case _:
                given |= {"text": f"do {mine}", "lane": lane}
                change = lambda m, _: m.enqueue(name, mine, lane)  # noqa: E731
        self.do(what, given, change, by=by, crash=crash)

    @rule(pick=number, by=writers, crash=crashes)
    def clear_queue(self, pick: int, by: int, crash: str | None) -> None:
        name = self.any_talk(pick)
        self.do("clear_queue", {"session_id": name}, lambda m, _: m.clear_queue(name), by=by, crash=crash)

    @rule(pick=number, by=writers, crash=crashes)
    def stop(self, pick: int, by: int, crash: str | None) -> None:
        name, at = self.any_talk(pick), self.clock.now_us
        self.do("stop_session", {"session_id": name}, lambda m, _: m.stop(name, at), by=by, crash=crash)

    # --- taking back -------------------------------------------------------------------------------

    @precondition(lambda self: self.last is not None)
    @rule(which=number, by=writers, crash=crashes)
    def undo(self, which: int, by: int, crash: str | None) -> None:
        """Undo the last save, by any of its positions."""
        assert self.last is not None
        command, positions, before = self.last
        now = self.model
        given = {"position": positions[which % len(positions)], "at_us": self.clock.now_us}
        heard = self.writers[by].tell("undo", given, crash)
        if heard == DIED and crash != "after":
            self.check()
            return
        if "refused" in heard:
            assert heard["refused"] == "not_undoable", heard
            assert command not in UNDOABLE, (command, heard)
            self.last = None
        else:
            self.model = taken_back(now, before)
            self.last = ("undo", heard["positions"], now) if heard.get("positions") else None
        self.check()

    # --- the world around --------------------------------------------------------------------------

    @rule(
        us=st.sampled_from([0, MINUTE, 3 * MINUTE, HOUR, 7 * HOUR, DAY, 30 * DAY, -MINUTE, -HOUR, -3 * DAY])
    )
    def clock_jumps(self, us: int) -> None:
        self.clock.now_us += us

    @rule(
        mode=st.sampled_from(["none", "none", "idle", "daily", "both", "daily_and_idle"]),
        in_place=st.booleans(),
    )
    def config_changes(self, mode: Any, in_place: bool) -> None:
        self.model.policy, self.model.in_place = Policy(mode), in_place
        self._configure()
        for each in self.writers:
            each.reopen()

    def _configure(self) -> None:
        self.home.mkdir(exist_ok=True)
        (self.home / "config.yaml").write_text(
            "timezone: UTC\n"
            f"session_reset: {{mode: {self.model.policy.mode}, idle_minutes: 60, at_hour: 4}}\n"
            f"compression: {{in_place: {str(self.model.in_place).lower()}}}\n"
            "sessions: {erase_after: 36500, min_interval_hours: 876000}\n"
        )

    @precondition(lambda self: self.told < self.made)
    @rule()
    def rebuild(self) -> None:
        self.told = self.made
        projector = self.eyes.engine.projector
        told = rebuild(projector, list(projector.projections), compare=True)
        assert [each.differences for each in told] == [()] * len(told)

    @rule(by=st.sampled_from([0, 1]), crash=crashes, spared=st.integers(0, 2))
    def import_more(self, by: int, crash: str | None, spared: int) -> None:
        """A Hermes home has one message more than the last time."""
        hermes = self.folder / "hermes"
        if not hermes.exists():
            make_hermes(hermes)
        text, at = self.name("imported "), self.clock.now_us
        row = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, ?)"
        edit(hermes, row, HERMES, text, at / 1e6)
        writer = self.writers[by]
        assert isinstance(writer, Local)
        if crash is not None:
            writer.dies_in(crash, lambda: import_hermes(writer.engine, hermes), spared=spared)
        import_hermes(writer.engine, hermes)
        self.eyes.engine.projector.catch_up()
        talk = self.model.talks.setdefault(HERMES, Talk(HERMES, "cli", START_US))
        if not talk.erased:
            found = self.asked("SELECT max(message) FROM source_messages")
            self.source_ids[found] = self.asked(
                "SELECT source_id FROM source_messages WHERE message = ?", str(found)
            )
            self.model.take_in(HERMES, Said(text, found, HERMES, at, user=True))
        self.last = None
        self.check()

    def _repeated_nowhere(self) -> list[int]:
        return [each for each in self.source_ids if self.model.said_once(each)]

    @rule(
        pick=number,
        here=st.booleans(),
        agrees=st.sampled_from([False, False, True]),
        keep=st.sampled_from([None, None, "ours", "theirs"]),
        by=st.sampled_from([0, 1]),
        crash=crashes,
        spared=st.integers(0, 1),
    )
    def source_edits(
        self, pick: int, here: bool, agrees: bool, keep: Any, by: int, crash: str | None, spared: int
    ) -> None:
        """A message that was imported is edited in its source, maybe here before, and maybe it is settled."""
        if not self._repeated_nowhere():
            self.import_more(by=by, crash=None, spared=0)
        roots = self._repeated_nowhere()
        if not roots:  # its session was erased
            return
        root = roots[pick % len(roots)]
        if here:
            shown = enumerate(self.model.talks[HERMES].live)
            places = [at for at, each in shown if each.root == root and not (each.undone or each.erased)]
            self._edit(HERMES, next(iter(places), None), by, None)
        ours = next(each.text for each in self.model.talks[HERMES].rows if each.root == root)
        text = ours if agrees else self.name("edited there ")
        hermes, writer = self.folder / "hermes", self.writers[by]
        edit(hermes, "UPDATE messages SET content = ? WHERE id = ?", text, self.source_ids[root])
        assert isinstance(writer, Local)
        if crash is not None:
            writer.dies_in(crash, lambda: import_hermes(writer.engine, hermes), spared=spared)
        import_hermes(writer.engine, hermes)
        self.model.edit_there(root, text)
        self.last = None
        self.check()
        if keep is not None and self.model.conflicts:
            self.settle(pick=pick, keep=keep, by=by, crash=None)

    @precondition(lambda self: self.model.conflicts)
    @rule(pick=number, keep=st.sampled_from(["ours", "theirs"]), by=writers, crash=crashes)
    def settle(self, pick: int, keep: Any, by: int, crash: str | None) -> None:
        """A person says whose text stands."""
        root = list(self.model.conflicts)[pick % len(self.model.conflicts)]
        if self.model.said_once(root) and self.model.known(HERMES) is not None:
            sql = "SELECT position FROM source_conflicts WHERE row = ?"
            given = {"position": self.asked(sql, str(self.source_ids[root])), "keep": keep}
            self.do("resolve_conflict", given, lambda m, _: m.settle(root, keep), by=by, crash=crash)

    # --- what must hold ----------------------------------------------------------------------------

    def check(self) -> None:
        """The home is as the model says."""
        engine, model = self.eyes.engine, self.model
        assert engine.projector.catch_up().detached == {}
        for key in KEYS:
            led = engine.route_of(key)
            assert led == model.led(key).to, (key, led, model.led(key), self.sketch(led, model.led(key).to))
        rows = engine.state.reader().execute("SELECT key, session_id FROM routes ORDER BY key")
        assert [tuple(row) for row in rows] == [
            (key, led.to) for key, led in sorted(model.routes.items()) if led.to is not None
        ]
        for title in {*TITLES, *model.claims}:
            assert engine.claim(title).holder == model.claims.get(title), title
        for talk in model.there():
            self.check_talk(talk)
        listed = engine.state.reader().execute("SELECT id FROM sessions ORDER BY id")
        assert [row[0] for row in listed] == sorted(each.id for each in model.there())
        found = engine.state.reader().execute("SELECT row, theirs FROM source_conflicts")
        wanted = {str(self.source_ids[root]): text for root, text in model.conflicts.items()}
        assert sorted((str(row), theirs) for row, theirs in found) == sorted(wanted.items())
        head = engine.head().position
        if not self.past or self.past[-1][0] != head:
            self.past.append((head, model.then()))

    def sketch(self, *names: str | None) -> list[str]:
        """Sessions in a few words each, for who reads of a fault."""
        return [repr(self.model.talks[each]) for each in names if each in self.model.talks]

    def check_talk(self, talk: Talk) -> None:
        engine = self.eyes.engine
        state = engine.session(talk.id)
        seen = (state.title, state.archived, state.pinned, state.key, state.hard_end, state.ended)
        wanted = (talk.title, talk.archived, talk.pinned, talk.key, talk.hard, talk.end is not None)
        assert seen == wanted, (seen, talk)
        left = (state.source, state.parent_id, state.marks.resume, state.handoff.state)
        expected = (talk.source, talk.parent, talk.resume, talk.handoff.state)
        assert left == expected, (left, talk)
        assert state.successor == talk.goes_on, talk
        under_way = ([each.turn for each in state.turns.waiting], state.turns.running)
        assert under_way == ([turn for turn, _ in talk.waiting], talk.running), (under_way, talk)
        assert (state.marks.suspended is not None) == talk.suspended, talk
        view = engine.view(talk.id)
        shown = [str(each.content) for each in view.messages]
        assert shown == self.model.view(talk.id), (talk.id, shown, self.model.view(talk.id))
        history = engine.history(talk.id)
        shown = sorted(str(each.content) for each in history.messages)
        assert shown == self.model.history(talk.id), (talk.id, shown, self.model.history(talk.id))
        twins = "SELECT count(*) FROM sessions WHERE parent_session_id = ? AND parent_kind = 'continuation'"
        assert self.asked(twins, talk.id) <= 1, talk

    def asked(self, sql: str, *values: str) -> int:
        """A number from the projections, as far as they have come."""
        db = self.eyes.engine.state.reader()
        return int(str(next(iter(db.execute(sql, values)))[0]))

    def compare(self) -> None:
        """Everything that is told is what the log says, and every route can be explained."""
        engine = self.eyes.engine
        engine.projector.catch_up()
        assert content(engine.projector) == told_from_nothing(engine.event_log)
        with reading(self.home, None) as view:
            for key in KEYS:
                if self.model.led(key) != Led():
                    answer = answer_for(view, key)
                    led = self.model.led(key).to
                    assert (answer.session_id, answer.route is None) == (led, led is None)
                    assert list(words_of(view, answer, ""))
        found = verify(self.home)
        assert (found.exit_code, found.problems) == (0, [])


def _raise(refused: Refused) -> None:
    raise refused


def taken_back(now: World, before: World) -> World:
    """What is expected after an undo: all as before, what had been given up too; and no turn runs twice."""
    back = copy.deepcopy(before)
    fresh = copy.deepcopy(now)
    back.policy, back.in_place, back.summaries = now.policy, now.in_place, now.summaries
    back.led_ever, back.runs, back.holds = now.led_ever, fresh.runs, now.holds
    for name, talk in fresh.talks.items():
        was = back.talks.get(name)
        if was is None:
            talk.had_title = talk.title is not None
            talk.deleted, talk.along, talk.left_keys, talk.waiting = True, [name], [], []
            talk.gave_up = []
            back.talks[name] = talk
            continue
        was.running, was.lease_us, was.since_us = talk.running, talk.lease_us, talk.since_us
        was.turns, was.queued, was.last_turn = talk.turns, talk.queued, talk.last_turn
        was.named = was.named or talk.named
        was.gateway, was.handoff, was.opened = talk.gateway, talk.handoff, talk.opened
    return back


def make_hermes(path: Path) -> None:
    """A Hermes home with one session of a terminal, in which nothing was said yet."""
    path.mkdir()
    for table in (
        "sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, started_at REAL NOT NULL)",
        "messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, timestamp REAL)",
    ):
        edit(path, f"CREATE TABLE {table}")
    edit(path, "INSERT INTO sessions VALUES (?, 'cli', ?)", HERMES, START_US / 1e6)
