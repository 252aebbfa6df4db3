"""A group of commands whose modules are imported on use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

Args = list[str]


class LazyGroup(click.Group):
    """package: where the modules are, one per command, each with a `command`. helps: name -> one line; --help needs no more."""

    package: str
    helps: Mapping[str, str]

    def list_commands(self, context: click.Context) -> list[str]:
        return [*self.helps]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.helps:
            return None
        command: click.Command = importlib.import_module(f"{self.package}.{name}").command
        return command

    def resolve_command(self, context: click.Context, args: Args) -> tuple[str | None, click.Command | None, Args]:
        if args[0] not in self.helps and not context.resilient_parsing:
            from gpudoctor.spelling import nearest

            near = nearest(args[0], self.helps)
            context.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*self.helps.items()])
