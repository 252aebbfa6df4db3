"""Shell completion for names of checks and problems."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def checks(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Check ids, for the last item of a comma-separated list."""
    from gpudoctor import catalog

    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(before + comma + name) for name in catalog.checks() if name.startswith(last)]


def anything(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of checks and of problems."""
    from gpudoctor import catalog

    names = {**catalog.checks(), **catalog.problems()}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def problems(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from gpudoctor import catalog

    return [CompletionItem(name) for name in sorted(catalog.problems()) if name.startswith(incomplete)]
