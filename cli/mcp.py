"""`retold mcp`: the search tool and its companions for any agent that speaks the Model Context Protocol."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from ..domain.errors import BadUsage
from .options import home_option, json_option
from .output import emit_json
from .stream import put, say

_FILES = {
    "claude": ".mcp.json in a project; or: claude mcp add-json retold '…' with what stands under \"retold\"",
    "codex": "~/.codex/config.toml",
    "hermes": "~/.hermes/config.yaml",
}
_MISSING = "retold mcp needs the package 'mcp', which is not installed here"
_HINT = "install Retold with its extra, from the checkout: pip install '.[mcp]'"


@click.command()
@click.option(
    "--print-config",
    "client",
    type=click.Choice(list(_FILES)),
    help="Print what this agent's configuration needs, and serve nothing.",
)
@home_option
@json_option
def mcp(home: Path, as_json: bool, client: str | None) -> None:
    """Serve the home to an agent over MCP, read-only.

    It talks on standard input and output, so an agent starts it. Tools: session_search,
    list_sessions, show_session, why.
    """
    if client is not None:
        if find_spec("mcp") is None:
            say([f"{_MISSING}; {_HINT}"])
        text = _config(client, home)
        if as_json:
            emit_json({"client": client, "goes_into": _FILES[client], "config": text})
        else:
            put(*text.splitlines())
            say([f"This goes into {_FILES[client]}."])
        return
    if as_json:
        raise BadUsage("--json goes with --print-config", hint="what is served is JSON already")
    if find_spec("mcp") is None:
        raise BadUsage(_MISSING, hint=_HINT)
    if sys.stdin.isatty():
        say(["An agent starts this and talks to it; see: retold mcp --print-config claude"])
    from .. import __version__
    from ..infrastructure.mcp_server import serve
    from .mcp_tools import INSTRUCTIONS, tools

    serve(tools(home), version=__version__, instructions=INSTRUCTIONS)


def _config(client: str, home: Path) -> str:
    """What starts this program with this home, whatever PATH the agent has."""
    import json

    program = Path(sys.executable).with_name("retold")
    command, first = (str(program), []) if os.access(program, os.X_OK) else (sys.executable, ["-m", "retold"])
    arguments = [*first, "mcp", "--home", str(home)]
    if client == "claude":
        entry = {"mcpServers": {"retold": {"command": command, "args": arguments}}}
        return json.dumps(entry, indent=2, ensure_ascii=False)
    quoted = [json.dumps(each, ensure_ascii=False) for each in (command, *arguments)]
    args = ", ".join(quoted[1:])
    if client == "codex":
        return f"[mcp_servers.retold]\ncommand = {quoted[0]}\nargs = [{args}]"
    return f"mcp_servers:\n  retold:\n    command: {quoted[0]}\n    args: [{args}]"
