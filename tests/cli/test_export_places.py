"""`retold sessions export`: what is selected, where it goes, and what may be deleted afterwards.

Over 400 lines because each refusal is held against one home with delegates.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.infrastructure.engine import open_home
from retold.infrastructure.exporters import markdown, output_file
from retold.tests.histories import history

if TYPE_CHECKING:
    from retold.tests.conftest import Run

EXPORT = ("sessions", "export")
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted.\n\n## Goal\nA dry boat."
END = "--- END OF CONTEXT SUMMARY — respond to the message below, not the summary above ---"
PRIOR = "[PRIOR CONTEXT — for reference only; not a new message]"
BELOW = "[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]"


@pytest.fixture
def filled(home: Path) -> Path:
    """One session that ended, with two delegates; one that is open."""
    with open_home(home) as engine:
        engine.create_session("cli", session_id="main", title="Boat plan")
        engine.append_message("main", "user", "how do I mend the boat?")
        engine.append_message("main", "assistant", "with tar")
        for child, parent in (("oars", "main"), ("count", "oars")):
            engine.create_session("subagent", session_id=child, parent=parent, parent_kind="delegate")
            engine.append_message(child, "user", f"see to the {child}")
        engine.end_session("main", "user_exit")
        engine.create_session("cli", session_id="open")
        engine.append_message("open", "user", "still here")
    return home


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


# --- which sessions ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("form", ["md", "qmd"])
def test_everything_is_exported_as_pages_where_that_is_said(run: Run, tmp_path: Path, form: str) -> None:
    refused = run(*EXPORT, tmp_path / "md", "--format", form)
    done = run(*EXPORT, tmp_path / "md", "--format", form, "--all")

    assert refused.exit_code == 2
    assert "Refusing bulk export without a filter." in refused.stderr
    assert "--all exports every session" in refused.stderr
    assert done.stdout == f"Exported 4 sessions to {tmp_path / 'md'}\n"
    assert f"main-boat-plan.{form}" in names(tmp_path / "md")
    assert f"open-session.{form}" in names(tmp_path / "md")


@pytest.mark.usefixtures("filled")
def test_filters_take_open_ones_too_where_that_is_said(run: Run) -> None:
    ended = run(*EXPORT, "-", "--source", "cli")
    all_of_them = run(*EXPORT, "-", "--source", "cli", "--all")

    assert [json.loads(each)["id"] for each in ended.stdout.splitlines()] == ["main"]
    assert [json.loads(each)["id"] for each in all_of_them.stdout.splitlines()] == ["open", "main"]
    assert "--all exports such ones, too" in " ".join(ended.stderr.split())
    assert all_of_them.stderr == ""


@pytest.mark.usefixtures("filled")
def test_a_dry_run_shows_whatever_would_be_exported(run: Run, tmp_path: Path) -> None:
    one = run(*EXPORT, tmp_path / "x", "--session-id", "Boat plan", "--dry-run")
    every = run(*EXPORT, tmp_path / "x", "--all", "--dry-run")

    assert one.stdout == "Would export 1 session(s) (session 'main').\n  main  cli\n"
    assert every.stdout.startswith("Would export 4 session(s) (all).\n  open  cli\n")
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--all", "--session-id", "main"], "--session-id and --all exclude each other"),
        (["--sanitize", "--only", "user-prompts"], "--sanitize leaves nothing of a prompt"),
    ],
)
def test_what_excludes_each_other_is_refused(run: Run, args: list[str], said: str) -> None:
    done = run(*EXPORT, "-", *args)

    assert done.exit_code == 2
    assert said in done.stderr


# --- prompts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "asked"),
    [
        (SUMMARY, None),
        ("[CONTEXT SUMMARY]: a dry boat", None),
        (f"{SUMMARY}\n\n{END}", None),
        (f"{SUMMARY}\n\n{END}\n\nand the mast?", "and the mast?"),
        (f"{PRIOR}\nand the mast?\n\n{BELOW}\n\n{SUMMARY}\n\n{END}", "and the mast?"),
        (f"{BELOW} is what it says", f"{BELOW} is what it says"),
        ("what does [CONTEXT COMPACTION] mean?", "what does [CONTEXT COMPACTION] mean?"),
    ],
)  # fmt: skip
def test_a_summary_is_no_prompt_whoever_wrote_it(
    run: Run, home: Path, content: str, asked: str | None
) -> None:
    with history(home) as h:
        h.session("s")
        h.say("s", content)
        h.say("s", "last")
    told = [json.loads(each)["text"] for each in run(*EXPORT, "--only", "user-prompts").stdout.splitlines()]

    assert told == [each for each in (asked, "last") if each is not None]


# --- names of files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("昨晚 café", "昨晚-café"),
        ("cafe\u0301!", "café"),
        ("Plan: Ünï #2", "plan-ünï-2"),
        ("हिन्दी में", "हिन्दी-में"),
        ("سلام\u200fدنیا", "سلام-دنیا"),
        ("../../etc/passwd", "etc-passwd"),
        ("😀", "session"),
        ("a" * 59 + "e\u0301e\u0301", "a" * 59 + "é"),
        ("हि" * 40, "हि" * 30),
        ("\ud800x", "x"),
    ],
)
def test_a_title_keeps_the_letters_of_any_script_in_a_file_s_name(title: str, slug: str) -> None:
    assert markdown.slug_of(title, size_bytes=200) == slug


@pytest.mark.parametrize("session_id", ["s", "x" * 149, "長" * 80])
@pytest.mark.parametrize("title", ["𠮷" * 100, "न" * 100, "é" * 100])
def test_a_file_s_name_is_never_too_long_for_a_file_system(
    tmp_path: Path, session_id: str, title: str
) -> None:
    name = markdown.file_name({"id": session_id, "title": title}, "qmd")
    slug = name.removeprefix(markdown.safe_id(session_id)).removesuffix(".qmd")

    (tmp_path / name).touch()
    assert 1 < len(slug) <= 61
    assert len(slug.encode()) <= 201


# --- places -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("no/such.jsonl", "the folder {}/no is not there"),
        ("file/x.jsonl", "{}/file/x.jsonl cannot be written: Not a directory"),
        ("file/", "{}/file cannot be written: File exists"),
        ("loop", "cannot be written: Too many levels of symbolic links"),
        ("x" * 300, "cannot be written: File name too long"),
    ],
)
def test_a_place_that_is_none_is_named(run: Run, tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    done = run(*EXPORT, f"{tmp_path}/{place}")

    assert done.exit_code == 2
    assert said.format(tmp_path) in done.stderr
    assert names(tmp_path) == ["file", "loop", "retold-home"]


@pytest.mark.usefixtures("filled")
def test_a_file_is_no_folder_for_pages(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = run(*EXPORT, tmp_path / "file", "--format", "md", "--all")

    assert done.exit_code == 2
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("only", [[], ["--only", "user-prompts"]])
def test_a_name_that_ends_in_a_slash_is_a_folder(run: Run, tmp_path: Path, only: list[str]) -> None:
    done = run(*EXPORT, f"{tmp_path}/new/dir.d/", *only)
    (file,) = (tmp_path / "new" / "dir.d").iterdir()

    assert done.exit_code == 0
    assert done.stdout.endswith(f" to {file}\n")


@pytest.mark.usefixtures("filled")
def test_a_link_is_written_through_whether_its_file_is_there_or_not(run: Run, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real.jsonl")
    first = run(*EXPORT, tmp_path / "link")
    again = run(*EXPORT, tmp_path / "link")
    forced = run(*EXPORT, tmp_path / "link", "--force", "--session-id", "open")

    assert (first.exit_code, again.exit_code, forced.exit_code) == (0, 3, 0)
    assert (tmp_path / "link").is_symlink()
    assert [json.loads(each)["id"] for each in (tmp_path / "real.jsonl").read_text().splitlines()] == ["open"]


@pytest.mark.usefixtures("filled")
def test_a_link_into_the_home_is_no_way_into_it(run: Run, home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home / "new.jsonl")
    done = run(*EXPORT, tmp_path / "link")

    assert done.exit_code == 2
    assert not (home / "new.jsonl").exists()


@pytest.mark.usefixtures("filled")
def test_a_page_that_is_written_over_has_one_line_in_the_manifest(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "md"
    run(*EXPORT, folder, "--format", "md", "--all")
    with (folder / "manifest.jsonl").open("a") as file:
        file.write("not ours\n\n")
    before = (folder / "manifest.jsonl").read_text("utf-8").splitlines()
    run(*EXPORT, folder, "--format", "md", "--session-id", "main", "--force")
    after = (folder / "manifest.jsonl").read_text("utf-8").splitlines()
    sound = [json.loads(each) for each in after if each.startswith("{")]

    assert len(after) == len(before)
    assert set(before) - set(after) == {each for each in before if '"session_id": "main"' in each}
    assert {"not ours", ""} <= set(after)
    assert len({each["path"] for each in sound}) == len(sound) == 4
    assert names(folder) == [
        "count-session.md", "main-boat-plan.md", "manifest.jsonl", "oars-session.md", "open-session.md",
    ]  # fmt: skip
    assert (folder / "manifest.jsonl").stat().st_mode & 0o777 == 0o600


# --- deleting what was exported ---------------------------------------------------------------------

DELETE = ("--delete-after-verified", "--yes", "--format", "md")


@pytest.mark.usefixtures("filled")
def test_what_is_exported_and_sound_is_deleted_with_its_delegates(run: Run, tmp_path: Path) -> None:
    done = run(*EXPORT, tmp_path / "md", "--session-id", "main", *DELETE)
    listed = run("sessions", "list", "--all", "--json").json["sessions"]

    assert done.exit_code == 0
    assert done.stdout == (
        f"Exported 3 sessions to {tmp_path / 'md'}\n"
        "Deleted exported session 'main' and 2 delegate sessions.\n"
    )
    assert "brings it back: retold sessions undelete main" in " ".join(done.stderr.split())
    assert [each["id"] for each in listed] == ["open"]
    assert names(tmp_path / "md") == [
        "count-session.md", "main-boat-plan.md", "manifest.jsonl", "oars-session.md",
    ]  # fmt: skip
    assert run("sessions", "undelete", "main").exit_code == 0
    assert len(run("sessions", "list", "--all", "--json").json["sessions"]) == 4
    assert run("verify").exit_code == 0


@pytest.mark.usefixtures("filled")
def test_the_answer_names_what_was_deleted(run: Run, tmp_path: Path) -> None:
    done = run(*EXPORT, tmp_path / "md", "--session-id", "open", *DELETE, "--json").json

    assert (done["exported"], done["deleted"]) == (1, ["open"])
    assert re.fullmatch(r"\d{4}-.*Z", done["erase_after_at"])


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--delete-after-verified", "--format", "md", "--session-id", "main"], "requires --yes."),
        ([*DELETE, "--source", "cli"], "is only supported with --session-id."),
        (["--delete-after-verified", "--format", "md"], "--delete-after-verified requires --yes."),
        (DELETE, "is only supported with --session-id."),
        (["--delete-after-verified", "--yes", "--session-id", "main"], "only supported with --format md"),
        ([*DELETE, "--session-id", "main", "--only", "user-prompts"], "only supported with --format md"),
        ([*DELETE, "--session-id", "main", "--lineage", "logical"], "--lineage logical exclude each other"),
        ([*DELETE, "--session-id", "main", "--sanitize"], "--sanitize exclude each other"),
        ([*DELETE, "--session-id", "main", "--at", "#3"], "--at exclude each other"),
    ],
)  # fmt: skip
def test_nothing_else_is_deleted(run: Run, tmp_path: Path, args: list[str], said: str) -> None:
    done = run(*EXPORT, tmp_path / "md", *args)

    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert len(run("sessions", "list", "--all", "--json").json["sessions"]) == 4
    assert not (tmp_path / "md").exists()


@pytest.mark.usefixtures("filled")
def test_a_dry_run_shows_what_would_be_deleted(run: Run, tmp_path: Path) -> None:
    done = run(*EXPORT, tmp_path / "md", "--session-id", "main", *DELETE, "--dry-run")

    assert done.stdout.splitlines()[1:] == ["  main  cli", "  count  subagent", "  oars  subagent"]
    assert len(run("sessions", "list", "--all", "--json").json["sessions"]) == 4


@pytest.mark.usefixtures("filled")
def test_a_page_that_is_there_already_stops_all_of_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "md").mkdir()
    (tmp_path / "md" / "oars-session.md").write_text("mine")
    done = run(*EXPORT, tmp_path / "md", "--session-id", "main", *DELETE)

    assert done.exit_code == 3
    assert names(tmp_path / "md") == ["oars-session.md"]
    assert len(run("sessions", "list", "--all", "--json").json["sessions"]) == 4


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: None, "file missing"),
        (lambda text: text.rpartition("- SHA256")[0], "sha256 marker missing"),
        (lambda text: text[:-3] + "\n", "sha256 marker missing"),
        (lambda text: text.replace("with tar", "with tea"), "sha256 mismatch"),
    ],
)
def test_what_does_not_stand_on_disk_as_it_should_is_not_deleted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: object, said: str
) -> None:
    note = markdown.note_in_manifest

    def spoilt(folder: Path, page: markdown.Page, path: Path, *args: object, **named: float) -> None:
        note(folder, page, path, *args, **named)  # type: ignore[arg-type] # handed on
        text = damage(path.read_text("utf-8"))  # type: ignore[operator] # a function of the table
        path.unlink() if text is None else path.write_text(text, "utf-8")

    monkeypatch.setattr(markdown, "note_in_manifest", spoilt)
    done = run(*EXPORT, tmp_path / "md", "--session-id", "main", *DELETE)

    assert done.exit_code == 3
    assert f"Export verification failed; not deleting: {said}" in done.stderr
    assert len(run("sessions", "list", "--all", "--json").json["sessions"]) == 4


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("session_id", "count", "why"),
    [
        ("main", 2, None),
        ("main", 3, "message count mismatch"),
        ("mai", 2, "session id mismatch"),
    ],
)
def test_a_page_is_held_against_its_session(
    run: Run, tmp_path: Path, session_id: str, count: int, why: str | None
) -> None:
    run(*EXPORT, tmp_path / "md", "--format", "md", "--session-id", "main")

    assert markdown.failure(tmp_path / "md" / "main-boat-plan.md", session_id, count) == why


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("change", ["message", "edit", "delegate", "told by a delegate"])
def test_what_was_changed_since_its_export_is_not_deleted(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    note = markdown.note_in_manifest

    def meanwhile(folder: Path, page: markdown.Page, path: Path, *args: object, **named: float) -> None:
        note(folder, page, path, *args, **named)  # type: ignore[arg-type] # handed on
        if page.session["id"] != "main":
            return
        with open_home(home) as engine:
            if change == "message":
                engine.reopen_session("main")
                engine.append_message("main", "user", "and the mast?")
            elif change == "edit":
                engine.title_session("main", "Another plan")
            elif change == "delegate":
                engine.create_session("subagent", session_id="sails", parent="main", parent_kind="delegate")
            else:
                engine.append_message("count", "assistant", "twelve")

    monkeypatch.setattr(markdown, "note_in_manifest", meanwhile)
    done = run(*EXPORT, tmp_path / "md", "--session-id", "main", *DELETE)
    listed = run("sessions", "list", "--all", "--json").json["sessions"]

    assert done.exit_code == 3
    assert "changed meanwhile; not deleting what was exported" in done.stderr
    assert {"main", "oars", "count"} <= {each["id"] for each in listed}


@pytest.mark.usefixtures("filled")
def test_branches_and_continuations_are_not_deleted_along(run: Run, home: Path, tmp_path: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="b", parent="main", parent_kind="branch")
    done = run(*EXPORT, tmp_path / "md", "--session-id", "main", *DELETE, "--json").json

    assert sorted(done["deleted"]) == ["count", "main", "oars"]


# --- the manifest is one file, whoever writes ---------------------------------------------------------


def test_who_adds_a_line_while_another_tidies_loses_none(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    for number in range(3):
        output_file.add_line(path, b"%d\n" % number)
    handle = os.open(path, os.O_RDONLY)
    output_file.keep_last(path, lambda line: b"all")
    output_file.add_line(path, b"3\n")
    os.close(handle)

    assert path.read_bytes() == b"2\n3\n"
    assert names(tmp_path) == ["manifest.jsonl"]


@pytest.mark.parametrize("unnamed", [True, False])
def test_who_is_killed_while_it_writes_leaves_nothing_where_the_system_can_see_to_it(
    tmp_path: Path, *, unnamed: bool
) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from retold.infrastructure.exporters import output_file\n"
        f"if not {unnamed}: del os.O_TMPFILE\n"
        "with output_file.written(pathlib.Path('a.jsonl'), force=False) as out:\n"
        "    out.write(b'said' * 100_000)\n"
        "    if len(sys.argv) > 1: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, "die"], cwd=tmp_path, check=False)
    left = [each.name for each in tmp_path.iterdir()]
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)

    assert killed.returncode == -signal.SIGKILL
    assert len(left) == (0 if unnamed else 1)
    assert (tmp_path / "a.jsonl").stat().st_size == 400_000
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*left, "a.jsonl"])
