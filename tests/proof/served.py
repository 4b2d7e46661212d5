"""The machine's rules of what goes on around sessions: gateways, handing over, lost keys and repairs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from retold.tests.proof.home import KEYS, SOURCES, Change, Home, crashes, number, writers
from retold.tests.proof.model import MINUTE
from retold.tests.proof.writers import DIED

gateways = st.sampled_from(["main", "main", "spare"])
chats = st.integers(0, 2)


class Served(Home):
    """A home that gateways serve, and what is expected of it."""

    # --- gateways ----------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["start", "start", "stop", "stop", "drain"]),
        gateway=gateways,
        by=writers,
        crash=crashes,
    )
    def gateway(self, what: str, gateway: str, by: int, crash: str | None) -> None:
        """One starts, stops, or begins no more turns; whoever died at it left a marker or none."""
        at = self.clock.now_us
        marker = self.home / (".clean_shutdown" if gateway == "main" else f".clean_shutdown.{gateway}")
        assert marker.exists() == self.model.run(gateway).clean
        change: Change
        match what:
            case "start":
                change = lambda m, heard: _same(m.start(gateway, at), heard.get("resume"))  # noqa: E731
            case "stop":
                change = lambda m, _: m.stop_gateway(gateway, at)  # noqa: E731
            case _:
                change = lambda m, _: m.drain(gateway, at)  # noqa: E731
        self.do(f"{what}_gateway", {"name": gateway}, change, by=by, crash=crash)
        if crash is not None:
            self.model.run(gateway).clean = marker.exists()

    @rule(
        chat=chats, work=st.sampled_from(["build", "watch"]), on=st.booleans(), gateway=gateways, by=writers
    )
    def hold(self, chat: int, work: str, on: bool, gateway: str, by: int) -> None:
        """Work in the background of a chat begins, or is over."""
        key, at = KEYS[chat], self.clock.now_us
        watched = gateway if work == "watch" else None
        if on:
            given = {"key": key, "name": work, "gateway": watched}
            self.do("hold", given, lambda m, _: m.hold(key, work, watched, at), by=by)
        else:
            self.do("let_go", {"key": key, "name": work}, lambda m, _: m.let_go(key, work), by=by)

    @rule(chat=chats, gateway=gateways, steps=st.integers(1, 4), by=writers, crash=crashes)
    def serve(self, chat: int, gateway: str, steps: int, by: int, crash: str | None) -> None:
        """A gateway runs a chat's turn, another waits meanwhile, and somewhere on the way it is cut off."""
        self.resolve(chat=chat, said=True, by=by, crash=None)
        name = self.model.routes[KEYS[chat]].to or ""
        first, second, at = self.name("turn "), self.name("turn "), self.clock.now_us
        told: list[tuple[str, dict[str, Any], Change]] = [
            (
                "begin_turn",
                {"turn": first, "gateway": gateway},
                lambda m, _: m.begin(name, first, at, gateway),
            ),
            (
                "enqueue",
                {"turn": second, "text": "and then?", "lane": "overflow"},
                lambda m, _: m.enqueue(name, second, "overflow"),
            ),
            ("finish_turn", {"turn": first}, lambda m, _: m.finish(name, first, at)),
            ("next_turn", {"gateway": gateway}, lambda m, _: m.next_turn(name, at, gateway)),
        ]
        for command, given, change in told[:steps]:
            last = command == told[steps - 1][0]
            self.do(command, {"session_id": name, **given}, change, by=by, crash=crash if last else None)

    @rule(
        chat=chats,
        ran=gateways,
        ends=st.sampled_from([None, None, "stop", "drain"]),
        starts=gateways,
        steps=st.integers(1, 4),
        us=st.sampled_from([0, MINUTE, 3 * MINUTE]),
        by=writers,
        crash=crashes,
    )
    def start_beside(
        self,
        chat: int,
        ran: str,
        ends: str | None,
        starts: str,
        steps: int,
        us: int,
        by: int,
        crash: str | None,
    ) -> None:
        """Of two gateways that live one runs a chat's turn, and one of them starts again."""
        for each in ("main", "spare"):
            if not self.model.run(each).running:
                self.gateway(what="start", gateway=each, by=by, crash=None)
        self.serve(chat=chat, gateway=ran, steps=steps, by=by, crash=None)
        self.clock.now_us += us
        if ends is not None:
            self.gateway(what=ends, gateway=ran, by=by, crash=None)
        self.gateway(what="start", gateway=starts, by=by, crash=crash)

    # --- handing over ------------------------------------------------------------------------------

    @rule(pick=number, chat=chats, gateway=gateways, steps=st.integers(1, 3), by=writers, crash=crashes)
    def hand_over(self, pick: int, chat: int, gateway: str, steps: int, by: int, crash: str | None) -> None:
        """From the word of whoever asks to the end, or not so far."""
        name, key, at = self.any_talk(pick), KEYS[chat], self.clock.now_us
        platform = SOURCES[chat]["platform"]
        peer = {field: SOURCES[chat][field] for field in ("chat_id", "user_id")}
        told: list[tuple[str, dict[str, Any], Change]] = [
            ("request", {"platform": platform}, lambda m, _: m.request(name, platform, at)),
            ("claim", {"gateway": gateway}, lambda m, _: m.claim(name, gateway, at)),
            (
                "complete",
                {"gateway": gateway, "key": key, "chat_type": "dm", **peer},
                lambda m, _: m.complete(name, gateway, key, at),
            ),
        ]
        for what, given, change in told[:steps]:
            dies = crash if what == told[steps - 1][0] else None
            self.do(f"{what}_handoff", {"session_id": name, **given}, change, by=by, crash=dies)

    @rule(
        pick=number,
        platform=st.sampled_from(["telegram", "telegram", "slack", "discord"]),
        by=writers,
        crash=crashes,
    )
    def request(self, pick: int, platform: str, by: int, crash: str | None) -> None:
        name, at = self.any_talk(pick), self.clock.now_us
        given = {"session_id": name, "platform": platform}
        self.do("request_handoff", given, lambda m, _: m.request(name, platform, at), by=by, crash=crash)

    @rule(
        pick=number,
        what=st.sampled_from(["claim", "claim", "heartbeat", "complete", "complete", "complete", "fail"]),
        gateway=gateways,
        chat=chats,
        by=writers,
        crash=crashes,
    )
    def handoff(self, pick: int, what: str, gateway: str, chat: int, by: int, crash: str | None) -> None:
        """A gateway is at a handoff, most often at one that somebody asked for."""
        asked = [
            each.id for each in self.model.talks.values() if each.handoff.state in ("pending", "running")
        ]
        name = asked[pick % len(asked)] if asked and pick < 9 else self.any_talk(pick)
        key, at = KEYS[chat], self.clock.now_us
        given: dict[str, Any] = {"session_id": name, "gateway": gateway}
        change: Change
        match what:
            case "claim":
                change = lambda m, _: m.claim(name, gateway, at)  # noqa: E731
            case "heartbeat":
                change = lambda m, _: m.heartbeat(name, gateway, at)  # noqa: E731
            case "complete":
                peer = {field: SOURCES[chat][field] for field in ("chat_id", "user_id")}
                given |= {"key": key, "chat_type": "dm", **peer}
                change = lambda m, _: m.complete(name, gateway, key, at)  # noqa: E731
            case _:
                given["reason"] = "it did not work out"
                change = lambda m, _: m.fail(name, gateway)  # noqa: E731
        self.do(f"{what}_handoff", given, change, by=by, crash=crash)

    @rule(by=writers)
    def expire_handoffs(self, by: int) -> None:
        at = self.clock.now_us
        heard = self.writers[by].tell("expire_handoffs", {"at_us": at})
        assert "refused" not in heard, heard
        self.model.give_up_late(at)
        self.last = None
        self.check()

    # --- repairs -----------------------------------------------------------------------------------

    @rule(chat=chats, pick=number, below=st.booleans(), by=writers, crash=crashes)
    def lose(self, chat: int, pick: int, below: bool, by: int, crash: str | None) -> None:
        """Something goes on in a session of a platform that knows no chat."""
        name, at, source = self.name("lost"), self.clock.now_us, SOURCES[chat]["platform"]
        parent = self.any_talk(pick) if below else None
        heard = self.do(
            "create_session",
            {"source": source, "session_id": name, "parent": parent},
            lambda m, _: m.create(name, source, at, parent=parent, kind="child" if parent else None),
            by=by,
            crash=crash,
        )
        if heard != DIED:
            self._say(name, self.name("message "), True, by, None)

    @rule(
        chat=chats,
        below=st.booleans(),
        choose=st.sampled_from([None, "led", "itself"]),
        by=writers,
        crash=crashes,
    )
    def jump_back(self, chat: int, below: bool, choose: str | None, by: int, crash: str | None) -> None:
        """A chat goes on in a session that does not know it, and that one takes the key back."""
        self.clock.now_us += 30 * MINUTE
        self.resolve(chat=chat, said=True, by=by, crash=None)
        led = self.model.routes[KEYS[chat]].to
        self.clock.now_us += MINUTE
        name, at, source = self.name("lost"), self.clock.now_us, SOURCES[chat]["platform"]
        parent = led if below else None
        self.do(
            "create_session",
            {"source": source, "session_id": name, "parent": parent},
            lambda m, _: m.create(name, source, at, parent=parent, kind="child" if parent else None),
            by=by,
        )
        self._say(name, self.name("message "), True, by, None)
        chosen = {"led": led, "itself": name}.get(choose or "")
        given = {"orphan_id": name, "choose": chosen}
        self.do("repair", given, lambda m, _: m.repair(name, chosen, at), by=by, crash=crash)

    @rule(pick=number, choose=st.sampled_from([None, "led", "itself", "another"]), by=writers, crash=crashes)
    def repair(self, pick: int, choose: str | None, by: int, crash: str | None) -> None:
        """A session takes its key back, most often one that lost it."""
        lost = [each.id for each in self.model.orphans() if each.source != "cli"]
        name, at = lost[pick % len(lost)] if lost and pick < 9 else self.any_talk(pick), self.clock.now_us
        led = [each.to for each in self.model.routes.values() if each.to is not None]
        chosen = {
            "led": led[pick % len(led)] if led else None,
            "itself": name,
            "another": self.any_talk(pick + 1),
        }.get(choose or "")
        given = {"orphan_id": name, "choose": chosen}
        self.do("repair", given, lambda m, _: m.repair(name, chosen, at), by=by, crash=crash)


def _same(expected: list[str], told: list[str] | None) -> None:
    """What a start offers, where there is somebody to tell it."""
    assert told in (None, expected), (told, expected)
