"""`retold demo`: one chat that jumped back in time, from a killed gateway to the answer, in a made home."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..domain.shell import shell_word
from .paragraphs import fold, text_width
from .stream import put

if TYPE_CHECKING:
    from ..domain.errors import RetoldError

WIDTH = 80

GATEWAY = "retold.cli.demo_gateway"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--keep", metavar="PATH", help="Make the home here and keep it, to try more commands on it.")
@click.option("--week", is_flag=True, help="Play a week of a busy gateway instead, and check what it left.")
def demo(as_json: bool, keep: str | None, week: bool) -> int | None:
    """See what it does, on a made chat, in three seconds.

    With --week, a gateway serves twenty chats for seven days of a turned clock, is stopped and killed in
    between, and exits 1 if anything is wrong with what that left.
    """
    with _home(keep) as home:
        if week:
            from .demo_week import show

            return show(home, as_json=as_json, kept=keep is not None)
        killed = play(home)
        if as_json:
            _as_json(home, killed)
            return None
        lines = list(_told(home, killed, keep is not None))
    put(*lines)
    return None


@contextlib.contextmanager
def _home(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        from ..domain.errors import BadUsage

        if not keep.strip():
            raise BadUsage("--keep names no folder", hint="give it a folder that is not there")
        path = Path(keep).expanduser().absolute()
        if (path / "events.db").exists():
            raise BadUsage(f"{path} is a Retold home already", hint="give --keep a folder that is not there")
        _check(path)
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="retold-demo-") as folder:
        yield Path(folder) / "home"


def _check(path: Path) -> None:
    """Whether a home can be made there, before a process of its own would find out.

    Raises:
        BadUsage, NoRoom.
    """
    from ..domain.errors import NoRoom
    from ..infrastructure.home import make_home

    try:
        make_home(path)
    except NoRoom as error:
        raise NoRoom(error.message, hint="give --keep another folder") from error


def play(home: Path) -> int:
    """Let a gateway of the old kind write the chat, kill it, and restart it; the messages it got stored."""
    from ..infrastructure.fold_ahead import child_env

    gateway = subprocess.Popen(  # noqa: S603 # this program itself
        [sys.executable, "-m", GATEWAY, str(home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_env(),
    )
    assert gateway.stdout is not None  # for the type checker: both are pipes
    assert gateway.stderr is not None
    acknowledged = 0
    compressed = False
    with gateway:
        for line in gateway.stdout:
            if line.startswith("ack"):
                acknowledged += 1
            compressed = line.startswith("compressed")
            if compressed:
                break
        if not compressed:
            raise failed(gateway.stderr.read())
        # It has written the continuation, and not yet led the chat to it.
        gateway.send_signal(signal.SIGKILL)
    from .demo_gateway import restart

    restart(home)
    return acknowledged


def failed(said: str) -> RetoldError:
    """The gateway ended by itself: the last thing that it said is why."""
    from ..domain.errors import NoRoom

    why = (said.strip().splitlines() or ["it did not say why"])[-1]
    return NoRoom(f"the demo's gateway could not write its chat: {why}", hint="give --keep another folder")


def _told(home: Path, acknowledged: int, kept: bool) -> Iterator[str]:
    answer, stored = _row_store(home)
    yield from folded(
        f"A gateway was killed while it compressed a chat; {stored} of {acknowledged} messages are here."
    )
    yield from folded(f"The rows say: {answer}; none says why.")
    yield "$ retold why 1001"
    yield from _run(home, "why", "1001")
    yield ""
    yield "$ retold sessions repair-routing"
    for line in _run(home, "sessions", "repair-routing")[:3]:
        yield from folded(line)
    yield ""
    yield "$ retold projections rebuild transcripts"
    for line in _run(home, "projections", "rebuild", "transcripts"):
        yield from folded(line)
    where = f" --home {shell_word(str(home))}" if kept else ""
    if where:  # commands are to be copied, and so each stays on one line
        yield f"Yours next: retold import hermes ~/.hermes{where}"
        yield f"then:       retold audit{where}"
    else:
        yield from ("", "Yours next: retold import hermes ~/.hermes, then: retold audit")


def folded(line: str) -> list[str]:
    """A line in the width of the demo."""
    return fold(line, min(WIDTH, text_width()), indent=4)


def _row_store(home: Path) -> tuple[str, int]:
    """Ask the rows, as a store of rows would: they say what is, and not why. Also counts messages."""
    from ..infrastructure.reading import reading
    from ..infrastructure.sqlite import one
    from .demo_gateway import KEY

    with reading(home) as view:
        newest = one(
            view.db,
            "SELECT title || ' ' || id FROM sessions WHERE session_key = ? AND ended_at IS NULL"
            " ORDER BY started_at DESC LIMIT 1",
            (KEY,),
        )
        return str(newest), int(one(view.db, "SELECT count(*) FROM messages"))


def _run(home: Path, *argv: str) -> list[str]:
    return ran(home, *argv)[1]


def ran(home: Path, *argv: str) -> tuple[int, list[str]]:
    """A command as a user runs it: its exit code, and its output as lines."""
    from .main import main

    out = io.StringIO()
    named = os.environ.get("RETOLD_HOME")
    os.environ["RETOLD_HOME"] = str(home)  # as an option it would stand in every command that is shown
    try:
        with contextlib.redirect_stdout(out):
            code = main(list(argv))
    finally:
        os.environ.pop("RETOLD_HOME")
        os.environ.update({} if named is None else {"RETOLD_HOME": named})
    return code, out.getvalue().rstrip("\n").split("\n")


def _as_json(home: Path, acknowledged: int) -> None:
    import msgspec

    from .output import emit_json

    why = msgspec.json.decode("\n".join(_run(home, "why", "1001", "--json")))
    rebuilt = msgspec.json.decode("\n".join(_run(home, "projections", "rebuild", "--json")))
    emit_json({"acknowledged": acknowledged, "why": why, "rebuilt": rebuilt})
