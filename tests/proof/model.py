"""What a user would expect of a home, in dicts and lists: no events, no projections, no clever ways.

Each command is a method that changes the model, or raises `Refused` with the kinds of refusal that would
do. Times are microseconds since the Unix epoch, UTC; every chat of the model lives in UTC.

Over 400 lines because it is one class: what commands mean stands in one place, without the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LEASE = 120_000_000
FORGOTTEN = "[forgotten]"
HARD = ("session_reset", "session_switch", "new_session", "idle", "daily")
SETTLED = ("superseded_by_repair", "cron_complete")
FENCED = ("delete", "reset", "idle", "daily", "suspended")
FRESH = HOUR
"""So long after a restart had cut its turn off a session is gone on with by itself."""


class Refused(Exception):
    """The command does nothing; `kinds` are the refusals that say so rightly."""

    def __init__(self, *kinds: str) -> None:
        super().__init__(*kinds)
        self.kinds = kinds


@dataclass(eq=False)
class Said:
    """One message of a conversation, however often compression repeated it."""

    text: str
    root: int
    """The position of the message, or of what it is a copy of."""
    home: str
    """The session in which it was first said."""
    at_us: int = 0
    user: bool = False
    summary: bool = False
    undone: bool = False
    erased: bool = False


@dataclass(frozen=True)
class Then:
    """A session as it was at some time: what a model was given, and the rest of it."""

    live: tuple[Said, ...]
    rest: tuple[object, ...]
    delegates: frozenset[str]


@dataclass
class Handoff:
    """How the latest handoff of a session stands."""

    state: Literal["pending", "running", "completed", "failed"] | None = None
    platform: str = ""
    gateway: str | None = None
    claimed_us: int = 0
    deadline_us: int = 0

    def open(self, at: int) -> bool:
        """Whether it is under way, and not overdue."""
        return self.state in ("pending", "running") and at < self.deadline_us

    def held_by(self, gateway: str, at: int) -> bool:
        return self.open(at) and self.state == "running" and self.gateway == gateway


@dataclass
class Talk:
    """One session."""

    id: str
    source: str
    started_us: int
    key: str | None = None
    title: str | None = None
    named: bool = False
    """Whether it ever had a title, or lost one: no model names it any more."""
    parent: str | None = None
    kind: str | None = None
    end: str | None = None
    ended_us: int = 0
    goes_on: str | None = None
    archived: bool = False
    pinned: bool = False
    deleted: bool = False
    erased: bool = False
    along: list[str] = field(default_factory=list)
    """Sessions that went with it when it was deleted, itself first."""
    left_keys: list[str] = field(default_factory=list)
    gave_up: list[tuple[str, str]] = field(default_factory=list)
    had_title: bool = False
    active_us: int | None = None
    live: list[Said] = field(default_factory=list)
    """What a model is given."""
    rows: list[Said] = field(default_factory=list)
    """All that was ever said or repeated here."""
    redoable: list[tuple[list[Said], list[Said]]] = field(default_factory=list)
    running: str | None = None
    lease_us: int = 0
    since_us: int = 0
    last_turn: tuple[int, int] | None = None
    turns: dict[str, str] = field(default_factory=dict)
    """Every turn that was started here, and how it ended; "" while it runs."""
    queued: set[str] = field(default_factory=set)
    waiting: list[tuple[str, str]] = field(default_factory=list)
    """Turn and lane, in the order in which they will run."""
    suspended: bool = False
    gateway: str | None = None
    """Who runs its turn, or ran the one before."""
    resume: str | None = None
    """Why its turn was cut off, until one has succeeded since."""
    marked_us: int = 0
    restarts: int = 0
    """Restarts in a row that cut its turns off."""
    opened: int = 0
    """How often it was opened again, or compressed: what was deleted of it meanwhile is beside it now."""
    opened_before: int = 0
    """How often that had been of its parent, when it was deleted."""
    handoff: Handoff = field(default_factory=Handoff)

    @property
    def hard(self) -> bool:
        return self.end in HARD

    @property
    def over(self) -> bool:
        return self.goes_on is not None or self.hard

    @property
    def in_use_us(self) -> int:
        return self.started_us if self.active_us is None else self.active_us

    @property
    def takes_messages(self) -> bool:
        return self.source not in ("cron", "tool") and self.kind not in ("delegate", "tool")

    def runs(self, now_us: int) -> bool:
        return self.running is not None and now_us < self.lease_us

    def mark(self, why: str, at: int, restarts: int) -> None:
        self.resume, self.marked_us, self.restarts = why, at, restarts

    def suspend(self, restarts: int) -> None:
        self.suspended, self.resume, self.restarts = True, None, restarts


@dataclass
class Led:
    """Where a chat's key leads; where nowhere, why, and what it led to before."""

    to: str | None = None
    closed: str | None = None
    left: str | None = None


@dataclass
class Policy:
    """When a chat begins anew by itself."""

    mode: Literal["none", "idle", "daily", "both", "daily_and_idle"] = "none"
    idle_minutes: int = 60
    at_hour: int = 4


@dataclass
class Run:
    """A gateway: what it left behind, and what it is at."""

    clean: bool = False
    """Whether its marker lies there: the last stop was one that it chose, and nothing still ran."""
    started: bool = False
    running: bool = False
    """It started, and did not stop since."""
    left_clean: bool = False
    """At its last stop nothing still ran, whatever became of the marker."""
    offered: list[str] = field(default_factory=list)
    """Sessions that its last start was given to go on with."""
    offered_us: int = 0
    deaths: int = 0
    drain: tuple[int, int] | None = None
    """Since when and until when no turns begin."""
    resumed_us: list[int] = field(default_factory=list)


@dataclass
class Model:
    """A home."""

    talks: dict[str, Talk] = field(default_factory=dict)
    routes: dict[str, Led] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    in_place: bool = False
    summaries: int = 0
    delivered: dict[tuple[str, str], Said] = field(default_factory=dict)
    """What was acknowledged, by session and idempotency key."""
    led_ever: set[tuple[str, str]] = field(default_factory=set)
    """Keys, and the sessions that they ever led to."""
    runs: dict[str, Run] = field(default_factory=dict)
    sources: dict[int, str] = field(default_factory=dict)
    """By the root of a message that was imported: what its source says."""
    conflicts: dict[int, str] = field(default_factory=dict)
    """The same, of messages that were edited here as well, until a person settles it."""
    holds: dict[tuple[str, str], tuple[int, str | None, int]] = field(default_factory=dict)
    """Work in the background by key and name: since when, who watches over it, and its deaths by then."""

    # --- looking -----------------------------------------------------------------------------------

    def there(self) -> list[Talk]:
        """Sessions that are not deleted."""
        return [each for each in self.talks.values() if not each.deleted]

    def talk(self, name: str) -> Talk:
        found = self.talks.get(name)
        if found is None or found.erased:
            raise Refused("no_such_session", "deleted_session")
        if found.deleted:
            raise Refused("deleted_session")
        return found

    def known(self, name: str | None) -> Talk | None:
        found = None if name is None else self.talks.get(name)
        return None if found is None or found.deleted else found

    def led(self, key: str) -> Led:
        return self.routes.get(key, Led())

    def lead(self, key: str, to: str | None, closed: str | None = None) -> None:
        before = self.led(key)
        if to is not None:
            self.routes[key] = Led(to)
            self.led_ever.add((key, to))
        elif before.to is not None:
            self.routes[key] = Led(None, closed, before.to)

    def chain(self, talk: Talk) -> list[Talk]:
        """The segments of a conversation that are there, first to last."""
        found = [talk]
        while found[0].kind == "continuation" and (before := self.known(found[0].parent)) is not None:
            found.insert(0, before)
        while (after := self._continuation(found[-1])) is not None:
            found.append(after)
        return found

    def _continuation(self, talk: Talk) -> Talk | None:
        below = [each for each in self.there() if each.parent == talk.id and each.kind == "continuation"]
        assert len(below) <= 1, "one continuation a parent"
        return below[0] if below else None

    def view(self, name: str) -> list[str]:
        """What a model is given of a session."""
        return [each.text for each in _there(self.talks[name].live)]

    def history(self, name: str) -> list[str]:
        """What a person saw of the whole conversation, each once, in any order."""
        seen = {id(said): said for talk in self.chain(self.talks[name]) for said in talk.rows}
        return sorted(each.text for each in _there(seen.values()))

    def tip(self, talk: Talk) -> Talk:
        """Where a session goes on. One that gave its key away does not: it was taken over."""
        return talk if talk.goes_on is None and talk.end != "compression" else self.chain(talk)[-1]

    # --- sessions ----------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        source: str,
        at: int,
        *,
        key: str | None = None,
        title: str | None = None,
        parent: str | None = None,
        kind: str | None = None,
    ) -> Talk:
        if name in self.talks:
            raise Refused("session_exists")
        if kind == "continuation":
            self._refuse_continuation(self.talk(parent or ""))
        if title is not None and title in self.claims:
            raise Refused("title_taken")
        made = Talk(name, source, at, key=key, parent=parent, kind=kind)
        self.talks[name] = made
        if title is not None:
            self._name(made, title)
        if key is not None:
            self.lead(key, name)
        return made

    def _refuse_continuation(self, parent: Talk) -> None:
        """One goes on only where a conversation was compressed, and in no second session."""
        below = [each for each in self.talks.values() if each.parent == parent.id and not each.erased]
        if parent.goes_on is not None or any(each.kind == "continuation" for each in below):
            raise Refused("session_over")
        if parent.end != "compression":
            raise Refused("rule_broken")

    def end(self, name: str, reason: str, at: int) -> None:
        talk = self.talk(name)
        if reason in HARD and not talk.over:
            talk.waiting = []
        self._end(talk, reason, at)

    def _end(self, talk: Talk, reason: str, at: int) -> None:
        if talk.over or (talk.end is not None and reason not in HARD):
            return
        talk.end, talk.ended_us = reason, at
        if talk.hard:
            talk.resume = None
        self._turn_over(talk, at)

    def _turn_over(self, talk: Talk, at: int, outcome: str = "over") -> None:
        if talk.running is not None:
            talk.turns[talk.running] = outcome
            talk.running, talk.last_turn = None, (talk.since_us, at)

    def reopen(self, name: str) -> None:
        talk = self.talk(name)
        if talk.over:
            raise Refused("session_over")
        talk.suspended = False
        self._open(talk)

    def _open(self, talk: Talk) -> None:
        if talk.end is not None or talk.goes_on is not None:
            talk.end = talk.goes_on = None
            talk.suspended = False
            talk.opened += 1

    def resume_session(self, name: str) -> None:
        """A person goes on with it in a terminal, where the conversation is now, however it ended."""
        target = self.tip(self.talk(name))
        if target.goes_on is not None:
            raise Refused("session_over")
        self._open(target)
        target.suspended = False

    def flag(self, name: str, what: Literal["archived", "pinned"], on: bool) -> None:
        setattr(self.talk(name), what, on)

    # --- messages ----------------------------------------------------------------------------------

    def append(self, name: str, key: str, text: str, user: bool, at: int, position: int) -> None:
        talk = self.talk(name)
        before = self.delivered.get((name, key))
        if before is not None:
            assert position == before.root, "the same message again"
            return
        if talk.over:
            raise Refused("session_over")
        said = Said(text, position, name, at, user)
        self.delivered[name, key] = said
        self._say(talk, said, now=at)

    def _say(self, talk: Talk, *said: Said, now: int) -> None:
        talk.live += said
        talk.rows += said
        talk.redoable.clear()
        # What is kept was said when it was said, but not later than now.
        times = [min(each.at_us, now) for each in said if not each.summary]
        if times:
            talk.active_us = max(times) if talk.active_us is None else max(*times, talk.active_us)

    def take_in(self, name: str, said: Said) -> None:
        """A source has one message more, whatever became of its session here."""
        self.sources[said.root] = said.text
        self._say(self.talks[name], said, now=said.at_us)

    def edit(self, name: str, said: Said, text: str) -> None:
        self.talk(name)
        said.text = text

    def edit_there(self, root: int, text: str) -> None:
        """Its source says a message otherwise: ours stays where it was edited here, too."""
        for said in self._rooted(root):
            if said.erased or said.text == FORGOTTEN or self.talks[said.home].erased:
                continue
            before, self.sources[root] = self.sources[root], text
            if text == before:
                continue
            if text == said.text or before == said.text:
                self.conflicts.pop(root, None)
                said.text = text
            else:
                self.conflicts[root] = text

    def settle(self, root: int, keep: Literal["ours", "theirs"]) -> None:
        text = self.conflicts.pop(root)
        if keep == "theirs":
            for said in self._rooted(root):
                said.text = text

    def _summary(self, text: str, home: str, at: int) -> Said:
        """A summary; its position is nobody's business, but it has one of its own."""
        self.summaries += 1
        return Said(text, -self.summaries, home, at, summary=True)

    def rewind(self, name: str, said: Said) -> None:
        talk = self.talk(name)
        if talk.over:
            raise Refused("session_over")
        at = talk.live.index(said)
        gone = [each for each in talk.live[at:] if not each.undone]
        talk.redoable.append((list(talk.live), gone))
        talk.live = talk.live[:at]
        for each in gone:
            each.undone = True

    def redo(self, name: str) -> None:
        talk = self.talk(name)
        if talk.over:
            raise Refused("session_over")
        if not talk.redoable:
            raise Refused("nothing_to_do")
        talk.live, back = talk.redoable.pop()
        for each in back:
            each.undone = False

    def compact(self, name: str, summary: str, keep: int, at: int) -> None:
        talk = self.talk(name)
        if talk.over:
            raise Refused("session_over")
        kept = _kept(talk.live, keep)
        if not [each for each in _there(talk.live) if not each.summary and each not in kept]:
            raise Refused("nothing_to_do")
        talk.live = []
        self._say(talk, self._summary(summary, name, at), *kept, now=at)

    def compress(self, name: str, child: str, summary: str, keep: int, at: int) -> None:
        talk = self.talk(name)
        if talk.over:
            raise Refused("session_over")
        if child in self.talks:
            raise Refused("session_exists")
        kept = _kept(talk.live, keep)
        if keep and not [each for each in _there(talk.live) if not each.summary and each not in kept]:
            raise Refused("nothing_to_do")
        for each in self.there():  # what a repair had made of it, before a person went back
            if each.parent == name and each.kind == "continuation":
                each.kind = "branch"
        made = Talk(child, talk.source, at, key=talk.key, parent=name, kind="continuation")
        self.talks[child] = made
        talk.goes_on = child
        talk.opened += 1
        if talk.end is None:
            talk.end, talk.ended_us = "compression", at
        if talk.title is not None:
            self._name(made, self.next_title(talk.title))
        self._say(made, self._summary(summary, child, at), *kept, now=at)
        made.running, made.lease_us, made.since_us = talk.running, talk.lease_us, at
        made.suspended = talk.suspended
        if talk.resume is not None:
            made.mark(talk.resume, at, talk.restarts)
        elif talk.suspended:
            made.suspend(talk.restarts)
        talk.resume, talk.restarts = None, 0
        self._waits_on(talk, made)
        if talk.running is not None:
            made.turns[talk.running] = ""
            made.gateway = talk.gateway
            self._turn_over(talk, at, "carried")
        if talk.key is not None and self.led(talk.key).to == name:
            self.lead(talk.key, child)

    def branch(
        self, name: str, made: str, title: str | None, lead: bool, at: int, then: Then | None = None
    ) -> None:
        """Go another way, with what a model is given now, or `then`."""
        talk = self.talk(name)
        live = _there(talk.live) if then is None else self._still(then.live)
        if made in self.talks:
            raise Refused("session_exists")
        if title is not None and title in self.claims:
            raise Refused("title_taken")
        if then is not None and not live:
            raise Refused("no_such_message")
        other = Talk(made, talk.source, at, key=talk.key, parent=name, kind="branch")
        self.talks[made] = other
        self._name(other, title or self.next_title(talk.title or "branch"))
        copies = [
            Said(each.text, each.root, made if each.summary else each.home, each.at_us, each.user)
            for each in live
        ]
        self._say(other, *copies, now=at)
        if lead:
            left = None if talk.key is None else self.known(self.led(talk.key).to)
            for each in (left, talk) if left is not None and left is not talk else (talk,):
                self._waits_on(each, other)
        if talk.key is None:
            self._end(talk, "branched", at)
        elif lead:
            self.lead(talk.key, made)

    def _still(self, live: Iterable[Said]) -> list[Said]:
        """Messages as they were said then, but for what was forgotten or erased since."""
        found = []
        for each in live:
            now = list(self._same(each))
            if not any(other.erased for other in now):
                gone = any(other.text == FORGOTTEN for other in now)
                found.append(replace(each, text=FORGOTTEN) if gone else each)
        return found

    def then(self) -> dict[str, Then]:
        """Every session as it is now."""
        return {
            each.id: Then(
                tuple(replace(said) for said in _there(each.live)),
                _rest(each),
                frozenset(other.id for other in self._delegates(each)),
            )
            for each in self.there()
        }

    def _waits_on(self, left: Talk, there: Talk) -> None:
        """What waited in a session that its chat leaves waits on where the chat goes."""
        moved, left.waiting = left.waiting, []
        slot = [each for each in moved if each[1] == "slot"]
        there.waiting = slot + there.waiting + [each for each in moved if each[1] != "slot"]
        there.queued |= {turn for turn, _ in moved}

    # --- forgetting --------------------------------------------------------------------------------

    def forget(self, name: str, said: Said) -> None:
        self.talk(name)
        self.conflicts.pop(said.root, None)
        for each in self._same(said):
            each.text = FORGOTTEN

    def erase(self, said: Said) -> None:
        self.conflicts.pop(said.root, None)
        for each in self._same(said):
            each.erased = True

    def _same(self, said: Said) -> Iterator[Said]:
        return self._rooted(said.root)

    def _rooted(self, root: int) -> Iterator[Said]:
        for talk in self.talks.values():
            yield from (each for each in talk.rows if each.root == root)

    def said_once(self, root: int) -> bool:
        """Whether no compression and no branch has repeated a message."""
        return len(list(self._rooted(root))) == 1

    def delete(self, name: str, at: int) -> None:
        talk = self.talk(name)
        if any(each.runs(at) for each in [talk, *self._delegates(talk)]):
            raise Refused("turn_running")
        self._delete(talk)

    def delete_conversation(self, names: list[str], at: int, then: dict[str, Then]) -> None:
        """Delete sessions as they were seen, all or none of them."""
        gone = [self.known(name) for name in names]
        going = [each for talk in gone if talk is not None for each in [talk, *self._delegates(talk)]]
        seen = {*names, *(other for name in names if name in then for other in then[name].delegates)}
        if None in gone or {each.id for each in going} != seen:
            raise Refused("changed_meanwhile", "deleted_session", "no_such_session")
        if any(each.id not in then or then[each.id].rest != _rest(each) for each in going):
            raise Refused("changed_meanwhile")
        if any(each.runs(at) for each in going):
            raise Refused("turn_running")
        for name in reversed(names):
            if not self.talks[name].deleted:  # as the delegate of one that went before
                self._delete(self.talks[name])

    def _delete(self, talk: Talk) -> None:
        gone = [talk, *self._delegates(talk)]
        for each in gone:
            each.gave_up = each.waiting
            above = self.talks.get(each.parent or "")
            each.opened_before = 0 if above is None else above.opened
            each.deleted, each.waiting, each.left_keys = True, [], []
            each.had_title = each.title is not None and self.claims.get(each.title) == each.id
            if each.had_title and each.title is not None:
                del self.claims[each.title]
            for key, led in list(self.routes.items()):
                if led.to == each.id:
                    self.lead(key, None, "delete")
                    each.left_keys.append(key)
        talk.along = [each.id for each in gone]

    def _delegates(self, talk: Talk) -> list[Talk]:
        found = []
        for each in self.there():
            if each.parent == talk.id and each.kind == "delegate":
                found += [each, *self._delegates(each)]
        return found

    def undelete(self, name: str) -> None:
        talk = self.talks.get(name)
        if talk is None or talk.erased:
            raise Refused("no_such_session")
        if not talk.deleted:
            raise Refused("rule_broken")
        for each in (self.talks[other] for other in talk.along or [name]):
            each.deleted = False
            each.waiting = each.gave_up
            before = self.talks.get(each.parent or "")
            if each.kind == "continuation" and before is not None and not before.erased:
                each.kind = "continuation" if before.opened == each.opened_before else "branch"
            if each.had_title and each.title is not None and each.title not in self.claims:
                self.claims[each.title] = each.id
            for key in each.left_keys:
                if self.led(key).to is None:
                    self.lead(key, each.id)

    def erase_session(self, name: str) -> None:
        talk = self.talks[name]
        for said in talk.rows:
            if said.home == name:
                self.conflicts.pop(said.root, None)
        talk.erased = True
        talk.title = None

    # --- titles ------------------------------------------------------------------------------------

    def title(self, name: str, title: str | None) -> None:
        talk = self.talk(name)
        holder = None if title is None else self.claims.get(title)
        if holder not in (None, name):
            above = self.known(talk.parent) if talk.kind == "continuation" else None
            while above is not None and above.id != holder:
                above = self.known(above.parent) if above.kind == "continuation" else None
            if above is None:
                raise Refused("title_taken")
            above.title, above.named = None, True
        if title == talk.title and (title is None or holder == name):
            return
        self._name(talk, title)

    def _name(self, talk: Talk, title: str | None) -> None:
        if talk.title is not None and self.claims.get(talk.title) == talk.id:
            del self.claims[talk.title]
        talk.title, talk.named = title, True
        if title is not None:
            self.claims[title] = talk.id

    def auto_title(self, name: str, title: str) -> None:
        talk = self.talk(name)
        if talk.title is None and not talk.named and talk.kind != "branch":
            self._name(talk, title if title not in self.claims else self.next_title(title))

    def next_title(self, title: str) -> str:
        base = re.sub(r" #[0-9]+\Z", "", title)
        shown = {each.title for each in self.there() if each.title is not None} | set(self.claims)
        line = [each for each in shown if re.fullmatch(re.escape(base) + r"( #[0-9]+)?", each)]
        if not line:
            return base
        return f"{base} #{max(int(each.partition(' #')[2] or 1) for each in line) + 1}"

    # --- where chats go ----------------------------------------------------------------------------

    def led_to(self, key: str) -> Talk | None:
        """The session that a key leads to, or what that one goes on as."""
        found = self.known(self.led(key).to)
        if found is None:
            return None
        return self.tip(found)

    def resolve(self, key: str, source: str, at: int, made: str) -> None:
        led = self.led(key)
        talk = self.led_to(key)
        if talk is not None and (talk.hard or talk.end in SETTLED or not talk.takes_messages):
            talk = None
        if talk is None and led.closed not in FENCED:
            talk = self._recovered(key, source)
        if talk is not None and not self._held_back(talk, key, at):
            rule = self._due(talk, at)
            if rule is not None:
                self._reset(talk, key, rule, made, at, source)
                return
        if talk is not None:
            self._open(talk)
            if talk.key is None:
                talk.key = key
            if led.to != talk.id:
                self.lead(key, talk.id)
            return
        before = self.known(led.to or led.left)
        old = before.id if before is not None and before.hard and before.end != "session_switch" else None
        self.talks[made] = Talk(made, source, at, key=key, parent=old, kind="reset" if old else None)
        self.lead(key, made)

    def _recovered(self, key: str, source: str) -> Talk | None:
        """Of the chat's sessions the one that was in use last, if no end for good came after that."""
        ours = [each for each in self.there() if each.key == key]
        tips = [self.chain(each)[-1] for each in ours]
        ours += [each for each in tips if each.key is None and each not in ours]
        here = [
            each
            for each in ours
            if each.takes_messages and (each.source == source or each.handoff.state == "completed")
        ]
        ends = [each.ended_us for each in here if each.hard]
        standing = [
            each
            for each in here
            if not (each.hard or each.end in SETTLED)
            and self.chain(each)[-1] is each
            and each.in_use_us >= max(ends, default=each.in_use_us)
        ]
        return max(standing, key=lambda s: (bool(s.rows), s.in_use_us, s.started_us, s.id), default=None)

    def _held_back(self, talk: Talk, key: str, at: int) -> bool:
        """Whether a turn, or work in the background, puts off whatever is due."""
        if talk.suspended or self._expired(talk, at):
            return False
        return talk.runs(at) or any(
            at - since < DAY and (gateway is None or self.run(gateway).deaths == deaths)
            for (held, _), (since, gateway, deaths) in self.holds.items()
            if held == key
        )

    def _expired(self, talk: Talk, at: int) -> bool:
        """Whether it was to be gone on with, and nobody did for too long."""
        return self.policy.mode != "none" and talk.resume is not None and at - talk.marked_us > FRESH

    def _due(self, talk: Talk, at: int) -> str | None:
        """The rule by which a chat begins anew now."""
        if talk.suspended:
            return "suspended"
        if self._expired(talk, at):
            return "resume_expired"
        last = talk.in_use_us
        idle = at > last + self.policy.idle_minutes * MINUTE
        if talk.last_turn is not None and talk.last_turn[0] <= last <= talk.last_turn[1]:
            last = talk.last_turn[0]
        latest = (at - self.policy.at_hour * HOUR) // DAY * DAY + self.policy.at_hour * HOUR
        daily = last < latest
        match self.policy.mode:
            case "none":
                return None
            case "idle":
                return "idle" if idle else None
            case "daily":
                return "daily" if daily else None
            case "both":
                return "idle" if idle else "daily" if daily else None
            case _:
                return "daily" if daily and idle else None

    def _reset(self, talk: Talk, key: str, rule: str, made: str | None, at: int, source: str) -> None:
        waiting, talk.waiting = Talk("", "", 0, waiting=talk.waiting), []
        self._turn_over(talk, at)
        if not talk.over:
            talk.end, talk.ended_us, talk.resume = "session_reset", at, None
        if made is None:
            self.lead(key, None, rule)
            return
        fresh = Talk(made, source, at, key=key, parent=talk.id, kind="reset")
        self.talks[made] = fresh
        if rule != "reset":
            self._waits_on(waiting, fresh)
        self.lead(key, made)

    def reset(self, key: str, source: str, made: str, title: str | None, at: int) -> None:
        if title is not None and title in self.claims:
            raise Refused("title_taken")
        talk = self.led_to(key)
        if talk is None:
            self.talks[made] = Talk(made, source, at, key=key)
            self.lead(key, made)
        else:
            self._reset(talk, key, "reset", made, at, source)
        if title is not None:
            self._name(self.talks[made], title)

    def expire(self, at: int) -> int:
        """Every chat that is due begins anew at its next message; how many."""
        found = 0
        for key in sorted(self.routes):  # of two that lead to one session the first ends it
            talk = self.led_to(key)
            if self.policy.mode == "none" or talk is None or talk.hard or talk.waiting or talk.suspended:
                continue
            if self._expired(talk, at):  # its chat's next message is told
                continue
            rule = None if self._held_back(talk, key, at) else self._due(talk, at)
            if rule is not None:
                self._reset(talk, key, rule, None, at, talk.source)
                found += 1
        return found

    def resume(self, key: str, name: str, at: int) -> None:
        asked = self.talk(name)
        target = self.tip(asked)
        if not target.takes_messages:
            raise Refused("rule_broken")
        led = self.led(key)
        self._open(target)
        if led.to not in (None, target.id, asked.id) and (left := self.known(led.to)) is not None:
            self._waits_on(left, target)
            self._end(left, "session_switch", at)
        if led.to != target.id:
            self.lead(key, target.id)

    def close_key(self, key: str, at: int) -> None:
        led = self.led(key)
        left = self.known(led.to)
        if left is not None:
            left.waiting = []
        if left is not None and left.end is None and left.goes_on is None:
            left.end, left.ended_us = "superseded_by_repair", at
            self._turn_over(left, at)
        self.lead(key, None, "repair")

    # --- turns -------------------------------------------------------------------------------------

    def _taking_turns(self, name: str) -> Talk:
        talk = self.talk(name)
        if talk.over:
            raise Refused("session_over")
        if talk.suspended:
            raise Refused("suspended")
        return talk

    def begin(self, name: str, turn: str, at: int, gateway: str | None = None) -> None:
        talk = self._taking_turns(name)
        if turn in talk.turns and talk.running != turn:
            raise Refused("turn_over")
        if talk.runs(at):
            raise Refused("turn_running")
        if talk.running == turn:
            raise Refused("turn_over")
        if gateway is not None:
            drain = self.run(gateway).drain
            if drain is not None and at < drain[1]:
                raise Refused("draining")
            self.run(gateway).drain = None
        self._turn_over(talk, at, "lost")
        talk.waiting = [each for each in talk.waiting if each[0] != turn]
        talk.gateway = gateway
        talk.running, talk.lease_us, talk.since_us = turn, at + LEASE, at
        talk.turns[turn] = ""

    def next_turn(self, name: str, at: int, gateway: str | None = None) -> None:
        talk = self.talk(name)
        if talk.waiting:
            self.begin(name, talk.waiting[0][0], at, gateway)

    def finish(self, name: str, turn: str, at: int) -> None:
        talk = self.talk(name)
        while talk.running != turn and talk.goes_on is not None and talk.turns.get(turn) == "carried":
            talk = self.talk(talk.goes_on)
        ended = talk.turns.get(turn)
        if ended in ("lost", "interrupted"):
            raise Refused("turn_over")
        if ended is None:
            raise Refused("rule_broken", "deleted_session")
        if ended == "done":
            return
        if talk.running == turn:
            self._turn_over(talk, at, "done")
        else:
            talk.turns[turn] = "done"
        talk.resume, talk.restarts = None, 0

    def _where_its_chat_is(self, talk: Talk) -> Talk:
        """Where a turn waits that is queued late: its chat may have gone on to another session since."""
        to = None if talk.key is None or talk.goes_on is not None else self.led(talk.key).to
        if to is None or (talk.key or "", talk.id) not in self.led_ever:
            return talk
        other = self.known(to)
        while other is not None and other.goes_on is not None:
            other = self.known(other.goes_on)
        return talk if other is None or other.over or not other.takes_messages else other

    def enqueue(self, name: str, turn: str, lane: str) -> None:
        asked = self.talk(name)
        talk = self._taking_turns(self._where_its_chat_is(asked).id)
        if turn in asked.queued:
            return
        if turn in talk.queued:
            return
        if turn in talk.turns:
            raise Refused("turn_over", "turn_running")
        talk.queued.add(turn)
        if lane == "slot":
            kept = [each for each in talk.waiting if each[1] != "slot"]
            talk.waiting = [(turn, lane), *kept]
        else:
            talk.waiting.append((turn, lane))

    def clear_queue(self, name: str) -> None:
        self.talk(name).waiting = []

    def stop(self, name: str, at: int) -> None:
        talk = self.talk(name)
        self._turn_over(talk, at, "interrupted")
        if not (talk.suspended or talk.over):
            talk.suspend(talk.restarts)

    def run(self, name: str) -> Run:
        return self.runs.setdefault(name, Run())


def _rest(talk: Talk) -> tuple[object, ...]:
    """What of a session is not as it was once somebody has changed it; a text may go meanwhile."""
    return (
        *(talk.title, talk.archived, talk.pinned, talk.key, talk.source, talk.parent, talk.kind),
        *(talk.end, talk.goes_on, talk.resume, talk.suspended, talk.running, talk.handoff.state),
        tuple(talk.waiting),
        tuple((each.root, each.undone) for each in talk.live),
    )


def _there(said: Iterable[Said]) -> list[Said]:
    return [each for each in said if not each.erased and not each.undone]


def _kept(live: list[Said], exchanges: int) -> list[Said]:
    """The last exchanges, each from where somebody spoke on."""
    live = _there(live)
    if exchanges == 0:
        return []
    begun = [index for index, each in enumerate(live) if each.user and not each.summary]
    first = begun[-exchanges] if exchanges <= len(begun) else 0
    return [each for each in live[first:] if not each.summary]
