"""`retold sessions export --redact`: in every form, and what is said of it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.infrastructure.redaction.finding import Finder
from retold.tests.conftest import Run
from retold.tests.histories import history

TOKEN = "ghp" + "_Wm4kT8vN2xR6yB0cF3hJ7qL1sD5gP9zA4eU8"
EXPORT = ("sessions", "export", "--redact")
FORMS = [
    ("all.jsonl",),
    ("all.html", "--format", "html"),
    ("pages", "--format", "md", "--session-id", "s1"),
    ("pages", "--format", "qmd", "--session-id", "s1"),
    ("prompts.jsonl", "--only", "user-prompts"),
    ("prompts.md", "--only", "user-prompts", "--format", "md"),
    ("t.jsonl", "--format", "trace"),
    ("all.jsonl", "--sanitize"),
]


@pytest.fixture(autouse=True)
def _told(home: Path) -> None:
    with history(home) as h:
        h.session(
            "s1",
            source="telegram",
            title=f"boat {TOKEN}",
            cwd=f"/boats/{TOKEN}",
            user_id=TOKEN,
            origin_json=json.dumps({"chat": {"name": TOKEN}}),
            model_config=json.dumps({"deep": {TOKEN: TOKEN}}),
        )
        h.append("session:s1", e.PromptChanged("a1b2c3d4", f"be kind; {TOKEN}"))
        h.say("s1", f"it is {TOKEN}, keep it")
        arguments = json.dumps({"header": f"Bearer {TOKEN}", "more": [json.dumps({"inner": TOKEN})]})
        calls = json.dumps([{"id": "c1", "function": {"name": "look", "arguments": arguments}}])
        details = json.dumps([{"summary": [{"text": f"it said {TOKEN}"}]}])
        h.say("s1", None, "assistant", tool_calls=calls, reasoning=f"so {TOKEN}", reasoning_details=details)
        h.say("s1", f"\0json:{json.dumps([{'type': 'text', 'text': TOKEN}])}", "tool", tool_call_id="c1")
        h.say("s1", "세션 password: Zx9kq2LmW4", "assistant")


def written(folder: Path) -> bytes:
    return b"".join(path.name.encode() + path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("args", FORMS, ids=" ".join)
def test_e1_a_secret_stands_in_no_part_of_any_form(run: Run, tmp_path: Path, args: tuple[str, ...]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    done = run(*EXPORT, out / args[0], *args[1:])
    found = written(out)

    assert done.exit_code == 0, done.stderr
    assert b"s1" in found
    assert found.count(TOKEN.encode()) == 0
    assert TOKEN not in done.stdout + done.stderr
    assert b"Zx9kq2LmW4" not in found
    if "--sanitize" not in args:
        assert b"ghp_Wm...4eU8" in found


def test_without_redact_what_was_said_is_exported_as_it_is(run: Run) -> None:
    assert run("sessions", "export", "-").stdout.count(TOKEN) > 8
    assert run("sessions", "export", "-", "--no-redact").stdout.count(TOKEN) > 8


def test_the_log_keeps_what_an_export_masked(run: Run, tmp_path: Path) -> None:
    run(*EXPORT, tmp_path / "a.jsonl")

    assert TOKEN in run("sessions", "show", "s1").stdout


def test_what_was_masked_and_where_is_said_line_by_line(run: Run, tmp_path: Path) -> None:
    done = run(*EXPORT, tmp_path / "a.jsonl")
    head, *rest = done.stderr.splitlines()
    answer = json.loads(run(*EXPORT, tmp_path / "b.jsonl", "--json").stdout)

    assert re.fullmatch(r"Redacted: \d+ secrets in 1 session; read it before you share it", head)
    assert "  s1  session  title  github-token  1" in rest
    assert "  s1  session  system_prompt  github-token  1" in rest
    assert any(
        re.match(r"  s1  message \d+  reasoning_details\[0\]\.summary\[0\]\.text  github", each)
        for each in rest
    )
    assert [f"{each['session']}  {each['field']}" for each in answer["masked"]] == [
        re.sub(r"^  (\S+)  (?:session|message \d+)  (\S+)  .*", r"\1  \2", each) for each in rest
    ]
    assert {"session": "s1", "message": None, "field": "title", "rule": "github-token", "count": 1} in answer[
        "masked"
    ]


def test_nothing_found_is_no_promise(run: Run, home: Path, tmp_path: Path) -> None:
    with history(home) as h:
        h.session("s2", source="cli")
        h.say("s2", "hello")
    done = run(*EXPORT, tmp_path / "a.jsonl", "--session-id", "s2")

    assert done.stderr == (
        "Redacted: nothing that looks like a secret was found; read it before you share it\n"
    )
    plain = run("sessions", "export", "-", "--session-id", "s2").stdout
    assert (tmp_path / "a.jsonl").read_text("utf-8") == plain


def test_standard_output_holds_the_export_alone(run: Run) -> None:
    done = run(*EXPORT, "-")

    assert json.loads(done.stdout)["title"] == "boat ghp_Wm...4eU8"
    assert done.stderr.startswith("Redacted: ")


def test_the_hash_of_a_page_is_of_what_is_on_it(run: Run, tmp_path: Path) -> None:
    run(*EXPORT, tmp_path, "--format", "md", "--session-id", "s1")
    (page,) = tmp_path.glob("*.md")
    text = page.read_text("utf-8")
    digest = re.findall(r"body: `(\w+)`", text)[-1]

    assert hashlib.sha256(text.replace(digest, "pending").encode()).hexdigest() == digest


def test_where_redaction_fails_nothing_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Finder, text: str) -> tuple[str, list[str]]:
        if "keep it" in text:
            raise ValueError(text)
        return text, []

    monkeypatch.setattr(Finder, "mask", broken)
    done = run(*EXPORT, tmp_path / "a.jsonl")

    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("retold: Redaction failed; refusing to export unredacted content.\n")
    assert re.search(r"session s1, message \d+", done.stderr)
    assert TOKEN not in done.stderr
    assert list(tmp_path.glob("*.jsonl*")) == []


@pytest.mark.parametrize("args", [("--redact",), ("--format", "trace")])
def test_without_its_packages_it_is_said_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: tuple[str, ...]
) -> None:
    monkeypatch.setattr("retold.infrastructure.redaction.redactor.MODULES", ("re2", "no_such_module"))
    done = run("sessions", "export", tmp_path / "a.jsonl", *args)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "needs what is not installed: no_such_module" in done.stderr
    assert ".[redact]" in done.stderr
    assert not (tmp_path / "a.jsonl").exists()
    assert run("sessions", "export", "-", "--format", "trace", "--no-redact").exit_code == 0


def test_a_home_has_rules_of_its_own_and_the_configuration_may_name_others(
    run: Run, home: Path, tmp_path: Path
) -> None:
    (home / "redaction.yaml").write_text("rules: [{name: boats, pattern: boat, mask: '[SHIP]'}]\n")
    assert json.loads(run(*EXPORT, "-").stdout)["title"] == "[SHIP] ghp_Wm...4eU8"

    (home / "config.yaml").write_text("redaction: {rules: other.yaml}\n")
    (home / "other.yaml").write_text("without: [github-token, github-pat, sk-key]\n")
    assert json.loads(run(*EXPORT, "-").stdout)["title"] == f"boat {TOKEN}"

    (home / "other.yaml").write_text("rules: [{name: boats, pattern: '('}]\n")
    done = run(*EXPORT, "-")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{home / 'other.yaml'}: rule `boats`: missing )" in done.stderr
