"""What is forgotten is in no file of the home, and what it stood in reads on."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from retold.domain import events as e
from retold.domain.errors import BadUsage, NoSuchMessage, RuleBroken, VersionConflict
from retold.infrastructure import erasing
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.erasing import PENDING
from retold.infrastructure.history import state_at
from retold.infrastructure.home import Home
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.log import Log
from retold.infrastructure.projector import Progress
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.streams import title_stream
from retold.infrastructure.verify import verify
from retold.infrastructure.when import Point
from retold.projections.search_query import parse
from retold.tests.infrastructure.filled import content, told_from_nothing
from retold.tests.infrastructure.test_erasing import SECRET, traces

KEY = "agent:main:telegram:dm:1001"
T0_US = 1_778_000_000_000_000
CALLS = json.dumps([{"id": "c1", "type": "function", "function": {"name": "send", "arguments": SECRET}}])
ESCAPED = json.dumps({"arguments": json.dumps({"code": SECRET})})


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        opened.create_session("telegram", session_id="s1", key=KEY, title="plan")
        yield opened


def write(engine: SessionEngine, payload: e.Payload, stream: str = "session:s1") -> int:
    version = engine.event_log.stream_version(stream) + 1
    return engine.save_events([e.Event(stream, version, payload, T0_US)])[0]


def said(engine: SessionEngine, column: str = "content") -> list[Any]:
    engine.projector.catch_up()
    return [row[0] for row in engine.state.reader().execute(f"SELECT {column} FROM messages ORDER BY id")]


def sound(engine: SessionEngine, home: Path) -> None:
    """The log holds, the projections are its fold, and no file has a byte of it."""
    found = verify(home)

    assert (found.exit_code, found.log.problems, found.problems) == (0, [], [])
    assert content(engine.projector) == told_from_nothing(engine.event_log)
    assert traces(home) == {}


def test_e5_a_secret_is_in_no_file_though_it_was_indexed_and_a_summary_quotes_it(
    engine: SessionEngine, home: Path
) -> None:
    message = engine.append_message("s1", "user", f"the word is {SECRET}, keep it").position
    for number in range(80):
        engine.append_message("s1", "assistant", f"answer {number}")
    goes_on = engine.compress_session("s1", f"The user's word is {SECRET}.").session_id
    state_at(engine.event_log, home, Point(position=message)).close()
    held = traces(home)
    assert {name.partition(".")[0] for name in held} >= {"events", "state"}
    assert any(name.startswith("at-") for name in held)

    done = engine.forget_text(SECRET)

    assert (done.events, set(done.sessions), done.pending) == (2, {"s1", goes_on}, ())
    sound(engine, home)
    assert said(engine)[0] == "the word is [forgotten], keep it"
    assert said(engine)[-1] == "The user's word is [forgotten]."
    rebuild(engine.projector, list(engine.projector.projections), compare=True)
    sound(engine, home)
    assert engine.projector.settle(wait_ms=10_000)
    match = parse("z7secretq9 OR qz7secretq9 OR 鍵").match
    found = engine.state.reader().execute("SELECT rowid FROM search WHERE search MATCH ?", (match,))
    assert found.fetchall() == []


def everywhere(engine: SessionEngine) -> None:
    """The secret in every place that takes a text."""
    engine.create_session(
        "telegram",
        session_id="s2",
        title=f"about {SECRET}",
        display_name=SECRET,
        origin_json=json.dumps({"chat": {"name": SECRET}}),
        model=f"m {SECRET}",
        cwd=f"/srv/{SECRET}",
    )
    write(
        engine,
        e.MessageAppended(
            "assistant",
            f'\0json:[{{"type":"text","text":"{SECRET}"}}]',
            tool_name=f"send {SECRET}",
            tool_calls=CALLS,
            reasoning=SECRET,
            reasoning_content=f"thinking of {SECRET}",
            reasoning_details=ESCAPED,
            codex_reasoning_items=ESCAPED,
            codex_message_items=json.dumps([[SECRET]]),
            api_content=SECRET,
            columns={"mood": SECRET, SECRET: "name"},
            odd={"content": e.Odd("text", SECRET.encode())},
            attachments=[e.Attachment(f"/srv/{SECRET}.jpg", "image", f"a note: {SECRET}")],
        ),
    )
    message = engine.append_message("s1", "user", "plain").position
    for payload in (
        e.MessageEdited(message, {"content": f"edited: {SECRET}"}),
        e.PromptChanged("ab" * 16, text=f"The code is {SECRET}."),
        e.TurnQueued("t1", f"say {SECRET}", "slot", about={"name": SECRET}),
        e.TurnFinished("t1", "failed", detail=f"no {SECRET}"),
        e.IdentityLost({"display_name": SECRET}, {"display_name": None}),
        e.SourceRowChanged("session", "s1", {"title": SECRET}, ours={"title": SECRET}, seen=b"digest"),
        e.SessionDeleted(f"because of {SECRET}", T0_US),
        e.SessionUndeleted(),
    ):
        write(engine, payload)
    route = f"route:{engine.identity.keyed_hash('route', KEY).hex()}"
    entry = json.dumps({"display_name": SECRET})
    write(
        engine,
        e.SessionRerouted(
            KEY, "s1", "s1", "import", [e.RouteCandidate("s2", f"not {SECRET}", 1)], [SECRET], entry=entry
        ),
        route,
    )
    write(engine, e.ImportRan("/home/x", 22, {}, {}, notes=[f"its title '{SECRET}' stays"]), "source:f1")
    write(engine, e.HomeChannelSet("telegram", "1", name=SECRET), "gateway:main")


def test_wherever_it_stands_it_is_forgotten(engine: SessionEngine, home: Path) -> None:
    everywhere(engine)
    engine.forget_text(SECRET, reason="a password")

    sound(engine, home)
    assert engine.session("s2").display_name == "[forgotten]"
    assert engine.session("s2").title == "about [forgotten]"
    assert json.loads(said(engine, "tool_calls")[0])[0]["id"] == "c1"
    assert said(engine)[1] == "edited: [forgotten]"
    assert engine.route_of(KEY) == "s1"
    ((prompt, text),) = engine.state.reader().execute("SELECT * FROM system_prompts").fetchall()
    assert (text, prompt == "ab" * 16) == ("The code is [forgotten].", False)
    with closing(engine.event_log.reader().execute("SELECT count(*) FROM snapshots")) as left:
        assert left.fetchone() == (0,)
    mirror = json.loads((home / "sessions" / "sessions.json").read_text())
    assert mirror[KEY]["display_name"] == "[forgotten]"


def test_the_title_that_held_it_is_nobodys_and_the_next_may_have_it(engine: SessionEngine) -> None:
    engine.title_session("s1", "code 483921")
    engine.forget_text("483921")
    claimed = engine.state.reader().execute("SELECT title, title_claimed FROM sessions").fetchall()

    assert claimed == [("code [forgotten]", 0)]
    assert engine.claim("code 483921").holder is None
    engine.title_session("s1", "a new name")
    assert engine.claim("a new name").holder == "s1"


def test_a_number_in_json_leaves_json_behind(engine: SessionEngine, home: Path) -> None:
    calls = json.dumps([{"id": "c1", "function": {"name": "pay", "arguments": '{"pin": 483921, "n": 2}'}}])
    engine.append_message("s1", "assistant", None, tool_calls=calls)
    engine.append_message("s1", "tool", '{"pin": 483921}')
    engine.forget_text("483921")

    assert b"483921" not in (home / "events.db").read_bytes()
    assert json.loads(said(engine)[1]) == {"pin": "[forgotten]"}
    assert json.loads(said(engine, "tool_calls")[0])[0]["id"] == "c1"


def test_its_place_its_calls_and_its_copies_stay_when_a_message_is_forgotten(
    engine: SessionEngine, home: Path
) -> None:
    engine.append_message("s1", "user", "before")
    message = engine.append_message("s1", "assistant", f"it is {SECRET}", tool_calls=CALLS).position
    engine.append_message("s1", "tool", "sent", tool_call_id="c1")
    write(engine, e.MessageAppended("assistant", f"it is {SECRET}", tool_calls=CALLS, copy_of=message))
    write(engine, e.MessageEdited(message, {"content": f"it was {SECRET}"}))

    done = engine.forget_message("s1", message)

    sound(engine, home)
    assert said(engine) == ["before", "[forgotten]", "sent", "[forgotten]"]
    calls = json.loads(said(engine, "tool_calls")[1])
    assert (calls[0]["id"], calls[0]["function"]["name"]) == ("c1", "send")
    assert (done.session_id, done.events) == ("s1", 3)


@pytest.mark.parametrize("named_by", ["the message", "its copy"])
@pytest.mark.parametrize("command", ["forget", "erase"])
def test_it_is_forgotten_in_continuations_and_branches_too(
    engine: SessionEngine, home: Path, command: str, named_by: str
) -> None:
    engine.append_message("s1", "user", "hello")
    said = engine.append_message("s1", "user", f"the code is {SECRET}").position
    engine.compress("s1", "summed up", keep_last=1, continuation_id="s2")
    engine.branch_session("s2", branch_id="b1")
    engine.edit_message("b1", f"the code is still {SECRET}", message=engine.view("b1").messages[1].id)
    engine.delete_session("b1")
    session, message = "s1", said
    if named_by == "its copy":
        session, message = "s2", engine.view("s2").messages[1].id
    if command == "forget":
        engine.forget_message(session, message)
        assert [each.content for each in engine.view("s2").messages] == ["summed up", "[forgotten]"]
    else:
        engine.erase_messages([message], reason="asked for")
        assert [each.content for each in engine.view("s2").messages] == ["summed up"]

    sound(engine, home)


def test_a_message_is_named_by_its_platforms_id_too(engine: SessionEngine, home: Path) -> None:
    engine.append_message("s1", "user", f"it is {SECRET}", platform_message_id="m-77")
    engine.forget_message("s1", "m-77")

    assert said(engine) == ["[forgotten]"]
    assert traces(home) == {}
    head = engine.head()
    for unknown in ("m-78", 1, 9_999):
        with pytest.raises(NoSuchMessage):
            engine.forget_message("s1", unknown)
    assert engine.head() == head


def test_delivered_again_under_its_key_it_stays_forgotten(engine: SessionEngine, home: Path) -> None:
    first = engine.append_message("s1", "user", f"it is {SECRET}", idempotency_key="m1").position
    engine.forget_text(SECRET)
    head = engine.head()

    again = engine.append_message("s1", "user", f"it is {SECRET}", idempotency_key="m1")

    assert (again.position, engine.head()) == (first, head)
    assert traces(home) == {}


def test_imported_again_it_stays_forgotten(home: Path, hermes_home: Path) -> None:
    with closing(sqlite3.connect(hermes_home / "state.db")) as db:
        session_id, message = db.execute("SELECT session_id, id FROM messages ORDER BY id LIMIT 1").fetchone()
        db.execute("UPDATE messages SET content = ? WHERE id = ?", (f"it is {SECRET}", message))
        db.execute(
            "UPDATE sessions SET title = ?, display_name = ? WHERE id = ?", (SECRET, SECRET, session_id)
        )
        db.commit()
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)
        assert traces(home)
        engine.forget_text(SECRET)
        sound(engine, home)
        messages = len(said(engine))

        import_hermes(engine, hermes_home)

        sound(engine, home)
        assert len(said(engine)) == messages
        rebuild(engine.projector, list(engine.projector.projections), compare=True)
        import_hermes(engine, hermes_home)
        assert traces(home) == {}


def test_a_deleted_session_stays_gone_when_its_home_is_imported_again(home: Path, hermes_home: Path) -> None:
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)
        session_id = str(engine.state.reader().execute("SELECT min(session_id) FROM routes").fetchall()[0][0])
        engine.delete_session(session_id, now=True)
        import_hermes(engine, hermes_home)
        rebuild(engine.projector, list(engine.projector.projections), compare=True)
        import_hermes(engine, hermes_home)

        db = engine.state.reader()
        assert db.execute("SELECT count(*) FROM sessions WHERE id = ?", (session_id,)).fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM messages WHERE session_id = ?", (session_id,)).fetchone() == (
            0,
        )
        assert db.execute("SELECT count(*) FROM routes WHERE session_id = ?", (session_id,)).fetchone() == (
            0,
        )
        assert content(engine.projector) == told_from_nothing(engine.event_log)


def test_nothing_that_stays_lets_a_six_digit_code_be_guessed(engine: SessionEngine, home: Path) -> None:
    """Every hash that is left is over something else, or keyed with a salt that is gone."""
    from retold.infrastructure import codec

    position = engine.append_message("s1", "user", "483921").position
    row = "SELECT payload_hash, salt, payload FROM events WHERE position = ?"
    reader: Any = engine.event_log.reader()
    ((written, salt, _),) = reader.execute(row, (position,)).fetchall()
    guessed = codec.encode(e.MessageAppended("user", "483921"))
    assert codec.payload_hash(guessed, salt) == written

    engine.forget_text("483921")
    ((stays, now_salt, _),) = reader.execute(row, (position,)).fetchall()

    assert (stays, now_salt == salt) == (written, False)
    assert codec.payload_hash(guessed, now_salt) != stays
    assert not any(salt in path.read_bytes() for path in home.iterdir() if path.is_file())


def test_a_title_cannot_be_guessed_from_the_name_of_its_stream(engine: SessionEngine, home: Path) -> None:
    engine.title_session("s1", "483921")
    engine.create_session("cli", session_id="s2", title="271828")
    named = {title: title_stream(engine.identity, title).encode() for title in ("483921", "271828")}
    assert all(each in (home / "events.db-wal").read_bytes() for each in named.values())

    engine.forget_text("483921")
    engine.delete_session("s2", now=True)

    assert not any(
        each in path.read_bytes() for each in named.values() for path in home.iterdir() if path.is_file()
    )
    with open_home(home) as other:
        assert other.claim("483921").holder is None
        other.title_session("s1", "483921")
        assert other.claim("483921").holder == engine.claim("483921").holder == "s1"
    assert verify(home).exit_code == 0


def test_who_decided_on_a_title_before_it_was_forgotten_decides_again(
    engine: SessionEngine, home: Path
) -> None:
    engine.title_session("s1", "483921")
    held = engine.claim("483921")
    engine.forget_text("483921")
    released = held.release("s1")
    assert released is not None
    late = e.Event(title_stream(engine.identity, "483921"), held.version + 1, released, T0_US)
    with pytest.raises(VersionConflict, match="forgotten since"):
        engine.save_events([late])

    assert verify(home).exit_code == 0


def test_a_log_of_the_first_format_goes_on_under_the_names_it_has(home: Path) -> None:
    with open_home(home) as engine:
        name = title_stream(engine.identity, "plan")
        engine.create_session("cli", session_id="s1")
    with closing(apsw.Connection(str(home / "events.db"))) as db:
        db.execute("DROP TABLE aliases; PRAGMA user_version = 1")
    with closing(Log(home / "events.db", read_only=True)) as reader:
        assert reader.stream_events(name) == []
    with open_home(home) as engine:
        engine.title_session("s1", "plan")
        assert engine.claim("plan").holder == "s1"
    assert verify(home).exit_code == 0


def test_what_leads_somewhere_is_refused_and_nothing_is_forgotten(engine: SessionEngine) -> None:
    engine.append_message("s1", "user", "call 1001 or agent:main:telegram")
    head = engine.head()
    with pytest.raises(RuleBroken, match="names something"):
        engine.forget_text("telegram:dm:1001")
    engine.create_session("cli", session_id="plan-483921")
    with pytest.raises(RuleBroken, match="the id of session plan-483921"):
        engine.forget_text("483921")
    with pytest.raises(BadUsage, match="at least 4"):
        engine.forget_text(" a ")

    assert engine.head().position == head.position + 1
    assert said(engine) == ["call 1001 or agent:main:telegram"]


def test_what_stands_nowhere_writes_nothing(engine: SessionEngine) -> None:
    head = engine.head()

    assert engine.forget_text(SECRET).positions == ()
    assert engine.head() == head


def test_a_reader_holds_it_up_and_the_next_writer_finishes(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "WAIT_MS", 20)
    engine.append_message("s1", "user", f"it is {SECRET}")
    with closing(apsw.Connection(str(home / "events.db"), flags=apsw.SQLITE_OPEN_READONLY)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchall()
        done = engine.forget_text(SECRET)
        reader.execute("COMMIT")

    assert "events.db" in done.pending
    assert (home / PENDING).exists()
    with open_home(home) as other:
        other.append_message("s1", "user", "and on it goes")
    assert not (home / PENDING).exists()
    sound(engine, home)


def test_another_process_that_had_it_in_memory_does_not_write_it_again(
    engine: SessionEngine, home: Path
) -> None:
    engine.create_session("telegram", session_id="s2", display_name=SECRET, title=f"on {SECRET}")
    with open_home(home) as other:
        other.append_message("s2", "user", "it remembers the session")
        engine.forget_text(SECRET)
        goes_on = other.compress_session("s2", "so far").session_id
        other.append_message(goes_on, "user", "and on it goes")

        assert other.session(goes_on).display_name == "[forgotten]"
        sound(other, home)


def test_an_erasure_that_was_cut_off_is_swept_by_whoever_comes_next(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.append_message("s1", "user", f"it is {SECRET}")

    class Cut(BaseException):
        pass

    def cut(*_: object, **__: object) -> None:
        raise Cut

    with monkeypatch.context() as at_the_sweep:
        at_the_sweep.setattr("retold.infrastructure.commands.erasure.sweep", cut)
        with pytest.raises(Cut):
            engine.forget_text(SECRET)
    engine.close()
    with open_home(home) as other:
        other.append_message("s1", "user", "and on it goes")

        assert said(other)[0] == "it is [forgotten]"
        sound(other, home)


def test_a_mask_that_no_record_names_is_tampering(engine: SessionEngine, home: Path) -> None:
    message = engine.append_message("s1", "user", "hello").position
    engine.forget_message("s1", message)
    engine.close()
    other = erasing.in_place_of(e.MessageAppended("user", "something else"))
    with closing(apsw.Connection(str(home / "events.db"))) as db:
        db.execute(
            "UPDATE events SET payload = ?, salt = ? WHERE position = ?", (other.payload, other.salt, message)
        )
    found = verify(home)

    assert found.exit_code == 5
    assert [(each.kind, each.positions) for each in found.log.problems] == [("payload", [[message, message]])]


def test_what_was_folded_before_is_told_again_by_whoever_reads_next(home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s1")
        message = engine.append_message("s1", "user", f"it is {SECRET}").position
        record = e.PayloadsErased([], "by hand", [None])
        mask = erasing.in_place_of(e.MessageAppended("user", "it is [forgotten]"))
        record = e.PayloadsErased([], "by hand", [None], masked={message: mask.payload_hash})
        made = engine.draft(e.Event("session:s1", 3, record, T0_US))
        engine.event_log.erase([], made, masked={message: mask})
    with Home(home, read_only=True) as reader:
        reader.catch_up()
        told = reader.state.reader().execute("SELECT content, (SELECT preview FROM sessions) FROM messages")

        assert told.fetchall() == [("it is [forgotten]", "it is [forgotten]")]


@pytest.mark.parametrize("whole", [True, False])
def test_a_rebuild_that_read_it_before_does_not_bring_it_back(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr("retold.infrastructure.new_tables.BATCH", 5)
    engine.create_session("telegram", session_id="s2", display_name=SECRET)
    message = engine.append_message("s1", "user", f"it is {SECRET}").position
    for number in range(30):
        engine.append_message("s1", "user", f"message {number}")
    other = threading.Thread(target=forget_in, args=(home,))

    def while_filling(at: Progress) -> None:
        if at.done > message and other.ident is None:
            other.start()
            records: list[e.Recorded] = []
            while not records and other.is_alive():  # it waits for this rebuild only after its save
                records = engine.event_log.read(topics=[e.PayloadsErased.topic])
            assert records

    names = list(engine.projector.projections) if whole else ["transcripts"]
    rebuild(engine.projector, names, compare=False, progress=while_filling)
    other.join(60)

    assert not other.is_alive()
    assert engine.maintain().left == {}
    sound(engine, home)


def forget_in(home: Path) -> None:
    with open_home(home) as other:
        other.forget_text(SECRET)
