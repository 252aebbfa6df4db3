"""`gpudoctor mcp`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS
from gpudoctor.errors import MissingPackage, UserError
from gpudoctor.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

_EPILOG = """\
\b
Examples:
  gpudoctor mcp                                   what a client starts
  claude mcp add gpudoctor -- gpudoctor mcp

\b
A client starts it and talks to it over standard input and output. Its tools
check, explain, replay, diff, list and fix only read, and return redacted text.

\b
Exit code: 0 the client closed the connection, 2 the package mcp is missing.
"""

INSTRUCTIONS = (
    "Diagnoses NVIDIA GPU machines, containers, Python environments and logs. Start with check (level quick) on the machine or "
    "explain for a message. Nothing is changed: fix returns commands for a person to run."
)
REQUIRED = "mcp>=1.10"


@click.command(help=COMMANDS["mcp"], epilog=_EPILOG)
def command() -> None:
    made = server()
    if sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError("an MCP client starts this command; it does not talk to a terminal.")
    made.run()


def server() -> Any:
    """The server, of the package mcp 1 or 2. UserError if it is not installed."""
    from gpudoctor.cli.mcp_tools import TOOLS

    kind, of_tools, settings = _package()
    made = kind("gpudoctor", instructions=INSTRUCTIONS, log_level="WARNING", **settings)
    for name, tool in TOOLS.items():
        made.add_tool(_plain(tool), name=name, annotations=of_tools, structured_output=False)
    return made


def _package() -> tuple[Any, Any, dict[str, str]]:
    """The class of servers, the hints for tools, and further settings."""
    try:
        from mcp.types import ToolAnnotations
    except ImportError as failure:
        if (failure.name or "").partition(".")[0] == "mcp":
            raise MissingPackage("gpudoctor mcp", REQUIRED) from None
        raise UserError(f"the package mcp cannot be imported: {failure}") from None
    hints: Any = ToolAnnotations
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        from mcp.server.fastmcp import FastMCP  # type: ignore[attr-defined,unused-ignore]

        return FastMCP, hints(readOnlyHint=True, destructiveHint=False, openWorldHint=False), {}
    return MCPServer, hints(read_only_hint=True, destructive_hint=False, open_world_hint=False), {"version": __version__}


def _plain(tool: Callable[..., str]) -> Callable[..., str]:
    """Ends the call with one line if the input is wrong."""
    import functools

    from gpudoctor.errors import WorkError

    @functools.wraps(tool)
    def call(*given: Any, **named: Any) -> str:
        try:
            return tool(*given, **named)
        except (UserError, WorkError) as failure:
            return f"Error: {failure}\n"

    return call
