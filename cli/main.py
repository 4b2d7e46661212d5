"""The program `retold`: which commands there are, and how each way of failing is told."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from collections.abc import Sequence

import click

from .. import __version__
from ..domain.errors import Ambiguous, ProjectionsBegunAnew, RetoldError
from .lazy import Lazy, LazyGroup
from .output import ANSWER, emit_json, visible

EXIT_USAGE = 2
EXIT_NO_ROOM = 4
EXIT_UNFORESEEN = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell reports other tools

OF_COMMANDS = ("--home", "--json", "--at", "--yes")
"""Options of most commands, and of no group."""

SESSIONS = LazyGroup(
    "sessions",
    {
        "list": Lazy("sessions", "list_", "List sessions by last activity."),
        "show": Lazy("sessions", "show", "Show one session with its messages."),
        "browse": Lazy("browse.command", "browse", "Choose a session on a full screen, and resume it."),
        "tree": Lazy("sessions", "tree", "Show where a session came from and what came of it."),
        "stats": Lazy("sessions", "stats", "Count sessions and messages, by source."),
        "export": Lazy("export.command", "export", "Export sessions to a file, a folder or standard output."),
        "rename": Lazy("rename", "rename", "Set or change a session's title."),
        "archive": Lazy("bulk", "archive", "Hide conversations from lists; search still finds them."),
        "unarchive": Lazy("bulk", "unarchive", "Show archived conversations in lists again."),
        "pin": Lazy("bulk", "pin", "Keep conversations from every bulk removal."),
        "unpin": Lazy("bulk", "unpin", "Let bulk removals have conversations again."),
        "delete": Lazy("removal", "delete", "Delete a session and its delegates."),
        "undelete": Lazy("removal", "undelete", "Bring deleted sessions back."),
        "prune": Lazy("bulk", "prune", "Delete the ended sessions that pass every filter."),
        "optimize": Lazy("optimize", "optimize", "Tidy the search index, and give space back."),
        "repair-routing": Lazy(
            "repair_routing", "repair_routing", "Mend chats that lost the way to their session."
        ),
        "route": Lazy("remedies", "route", "Lead a chat to a session."),
        "unroute": Lazy("remedies", "unroute", "Let a chat lead nowhere."),
        "continuation": Lazy("remedies", "continuation", "Say which of several continuations goes on."),
        "restore-identity": Lazy("remedies", "restore_identity", "Give a session its key and chat back."),
        "resolve-conflict": Lazy("remedies", "resolve_conflict", "Settle what a source changed, too."),
    },
    short_help="List, show and mend sessions.",
    help="List, show and mend sessions.",
)
IMPORT = LazyGroup(
    "import",
    {
        "hermes": Lazy("import_", "hermes", "Take in a Hermes home, or what changed in it since."),
        "claude": Lazy(
            "import_", "claude", "Take in the session logs of Claude Code, or what is new in them."
        ),
        "codex": Lazy("import_", "codex", "Take in the session logs of Codex CLI, or what is new in them."),
        "jsonl": Lazy("import_jsonl", "jsonl", "Take in sessions that were exported as JSONL."),
    },
    short_help="Take in another store.",
    help="Take in another store.",
)
EXPORT = LazyGroup(
    "export",
    {"hermes": Lazy("export_hermes", "hermes", "Write all sessions as a home of Hermes 0.19.")},
    short_help="Write all of it for another program.",
    help="Write all of it for another program.",
)
PROJECTIONS = LazyGroup(
    "projections",
    {
        "status": Lazy("projections", "status", "Show how far each projection has been told."),
        "rebuild": Lazy("projections", "rebuild", "Tell projections again from the log."),
    },
    short_help="What is told from the log, and telling it again.",
    help="What is told from the log, and telling it again.",
)


RETOLD = LazyGroup(
    "retold",
    {
        "demo": Lazy("demo", "demo", "See what it does, on a made chat, in three seconds."),
        "import": IMPORT,
        "export": EXPORT,
        "sessions": SESSIONS,
        "resume": Lazy("resume", "resume", "Go on with a conversation."),
        "where": Lazy("where", "where", "Say which lists hide a session, and why."),
        "insights": Lazy("insights", "insights", "Show how much was used, of what and when."),
        "search": Lazy("search", "search", "Find messages by their words."),
        "why": Lazy("why", "why", "Explain which session a chat leads to, and why."),
        "audit": Lazy("why", "audit", "Find every chat that leads to the wrong place."),
        "undo": Lazy("undo", "undo", "Take a change back."),
        "mcp": Lazy("mcp", "mcp", "Serve the home to an agent over MCP, read-only."),
        "log": Lazy("log", "log", "Print the events, one a line."),
        "forget": Lazy("forget", "forget", "Forget a message, or a text wherever it stands."),
        "backup": Lazy("backup", "backup", "Copy the home into a folder, while others write."),
        "restore": Lazy("backup", "restore", "Put a backup in place as the home."),
        "maintain": Lazy("maintain", "maintain", "Erase what is due, and tidy up."),
        "verify": Lazy("verify", "verify", "Check the log and everything told from it."),
        "projections": PROJECTIONS,
    },
    help="Sessions of AI agents as a log that only grows; all that you see is told from it.\n\n"
    "retold -c [TITLE] and retold -r SESSION are short for retold resume.",
    short={
        "-c": ("resume", "--titled"),
        "--continue": ("resume", "--titled"),
        "-r": ("resume", "--named"),
        "--resume": ("resume", "--named"),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
click.version_option(__version__, prog_name="retold", message="%(prog)s %(version)s")(RETOLD)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; a command may return one, else it is 0."""
    args = list(sys.argv[1:] if argv is None else argv)
    gc.set_threshold(50_000, 20, 20)  # hardly anything here is cyclic; to look for it costs a twentieth
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # no text may fail for the terminal's encoding
            stream.reconfigure(errors="backslashreplace")
    code = 0
    try:
        code = _run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # `retold log | head`: the reader has what it wanted
        _drop_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:  # it was standard output that could not be written
        _drop_stdout()
        return code or _no_room(error, as_json=False)
    return code


def _open_closed() -> None:
    """Send to nowhere what was started closed (`retold audit >&-`): who asks so wants the exit code.

    No database may get the number of standard output, where a stray line would end in it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 # open as long as the process


def _run(args: list[str]) -> int:
    as_json = _asks_for_json(args)
    try:
        return _answer(args)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except BrokenPipeError:
        raise
    except RetoldError as error:
        candidates = error.candidates if isinstance(error, Ambiguous) else None
        _tell(error.kind, error.message, error.hint, candidates=candidates, as_json=as_json)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.NoSuchOption as error:
        message, hint = _misplaced(error, args) or (error.format_message(), _where_to_look(error))
        _tell("bad_usage", message, hint, as_json=as_json)
        return EXIT_USAGE
    except click.ClickException as error:
        _tell("bad_usage", error.format_message(), _where_to_look(error), as_json=as_json)
        return EXIT_USAGE
    except (KeyboardInterrupt, click.Abort):
        _tell("interrupted", "interrupted", "", as_json=as_json)
        return EXIT_INTERRUPTED
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _no_room(error, as_json=as_json)
        return _unforeseen(error, as_json=as_json)
    except UnicodeEncodeError as error:
        if (said := _no_text(error, args)) is None:
            return _unforeseen(error, as_json=as_json)
        _tell("bad_usage", said, "ids, titles and all other texts here are", as_json=as_json)
        return EXIT_USAGE
    except Exception as error:  # noqa: BLE001 # the last resort: a sentence, never a bare traceback
        return _unforeseen(error, as_json=as_json)


def _answer(args: list[str]) -> int:
    """Run the command; once more where it had to begin the projections anew before it did anything."""
    ANSWER.begun = False
    try:
        return _invoke(args)
    except ProjectionsBegunAnew as error:
        if ANSWER.begun or error.saved:
            raise
        line = _one_line(f"{error.message}; they are told again from the log")
        click.echo("\n".join(_folded([line])), err=True)
    return _invoke(args)


def _invoke(args: list[str]) -> int:
    with RETOLD.make_context("retold", list(args)) as ctx:
        answer = RETOLD.invoke(ctx)
        return answer if isinstance(answer, int) else 0


def _asks_for_json(args: list[str]) -> bool:
    """Whether the failing command was to answer in JSON; parsing may be what failed."""
    options = args[: args.index("--")] if "--" in args else args
    return "--json" in options


def _where_to_look(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"see {ctx.command_path} --help" if ctx is not None else ""


def _no_text(error: UnicodeEncodeError, args: list[str]) -> str | None:
    """What to say of an argument whose bytes are no text, where that is what went wrong."""
    for each in args:
        if error.object[error.start : error.end] in each:
            shown = "".join(f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in each)
            return f"'{shown}' is no valid UTF-8"
    return None


def _misplaced(error: click.NoSuchOption, args: list[str]) -> tuple[str, str] | None:
    """What to say of an option that came before the command that it is of; None of any other."""
    group = None if error.ctx is None else error.ctx.command
    if error.ctx is None or not isinstance(group, LazyGroup) or error.option_name not in OF_COMMANDS:
        return None
    command = next((each for each in args if each in group.commands), "COMMAND")
    way = f"{error.ctx.command_path} {command} {error.option_name} …"
    return f"{error.option_name} stands after the command", f"as in: {way}"


def _unforeseen(error: Exception, *, as_json: bool) -> int:
    hint = "set RETOLD_DEBUG=1 to see the traceback"
    if os.environ.get("RETOLD_DEBUG"):
        import traceback

        traceback.print_exception(error)
        hint = "the traceback is on standard error"
    text = f": {error}" if str(error) else ""
    message = f"this was not foreseen: {type(error).__name__}{text}"
    _tell("unforeseen", message, hint, as_json=as_json)
    return EXIT_UNFORESEEN


def _no_room(error: OSError, *, as_json: bool) -> int:
    where = f" ({error.filename})" if error.filename else ""
    message = f"something could not be written{where}: {error.strerror}"
    _tell("no_room", message, "make room, then try again", as_json=as_json)
    return EXIT_NO_ROOM


def _tell(kind: str, message: str, hint: str, *, candidates: list[str] | None = None, as_json: bool) -> None:
    """Say what stood in the way: words on stderr, or the contract's object on stdout."""
    if as_json:
        error: dict[str, object] = {"kind": kind, "message": message, "hint": hint}
        if candidates is not None:
            error["candidates"] = candidates
        emit_json({"error": error})
        return
    lines = [f"retold: {_one_line(message)}"]
    lines += [f"  {_one_line(line)}" for line in (*(candidates or ()), hint) if line]
    click.echo("\n".join(_folded(lines)), err=True)


def _folded(lines: list[str]) -> list[str]:
    """As a terminal has room for them: what is too long goes on below, further in."""
    from .stream import error_width

    width = error_width()
    if width is None:
        return lines
    from .paragraphs import fold

    return [each for line in lines for each in fold(line, width, indent=4)]


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())


def _drop_stdout() -> None:
    """Let the flush at exit go nowhere, instead of failing a second time."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
