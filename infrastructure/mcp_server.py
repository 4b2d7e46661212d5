"""Serves tools that only read to one MCP client over standard input and output."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import msgspec
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from ..domain.text import scrub

Arguments = Mapping[str, Any]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may call.

    Attributes:
        parameters: a JSON schema for each argument.
        call: gives a JSON object as text, and whether it is an error; never raises for its arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Any]]
    required: Sequence[str] = ()
    call: Callable[[Arguments], tuple[str, bool]]


def serve(tools: Sequence[Tool], *, version: str, instructions: str) -> None:
    """Answer until the client closes standard input."""
    anyio.run(_serve, {each.name: each for each in tools}, version, instructions)


async def _serve(tools: Mapping[str, Tool], version: str, instructions: str) -> None:
    async def list_tools(_context: Any, _asked: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(each) for each in tools.values()])

    async def call_tool(_context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(asked.name)
        if tool is None:
            known = ", ".join(tools)
            return _result(f'{{"error":"there is no such tool; there are: {known}","success":false}}', True)
        return _result(*await anyio.to_thread.run_sync(tool.call, asked.arguments or {}))

    server: Server[Any] = Server(
        "retold",
        version=version,
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    # A descriptor of its own, since a thread may still read from it when all else ends.
    asked = _Asked(os.fdopen(os.dup(0), encoding="utf-8", errors="replace", closefd=False))
    async with stdio_server(stdin=asked) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Asked(anyio.AsyncFile[str]):
    """What a client asks, a line each. The package gives no answer to a line with half a surrogate pair."""

    async def readline(self) -> str:
        line = await super().readline()
        if "\\ud" not in line and "\\uD" not in line:
            return line
        try:
            return scrub(json.dumps(json.loads(line), ensure_ascii=False))[0] + "\n"
        except ValueError:
            return line


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema={
            "type": "object",
            "properties": {name: dict(schema) for name, schema in tool.parameters.items()},
            "required": list(tool.required),
        },
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


def _result(text: str, is_error: bool) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)
