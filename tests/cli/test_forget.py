"""`retold forget` at the command line: which message is meant, what is asked, which copies hold it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold.infrastructure import forgetting
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.held import Held, pieces_of, still_held

if TYPE_CHECKING:
    from retold.tests.conftest import Run

FIND = "retold.infrastructure.commands.erasure.find"
LINES = [
    {"role": "user", "content": "the hull leaks at the bow", "timestamp": 1_777_000_001.0, "id": 3},
    {"role": "assistant", "content": "caulk the seam with cotton", "timestamp": 1_777_000_002.0, "id": 4},
    {"role": "user", "content": "and paint it grey after that", "timestamp": 1_777_000_003.0, "id": 5},
]


@pytest.fixture(autouse=True)
def _made(run: Run, tmp_path: Path) -> None:
    """A session whose messages came with ids that are numbers of other messages here."""
    given = {"id": "boat-1", "source": "cli", "started_at": 1_777_000_000.0, "messages": LINES}
    path = tmp_path / "given.jsonl"
    path.write_text(json.dumps(given))
    assert run("import", "jsonl", str(path)).exit_code == 0
    path.unlink()


def told(run: Run) -> dict[int, str]:
    messages = run("sessions", "show", "boat-1", "--json").json["messages"]
    return {each["id"]: each["content"] for each in messages}


def exported(run: Run) -> dict[int, str]:
    line = json.loads(run("sessions", "export", "-", "--session-id", "boat-1").stdout)
    return {each["id"]: each["content"] for each in line["messages"]}


def both(run: Run) -> int:
    """An id that an export gives one message, and that is the number of another."""
    here, there = told(run), exported(run)
    (found,) = [each for each in there if each in here and here[each] != there[each]][:1]
    return found


def test_a_number_that_means_two_messages_is_refused_with_both(run: Run) -> None:
    number = both(run)
    done = run("forget", "boat-1", str(number), "--yes")

    assert done.exit_code == 2
    assert f"'{number}' means 2 messages of session boat-1" in done.stderr
    for text in (told(run)[number], exported(run)[number]):
        assert text in done.stderr
    assert "as exports say it" in done.stderr
    assert f"retold forget boat-1 '#{number}'" in done.stderr
    assert "[forgotten]" not in told(run).values()


def test_a_number_with_its_sign_is_the_one_that_a_transcript_prints(run: Run) -> None:
    number = both(run)
    done = run("forget", "boat-1", f"#{number}", "--yes", "--json").json

    assert done["message"] == number
    assert [each for each, text in told(run).items() if text == "[forgotten]"] == [number]


def test_an_id_off_an_export_means_that_message_where_it_means_no_other(run: Run) -> None:
    (only,) = [each for each in exported(run) if each not in told(run)][:1]
    text = exported(run)[only]
    assert run("forget", "boat-1", str(only), "--yes").exit_code == 0

    assert text not in told(run).values()
    assert list(told(run).values()).count("[forgotten]") == 1


@pytest.mark.parametrize("name", ["#99", "99", "nothing", "#", "99999999999999999999999", ""])
def test_what_is_no_message_is_refused_before_anything_is_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    done = run("forget", "boat-1", name)

    assert done.exit_code == 3
    assert "[y/N]" not in done.stderr


def test_the_question_shows_the_message_before_anything_is_forgotten(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="long")
        engine.append_message("long", "user", "a line\nand " + "x" * 400)
        call = '[{"id": "c1", "function": {"name": "run", "arguments": "{\\"cmd\\": \\"ls -la\\"}"}}]'
        engine.append_message("long", "assistant", None, tool_calls=call)
    messages = run("sessions", "show", "long", "--json").json["messages"]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = run("forget", "long", f"#{messages[0]['id']}")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    called = run("forget", "long", f"#{messages[1]['id']}")

    first, shown, question = asked.stderr.splitlines()[:3]
    assert first.startswith(f"#{messages[0]['id']} of session 'long': user, 20")
    assert shown.startswith("  a line and xxx")
    assert len(shown) == 202
    assert question == "Forget this message, for good? [y/N] "
    assert (asked.exit_code, asked.stdout) == (1, "Cancelled.\n")
    assert 'run({"cmd": "ls -la"})' in called.stderr
    assert run("sessions", "show", "long", "--json").json["messages"] == messages


def test_the_question_says_where_a_text_stands_before_any_of_it_is_forgotten(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(home) as engine:
        for name in ("one", "two", "three"):
            engine.create_session("cli", session_id=name)
            engine.append_message(name, "user", "the seam of " + name)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = run("forget", "--text", "seam")
    monkeypatch.setattr("sys.stdin", io.StringIO("seam of two\ny\n"))
    done = run("forget", "--text", "-")

    assert (asked.exit_code, asked.stdout) == (1, "Cancelled.\n")
    assert asked.stderr.splitlines() == [
        "It stands in 4 events of 4 sessions: boat-1, one, two and 1 more.",
        "Forget this text wherever it stands, for good? [y/N] ",
    ]
    assert done.stderr.startswith("It stands in 1 event of 1 session: two.\n")
    assert done.stdout.startswith("Forgotten in 1 event of 1 session.\n")


@pytest.mark.parametrize(("text", "code"), [("nowhere here", 0), ("abc", 2), ("boat-1", 3)])
def test_a_text_that_is_not_to_be_forgotten_is_not_asked_about(
    run: Run, monkeypatch: pytest.MonkeyPatch, text: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    done = run("forget", "--text", text)

    assert done.exit_code == code
    assert "[y/N]" not in done.stderr


def test_who_comes_second_is_told_that_it_is_forgotten_already(run: Run, home: Path) -> None:
    number = min(told(run))
    first = run("forget", "boat-1", f"#{number}", "--yes")
    before = run("log", "--json").stdout
    second = run("forget", "boat-1", f"#{number}", "--yes")

    assert first.stdout == "Forgotten in 1 event of 1 session.\n"
    assert (second.exit_code, second.stdout) == (
        0,
        f"Message #{number} of session 'boat-1' is forgotten already; nothing was written.\n",
    )
    assert run("log", "--json").stdout == before


def test_only_copies_that_hold_it_are_named(run: Run, home: Path, tmp_path: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="other-1")
        engine.append_message("other-1", "user", "nothing of the kind")
    pages = tmp_path / "pages"
    for session in ("boat-1", "other-1"):
        run("sessions", "export", "--format", "md", "--session-id", session, str(pages))
        run("sessions", "export", "--format", "md", "--session-id", session)
        run("sessions", "export", str(tmp_path / f"{session}.jsonl"), "--session-id", session)
    assert run("backup", str(tmp_path / "backup")).exit_code == 0
    done = run("forget", "--text", "caulk the seam", "--yes", "--json").json

    names = {str(Path(each).relative_to(tmp_path)) for each in done["copies"]}
    assert done["copies_unread"] == []
    assert {each for each in names if "other-1" in each} == set()
    assert {"backup", "boat-1.jsonl"} <= names
    assert sum(each.startswith("pages/boat-1") for each in names) == 1
    assert sum("session-exports/boat-1" in each for each in names) == 1
    assert len(names) == 4


def test_pages_in_the_home_go_along_where_that_is_asked_for(run: Run, home: Path, tmp_path: Path) -> None:
    run("sessions", "export", "--format", "md", "--session-id", "boat-1")
    run("sessions", "export", str(tmp_path / "far.jsonl"), "--session-id", "boat-1")
    (page,) = (home / "session-exports").glob("boat-1*")
    number = min(told(run))
    done = run("forget", "boat-1", f"#{number}", "--yes", "--exports")

    assert not page.exists()
    assert done.stderr.count(str(page)) == done.stderr.count(f"Deleted: {page}") == 1
    assert "  " + str(tmp_path / "far.jsonl") in done.stderr
    assert (tmp_path / "far.jsonl").exists()


def test_what_cannot_be_looked_through_is_named_as_such(run: Run, home: Path, tmp_path: Path) -> None:
    assert run("backup", str(tmp_path / "backup")).exit_code == 0
    (tmp_path / "backup" / "events.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    done = run("forget", "--text", "caulk the seam", "--yes")

    assert f"These were not looked through and may:\n  {tmp_path / 'backup'}" in done.stderr
    assert "These hold it still:" not in done.stderr


def test_an_erased_session_names_the_copies_that_hold_it(run: Run, home: Path, tmp_path: Path) -> None:
    for session in ("boat-1",):
        run("sessions", "export", str(tmp_path / "boat.jsonl"), "--session-id", session)
    with open_home(home) as engine:
        engine.create_session("cli", session_id="other-1")
        engine.append_message("other-1", "user", "nothing of the kind")
        engine.end_session("other-1", "cli_close")
    one = run("sessions", "delete", "other-1", "--now", "--yes", "--json").json
    two = run("sessions", "delete", "boat-1", "--now", "--yes", "--json").json

    assert (one["copies"], two["copies"]) == ([], [str(tmp_path / "boat.jsonl")])


def test_upkeep_that_erases_names_the_copies_too(run: Run, home: Path, tmp_path: Path) -> None:
    run("sessions", "export", str(tmp_path / "boat.jsonl"), "--session-id", "boat-1")
    with open_home(home) as engine:
        engine.clock = lambda: 1_777_000_000_000_000
        engine.delete_session("boat-1")
    done = run("maintain")
    again = run("maintain", "--json").json

    assert "erased 1 deleted session" in done.stdout
    assert f"  {tmp_path / 'boat.jsonl'}" in done.stderr
    assert again["copies"] == []


@pytest.mark.parametrize(
    ("texts", "pieces"),
    [
        (["one line of it\nand <b>another line</b> one"], ["one line of it", "another line"]),
        ([None, '[{"function": {"arguments": "{\\"path\\": \\"/srv/keys\\"}"}}]'], ["/srv/keys"]),
        (["yes", None], []),
        (["word"], ["word"]),
    ],
)
def test_what_is_looked_for_is_written_alike_in_every_export(
    texts: list[str | None], pieces: list[str]
) -> None:
    found = pieces_of(*texts)

    assert set(pieces) <= set(found)
    assert bool(found) == bool(pieces)


def test_without_anything_to_look_for_every_copy_is_named(run: Run, home: Path, tmp_path: Path) -> None:
    run("sessions", "export", str(tmp_path / "boat.jsonl"), "--session-id", "boat-1")
    with open_home(home) as engine:
        assert still_held(home, engine.state.reader(), []) == Held(unread=(tmp_path / "boat.jsonl",))


def test_delete_shows_what_would_go_and_deletes_nothing(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("subagent", session_id="sub-1", parent="boat-1", parent_kind="delegate")
    before = run("log", "--json").stdout
    shown = run("sessions", "delete", "boat-1", "--dry-run")
    told_json = run("sessions", "delete", "boat", "--dry-run", "--json").json

    assert shown.exit_code == 0
    assert shown.stdout.startswith("1 session matches (as named; oldest ")
    assert shown.stdout.endswith("With them: 1 delegate.\nDry run: nothing was deleted.\n")
    assert ([each["id"] for each in told_json["sessions"]], told_json["along"]) == (["boat-1"], ["sub-1"])
    assert run("log", "--json").stdout == before
    assert run("sessions", "delete", "nobody", "--dry-run").exit_code == 2


def test_another_text_that_was_forgotten_meanwhile_does_not_come_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stand in one message: whoever looked before the first was gone would put it back."""
    with open_home(home) as engine, open_home(home) as other:
        engine.create_session("cli", session_id="s1")
        engine.append_message("s1", "user", "first-secret and second-secret")

        def slow(*given: Any, **more: Any) -> Any:
            found = forgetting.find(*given, **more)
            monkeypatch.setattr(FIND, forgetting.find)
            assert other.forget_text("first-secret").events == 1
            return found

        monkeypatch.setattr(FIND, slow)
        assert engine.forget_text("second-secret").events

        assert [each.content for each in engine.view("s1").messages] == ["[forgotten] and [forgotten]"]
    files = [each for each in home.rglob("*") if each.is_file() and not each.is_symlink()]
    assert not [
        each for each in files for text in (b"first-secret", b"second-secret") if text in each.read_bytes()
    ]


def test_of_two_who_forget_one_text_at_once_one_has_done_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(home) as engine, open_home(home) as other:
        engine.create_session("cli", session_id="s1")
        engine.append_message("s1", "user", "the first-secret")
        done: list[int] = []

        def slow(*given: Any, **more: Any) -> Any:
            found = forgetting.find(*given, **more)
            monkeypatch.setattr(FIND, forgetting.find)
            done.append(other.forget_text("first-secret").events)
            return found

        monkeypatch.setattr(FIND, slow)

        assert (engine.forget_text("first-secret").events, done) == (0, [1])


def test_of_two_who_forget_one_message_at_once_one_has_done_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(home) as engine, open_home(home) as other:
        engine.create_session("cli", session_id="s1")
        message = engine.append_message("s1", "user", "the first-secret").position
        position = SessionEngine._position
        done: list[int] = []

        def slow(self: SessionEngine, session_id: str, name: int | str) -> int:
            monkeypatch.setattr(SessionEngine, "_position", position)
            done.append(other.forget_message("s1", message).events)
            return position(self, session_id, name)

        monkeypatch.setattr(SessionEngine, "_position", slow)

        assert (engine.forget_message("s1", message).events, done) == (0, [1])
