"""What the pages say of the program is what the program does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from retold.cli import main as program
from retold.cli.import_ import lines
from retold.cli.lazy import LazyGroup
from retold.cli.main import RETOLD, main
from retold.domain import errors
from retold.infrastructure.config import Config
from retold.infrastructure.importers.report import ImportReport
from retold.tests.conftest import Run, RunProcess
from retold.tests.readme import ROOT, WRITTEN, Command, commands, help_of, parsed, regenerated

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")
_INLINE = re.compile(r"`(retold(?: [^`]+)?)`")
COMMANDS = list(commands())
_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)


def fences(text: str, *kinds: str) -> list[str]:
    """The code blocks of these kinds."""
    return [body for kind, body in _FENCE.findall(text) if kind in kinds]


def typed(page: Path) -> Iterator[str]:
    """Every command line of a page: after a prompt, or at the beginning of a line of shell."""
    text = page.read_text(encoding="utf-8")
    for body in fences(text, "console"):
        yield from (line[2:] for line in body.splitlines() if line.startswith("$ "))
    for body in fences(text, "sh"):
        yield from (line for line in body.splitlines() if line.startswith("retold "))


def words(line: str) -> list[str]:
    """A command line as a shell takes it, without `retold`."""
    return shlex.split(line, comments=True)[1:]


TYPED = sorted({(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in typed(page)})


@pytest.mark.parametrize("name", WRITTEN)
def test_generated_parts_are_what_the_program_says_now(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")

    assert text == regenerated(text), f"{name} is behind the program: make readme"


@pytest.mark.parametrize(("page", "line"), TYPED)
def test_every_command_line_of_a_page_is_one_that_the_program_takes(page: str, line: str) -> None:
    parsed(words(line))


def exists(said: str) -> bool:
    """Whether the words after `retold` lead to a command or a group of commands."""
    table = RETOLD.table
    for word in said.split()[1:]:
        entry = table.get(word)
        if not isinstance(entry, LazyGroup):
            return entry is not None or word.startswith("-")
        table = entry.table
    return True


def test_every_command_named_in_a_sentence_exists() -> None:
    named = {
        (page.name, said) for page in PAGES for said in _INLINE.findall(page.read_text(encoding="utf-8"))
    }

    assert [each for each in sorted(named) if not exists(each[1])] == []
    assert not exists("retold sessions paint")


@pytest.mark.parametrize("each", COMMANDS, ids=lambda each: each.line)
def test_every_command_stands_in_the_readme_with_its_help(each: Command) -> None:
    doc = each.command.help or ""

    assert f"| `{each.line}" in README
    assert each.short_help in README
    assert " ".join(doc.split("\n\n")[0].split()).startswith(each.short_help.rstrip("."))


@pytest.mark.parametrize("each", COMMANDS, ids=lambda each: each.line)
def test_the_help_that_is_shown_is_what_help_prints(
    each: Command, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "82")  # click leaves two of them free
    ran = run(*each.words, "--help")

    assert "".join(ran.stdout.split()) == "".join(help_of(each).split())  # lines break at hyphens, too


def test_the_commands_for_a_hermes_home_run_as_they_are_written(
    run_process: RunProcess, hermes_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of README that need no page of output; `import` and `why` among them, as processes."""
    monkeypatch.chdir(tmp_path)  # one of them writes a page
    env = {"HERMES_HOME": str(hermes_home)}
    plain = [line for body in fences(_GENERATED.sub("", README), "sh") for line in body.splitlines()]
    plain = [line for line in plain if line.startswith("retold ")]
    answers = [run_process(*words(line), env=env) for line in plain]

    assert len(answers) >= 2
    assert [ran.exit_code for ran in answers] == [1 if line.startswith("retold why") else 0 for line in plain]
    assert "taken in" in answers[0].stdout
    assert "JUMPED BACK" in answers[1].stdout


def test_the_make_targets_exist() -> None:
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {
        line.split()[1] for body in fences(README, "sh") for line in body.splitlines() if "make " in line
    }

    assert {"demo", "check"} <= named
    assert [each for each in sorted(named) if f"\n{each}:" not in rules] == []


def test_python_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (source,) = fences(README, "python")
    monkeypatch.setenv("HOME", str(tmp_path))
    exec(compile(source, "README.md", "exec"), {})

    assert len(source.strip().splitlines()) <= 12
    assert re.fullmatch(r"#\d+:[0-9a-f]{64}\n", capsys.readouterr().out)
    assert (tmp_path / ".retold-try" / "events.db").exists()


def test_exit_codes_are_those_of_the_errors() -> None:
    def below(kind: type[errors.RetoldError]) -> Iterator[type[errors.RetoldError]]:
        yield kind
        for each in kind.__subclasses__():
            yield from below(each)

    of_program = {value for name, value in vars(program).items() if name.startswith("EXIT_")}
    known = {0} | of_program | {each.exit_code for each in below(errors.RetoldError)}

    assert {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)} == known


def test_settings_are_those_that_there_are() -> None:
    def keys(kind: Any, prefix: str = "") -> Iterator[str]:
        for each in msgspec.structs.fields(kind):
            if isinstance(each.type, type) and issubclass(each.type, msgspec.Struct):
                yield from keys(each.type, f"{prefix}{each.name}.")
            else:
                yield prefix + each.name

    section = README.split("## Settings")[1].split("\n## ")[0]

    assert re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE) == list(keys(Config))


def test_settings_are_read_and_the_mirror_is_written(run: Run, home: Path, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    mirrored = (home / "sessions" / "sessions.json").exists()
    (home / "config.yaml").write_text("no_such_key: 1\n", encoding="utf-8")

    assert mirrored
    assert run("sessions", "stats").exit_code == 2


def test_what_began_after_a_time_is_not_there(run: Run, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    shown = run("sessions", "list", "--all", "--at", "2026-05-08T00:00Z", "--json").json["sessions"]

    assert shown
    assert all(each["started_at"] < "2026-05-08" for each in shown)


def test_options_that_commands_are_said_to_share_are_shared() -> None:
    def having(option: str) -> set[str]:
        return {each.line for each in COMMANDS if any(option in p.opts for p in each.command.params)}

    every = {each.line for each in COMMANDS}

    assert having("--json") == every
    assert having("--home") == every - {"retold demo"}
    reads = {"sessions list", "sessions show", "sessions tree", "sessions stats", "sessions repair-routing"}
    reads |= {"export hermes", "sessions export", "search", "why", "audit", "log"}
    reads |= {"resume", "where", "insights"}
    assert having("--at") == {f"retold {each}" for each in reads}


def test_the_files_of_a_home_are_those_that_are_named(run: Run, home: Path, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    run("sessions", "list", "--at", "#60")
    section = README.split("## The files")[1].split("\n## ")[0]
    named = {each.strip("/") for each in re.findall(r"^\| `([\w./]+)` \|", section, re.MULTILINE)}
    private = re.compile(r"state\.\d+\.db|(state|import)\.lock|.*-(wal|shm)")

    assert {each.name for each in home.iterdir() if not private.fullmatch(each.name)} <= named
    assert (home / "state.db").readlink() == Path("state.1.db")
    assert home.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in home.iterdir() if each.is_file()} == {0o600}


def test_lines_of_an_import_are_those_that_are_explained() -> None:
    page = (ROOT / "docs" / "hermes.md").read_text(encoding="utf-8")
    section = page.split("## How what is found is named")[1].split("\n## ")[0]
    full = ImportReport(
        path="/h", schema_version=None, position=1, duration_s=0.0, taken={}, unchanged={},
        conflicts=["x"], lost=["x"], damage=["x"], skipped=["x"], notes=["x"], differences=["x"],
    )  # fmt: skip
    labels = [line[2:15].strip() for line in lines(full)[1:-1]]

    assert sorted(re.findall(r"^\| `([\w ]+)` \|", section, re.MULTILINE)) == sorted(labels)


def test_the_error_in_the_contract_is_what_the_program_answers(run: Run, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    (example,) = fences((ROOT / "docs" / "json.md").read_text(encoding="utf-8"), "json")[:1]

    assert run("sessions", "show", "nope", "--json").stdout == example


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_a_command_line_that_the_program_refuses_does_not_pass_here() -> None:
    with pytest.raises(click.UsageError):
        parsed(["sessions", "list", "--no-such-option"])
    with pytest.raises(click.UsageError):
        parsed(["no-such-command"])
    assert main(["--version"]) == 0
