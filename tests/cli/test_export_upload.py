"""`retold sessions export --format trace --upload`: to a hub that is a process of its own on this machine."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.tests.conftest import ROOT, Run, RunProcess
from retold.tests.histories import history

TOKEN = "hf" + "_kQmWxRtVzBnCpDfGhJlSuYeAiOrTkQmWx7"
SECRET = "ghp" + "_Wm4kT8vN2xR6yB0cF3hJ7qL1sD5gP9zA4eU8"
UPLOAD = ("sessions", "export", "--format", "trace", "--upload")


class Hub:
    """The server, what it is told to answer, and what came."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address

    def answers(self, **state: Any) -> None:
        (self.folder / "state.json").write_text(json.dumps({"token": TOKEN, "user": "ann"} | state))

    def asked(self) -> list[dict[str, Any]]:
        path = self.folder / "requests.jsonl"
        return [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []

    def env(self, **more: str) -> dict[str, str]:
        return {"HF_ENDPOINT": self.address, "HF_TOKEN": TOKEN, "HF_HOME": str(self.folder / "hf")} | more


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "hub"
    folder.mkdir()
    command = [sys.executable, str(ROOT / "tests" / "hub_server.py"), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        made = Hub(folder, server.stdout.readline().strip())
        made.answers()
        yield made
        server.kill()


@pytest.fixture(autouse=True)
def _told(home: Path) -> None:
    with history(home) as h:
        h.session("s1", source="telegram", title="boat", model="m1")
        h.say("s1", f"the token is {SECRET}")
        h.say("s1", "thank you", "assistant")


def test_a_trace_goes_redacted_to_a_private_dataset_and_what_was_sent_is_said(
    hub: Hub, run_process: RunProcess
) -> None:
    done = run_process(*UPLOAD, env=hub.env())
    sent = (hub.folder / "sessions" / "s1.jsonl").read_bytes()
    created = next(json.loads(each["body"]) for each in hub.asked() if each["path"] == "/api/repos/create")

    assert done.exit_code == 0, done.stderr
    assert done.stdout == (
        f"Uploaded 2 messages ({len(sent):,} bytes, sha256 {hashlib.sha256(sent).hexdigest()})"
        " to the private dataset ann/hermes-traces:"
        f" {hub.address}/datasets/ann/hermes-traces/blob/main/sessions/s1.jsonl\n"
    )
    assert "  s1  message 3  content  github-token  1" in done.stderr
    assert created["visibility"] == "private"
    assert created["type"] == "dataset"
    assert [json.loads(each)["type"] for each in sent.splitlines()] == ["user", "assistant"]
    assert SECRET not in sent.decode() + json.dumps(hub.asked()) + done.stdout + done.stderr
    assert b"ghp_Wm...4eU8" in sent


def test_a_public_dataset_is_asked_for(hub: Hub, run_process: RunProcess) -> None:
    done = run_process(*UPLOAD, "--public", "--json", env=hub.env())
    answer = json.loads(done.stdout)

    assert (answer["uploaded"]["public"], answer["uploaded"]["path"]) == (True, "sessions/s1.jsonl")
    assert json.loads((hub.folder / "state.json").read_text())["private"] is False


def test_a_trace_sent_again_takes_the_place_of_the_first(hub: Hub, run_process: RunProcess) -> None:
    first, second = (run_process(*UPLOAD, env=hub.env()) for _ in range(2))

    assert (first.exit_code, second.exit_code) == (0, 0), second.stderr


@pytest.mark.parametrize(("private", "args"), [(False, ()), (True, ("--public",))])
def test_nothing_goes_where_others_read_it_unasked_or_cannot(
    hub: Hub, run_process: RunProcess, private: bool, args: tuple[str, ...]
) -> None:
    hub.answers(private=private)
    done = run_process(*UPLOAD, *args, env=hub.env())

    assert done.exit_code == 4
    assert (
        f"ann/hermes-traces is {'private' if private else 'public'} already; nothing was sent" in done.stderr
    )
    assert not any("/commit/" in each["path"] for each in hub.asked())


@pytest.mark.parametrize("name", ["HUGGINGFACE_HUB_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN"])
def test_the_token_has_its_usual_names(hub: Hub, run_process: RunProcess, name: str) -> None:
    assert run_process(*UPLOAD, env=hub.env(HF_TOKEN=" ") | {name: TOKEN}).exit_code == 0


def test_without_a_token_it_is_said_where_one_is_made(hub: Hub, run_process: RunProcess) -> None:
    done = run_process(*UPLOAD, env=hub.env(HF_TOKEN=""))

    assert (done.exit_code, done.stdout, hub.asked()) == (2, "", [])
    assert "no Hugging Face token is set" in done.stderr
    assert "set HF_TOKEN" in done.stderr


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("whoami", 401, "who you are and refused (401)"),
        ("repos/create", 403, "for ann/hermes-traces and refused (403)"),
        ("commit", 400, "to take sessions/s1.jsonl and refused (400)"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(
    hub: Hub, run_process: RunProcess, what: str, status: int, said: str
) -> None:
    hub.answers(fail={what: status})
    done = run_process(*UPLOAD, env=hub.env())

    assert (done.exit_code, done.stdout) == (4, "")
    assert f"retold: the hub was asked {said}; nothing was sent" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert not (hub.folder / "sessions").exists()


def test_a_hub_that_is_not_there_is_one_sentence(hub: Hub, run_process: RunProcess) -> None:
    done = run_process(*UPLOAD, env=hub.env(HF_ENDPOINT="http://127.0.0.1:9"))

    assert done.exit_code == 4
    assert "gave no answer (ConnectError); nothing was sent" in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--no-redact",), "--upload and --no-redact exclude each other"),
        (("--source", "telegram"), "--upload exports one session: pass --session-id"),
        (("out.jsonl",), "--upload sends the trace and writes no file"),
    ],
)
def test_what_may_not_be_sent_is_refused_before_anything_is(
    run: Run, args: tuple[str, ...], said: str
) -> None:
    done = run(*UPLOAD, *args)

    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_upload_is_for_traces(run: Run) -> None:
    for option in ("--upload", "--public"):
        done = run("sessions", "export", "-", option)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"{option} is only supported with --format trace." in done.stderr


def test_without_its_package_it_is_said_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retold.infrastructure.hub.MODULES", ("no_such_module",))
    done = run(*UPLOAD)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "--upload needs what is not installed: no_such_module" in done.stderr
    assert ".[upload]" in done.stderr
