"""What a user would expect of gateways, of a conversation that is handed over, and of repairs."""

from __future__ import annotations

from retold.tests.proof.model import FRESH, MINUTE, Handoff, Model, Refused, Talk

DRAINED = ("restart_timeout", "shutdown_timeout")
BESIDE = ("branch", "delegate", "tool")
"""Kinds of child that are no part of the conversation that they were made from."""
CHANNELS = ("telegram", "slack")
"""Platforms that have a home channel."""


class World(Model):
    """A home, and what goes on around its sessions."""

    # --- gateways ----------------------------------------------------------------------------------

    def start(self, name: str, at: int) -> list[str]:
        """A gateway starts: what is to be gone on with."""
        run = self.run(name)
        first = not run.started
        clean, run.clean = run.clean, False
        run.deaths += run.started and not clean
        run.started, run.running, run.drain, run.offered = True, True, None, []
        others = {other: self._stands(other, at) for other in self.runs if other != name}
        offered = []
        for talk in self.there():
            if self._seen_to(talk, name, others, at):
                continue
            led = any(each.to == talk.id for each in self.routes.values())
            cut = talk.running is not None and (talk.gateway == name or (led and not talk.runs(at)))
            if cut:
                self._turn_over(talk, at, "lost")
            if talk.suspended or talk.end is not None or not (led or cut):
                continue
            recent = talk.active_us is not None and talk.active_us >= at - 2 * MINUTE
            restarts = talk.restarts + cut
            if restarts >= 3 and (cut or talk.resume is not None):
                talk.suspend(restarts)
            elif cut or (talk.resume is None and recent and not _unharmed(talk, name, clean, first, others)):
                talk.mark("restart_interrupted", at, restarts)
            if talk.resume is not None and led and at - talk.marked_us <= FRESH:
                offered.append(talk.id)
        if not offered:
            return []
        loop = sum(at - each <= MINUTE for each in run.resumed_us) >= 2
        run.resumed_us = [*run.resumed_us, at][-16:]
        run.offered, run.offered_us = [] if loop else sorted(offered), at
        return run.offered

    def _stands(self, name: str, at: int) -> str | None:
        """How another gateway stands: it lives, it was stopped in peace, or it was cut off."""
        run = self.run(name)
        if not run.started:
            return None
        if run.running:
            return "cut off" if self._silent(name, at) else "lives"
        return "stopped" if run.left_clean else "cut off"

    def _silent(self, name: str, at: int) -> bool:
        """Whether a turn of it was never finished, and nothing was heard in its sessions since."""
        ran = [each for each in self.there() if each.gateway == name]
        lapsed = [each.lease_us for each in ran if each.running is not None and not each.runs(at)]
        if not lapsed:
            return False
        return not any(
            each.runs(at)
            or (each.active_us is not None and each.active_us > max(lapsed))
            or (each.running is not None and each.since_us > max(lapsed))
            for each in ran
        )

    def _seen_to(self, talk: Talk, name: str, others: dict[str, str | None], at: int) -> bool:
        """Whether another gateway sees to a session: every one serves every platform here."""
        if talk.running is not None:
            return talk.gateway != name and talk.runs(at)
        last_us = 0 if talk.last_turn is None else talk.last_turn[0]
        for other in (self.run(each) for each, stands in others.items() if stands == "lives"):
            if talk.id in other.offered and other.offered_us >= last_us:
                return True
        return talk.gateway is not None and others.get(talk.gateway) == "lives"

    def drain(self, name: str, at: int) -> None:
        """Begin no turns for a minute; what runs is marked until it has ended."""
        self.run(name).drain = at, at + MINUTE
        for talk in self.there():
            if talk.running is not None and talk.gateway == name and not (talk.suspended or talk.resume):
                talk.mark("restart_timeout", at, talk.restarts)

    def stop_gateway(self, name: str, at: int) -> None:
        """What still runs is cut off and marked, what ended in time is unmarked."""
        run = self.run(name)
        since = None if run.drain is None else run.drain[0]
        run.drain, run.clean, run.running = None, True, False
        for talk in self.there():
            if talk.gateway != name:
                continue
            if talk.running is not None:
                self._turn_over(talk, at, "interrupted")
                run.clean = False
                if not talk.suspended:
                    talk.mark("shutdown_timeout", at, talk.restarts + 1)
            elif since is not None and talk.marked_us >= since and talk.resume in DRAINED:
                talk.resume, talk.marked_us = None, 0
        run.left_clean = run.clean

    def hold(self, key: str, name: str, gateway: str | None, at: int) -> None:
        """Work in the background holds timed resets up."""
        deaths = 0 if gateway is None else self.run(gateway).deaths
        if self.led(key).to is None:
            raise Refused("rule_broken")
        if self.holds.get((key, name), (0, "nobody", 0))[1:] != (gateway, deaths):
            self.holds[key, name] = at, gateway, deaths

    def let_go(self, key: str, name: str) -> None:
        self.holds.pop((key, name), None)

    # --- handing over ------------------------------------------------------------------------------

    def request(self, name: str, platform: str, at: int) -> None:
        talk = self.talk(name)
        if talk.over:
            raise Refused("session_over")
        if not talk.takes_messages:
            raise Refused("rule_broken")
        if platform not in CHANNELS:
            raise Refused("no_home_channel")
        if talk.runs(at):
            raise Refused("turn_running")
        if talk.handoff.open(at):
            raise Refused("handoff_refused")
        talk.handoff = Handoff("pending", platform, deadline_us=at + MINUTE)

    def claim(self, name: str, gateway: str, at: int) -> None:
        handoff = self.talk(name).handoff
        if handoff.state != "pending" or not handoff.open(at):
            raise Refused("handoff_refused")
        handoff.state, handoff.gateway = "running", gateway
        handoff.claimed_us, handoff.deadline_us = at, at + MINUTE

    def heartbeat(self, name: str, gateway: str, at: int) -> None:
        handoff = self.talk(name).handoff
        if not handoff.held_by(gateway, at):
            raise Refused("handoff_refused")
        handoff.deadline_us = min(at + MINUTE, handoff.claimed_us + 15 * MINUTE)

    def complete(self, name: str, gateway: str, key: str, at: int) -> None:
        """The conversation goes on in another chat, and its own leads to it no more."""
        talk = self.talk(name)
        if talk.goes_on is not None:
            raise Refused("session_over")
        if not talk.takes_messages:
            raise Refused("rule_broken")
        platform = key.split(":")[2]
        if not talk.handoff.held_by(gateway, at) or talk.handoff.platform != platform:
            raise Refused("handoff_refused")
        self._open(talk)
        left = self.known(self.led(key).to)
        if left is not None and left is not talk:
            self._waits_on(left, talk)
            self._end(left, "session_switch", at)
        for other, led in list(self.routes.items()):
            if led.to == name and other != key:
                self.lead(other, None, "handoff")
        self.lead(key, name)
        talk.source, talk.key, talk.handoff = platform, key, Handoff("completed", platform)

    def fail(self, name: str, gateway: str | None) -> None:
        handoff = self.talk(name).handoff
        if handoff.state not in ("pending", "running") or (
            gateway is not None and handoff.gateway not in (None, gateway)
        ):
            raise Refused("handoff_refused")
        handoff.state = "failed"

    def give_up_late(self, at: int) -> None:
        """Whatever handoff is overdue has failed."""
        for talk in self.there():
            if talk.handoff.state in ("pending", "running") and not talk.handoff.open(at):
                talk.handoff.state = "failed"

    # --- repairs -----------------------------------------------------------------------------------

    def repair(self, name: str, choose: str | None, at: int) -> None:
        """A session that lost its chat's key takes it back from the one session that it must have left."""
        orphan = self.talk(name)
        if orphan.key is not None:
            self._repaired_before(orphan, choose)
            return
        donor = self._donor(orphan)
        if donor is None or donor.key is None or self._claims(donor) > 1:
            raise Refused("repair_refused")
        key, wrong, last = donor.key, self.known(self.led(donor.key).to), self._last(orphan)
        going = self._going_on(orphan, last, wrong, choose)
        orphan.key = key
        if orphan.parent is None:
            orphan.parent, orphan.kind = donor.id, self._kind_after(donor)
        if donor is not going:
            self._retire(donor, at)
        if going is not None and going is wrong and going is not orphan:
            self._put_aside(orphan, at)
        elif wrong is not None and wrong not in (going, donor, orphan):
            self._put_aside(wrong, at)
        for left in dict.fromkeys(each.id for each in (donor, wrong, orphan) if each is not None):
            if going is not None and left != going.id:
                self._waits_on(self.talks[left], going)
        self.lead(key, None if going is None else going.id, "repair")

    def _repaired_before(self, orphan: Talk, choose: str | None) -> None:
        before = self.known(orphan.parent)
        if before is None or before.key != orphan.key:
            raise Refused("repair_refused")
        if choose is not None:
            wanted = self.known(choose)
            led = self.led(orphan.key or "").to
            if led not in (choose, None if wanted is None else self._last(wanted).id):
                raise Refused("repair_refused")

    def orphans(self) -> list[Talk]:
        """Sessions in which something was said, and which know no chat."""
        return [
            each
            for each in self.there()
            if each.key is None and each.rows and each.source != "tool" and each.kind not in BESIDE
        ]

    def _donor(self, orphan: Talk) -> Talk | None:
        """The parent, or else the only one that had fallen quiet when the orphan began."""
        if orphan not in self.orphans():
            return None
        if orphan.parent is not None:
            above = self.known(orphan.parent)
            keyed = above is not None and above.key is not None and above.source == orphan.source
            return above if keyed else None
        quiet = [
            each
            for each in self.there()
            if each.key is not None
            and each.source == orphan.source
            and abs(_quiet_us(each) - orphan.started_us) <= 15 * MINUTE
            and _quiet_us(each) < _quiet_us(orphan)
        ]
        return quiet[0] if len(quiet) == 1 else None

    def _claims(self, donor: Talk) -> int:
        """How many would take this session's key, or took it in an earlier repair."""
        taken = [each for each in self.there() if each.parent == donor.id and each.key == donor.key]
        would = [each for each in self.orphans() if self._donor(each) is donor]
        return len(would) + (len(taken) if donor.end == "superseded_by_repair" else 0)

    def _kind_after(self, donor: Talk) -> str:
        if donor.hard and donor.end != "session_switch":
            return "reset"
        below = [each for each in self.there() if each.parent == donor.id and each.kind == "continuation"]
        return "child" if below else "continuation"

    def _last(self, talk: Talk) -> Talk:
        while (after := self.known(talk.goes_on)) is not None:
            talk = after
        return talk

    def _going_on(self, orphan: Talk, last: Talk, wrong: Talk | None, choose: str | None) -> Talk | None:
        """Where the chat goes; a person says so where it was written to in two sessions."""
        ours = (orphan.id, last.id)
        if wrong is not None and wrong.id not in ours and choose == wrong.id:
            if wrong.hard:
                raise Refused("repair_refused")
            return wrong
        if choose is not None and choose not in ours:
            raise Refused("bad_usage")
        said_us = max(-1 if each.active_us is None else each.active_us for each in (orphan, last))
        later = wrong is not None and wrong.active_us is not None and wrong.active_us > said_us
        if choose is None and wrong is not None and wrong.id not in ours and later:
            raise Refused("two_histories")
        return None if last.hard or not last.takes_messages else last

    def _put_aside(self, talk: Talk, at: int) -> None:
        if talk.end is None and talk.goes_on is None:
            self._retire(talk, at)

    def _retire(self, talk: Talk, at: int) -> None:
        """It can win no key again, whatever end it had."""
        if talk.end is None:
            talk.ended_us = at
        talk.end = "superseded_by_repair"
        self._turn_over(talk, at)


def _unharmed(talk: Talk, name: str, clean: bool, first: bool, others: dict[str, str | None]) -> bool:
    """Whether whoever ran the last turn of a session was not cut off at it."""
    if talk.gateway is None:
        ways = set(others.values())
        return clean or (first and bool(ways & {"lives", "stopped"}) and "cut off" not in ways)
    return clean if talk.gateway == name else others.get(talk.gateway) == "stopped"


def _quiet_us(talk: Talk) -> int:
    """When anything was last said in a session; of an empty one, when it began."""
    said: list[int] = [each.at_us for each in talk.rows if not each.erased]
    if talk.active_us is not None:
        said.append(talk.active_us)
    return max(said, default=talk.started_us)
