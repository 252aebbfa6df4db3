"""Shell completion for names of checks and problems."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def checks(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of checks and areas, for the last item of a comma-separated list."""
    from gpudoctor import catalog
    from gpudoctor.model import AREAS

    before, comma, last = incomplete.rpartition(",")
    names = dict.fromkeys((*catalog.checks(), *AREAS))
    return [CompletionItem(before + comma + name) for name in names if name.startswith(last)]


def areas(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from gpudoctor.model import AREAS

    return [CompletionItem(name) for name in AREAS if name.startswith(incomplete)]


def anything(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of checks and of problems."""
    from gpudoctor import catalog

    names = {**catalog.checks(), **catalog.problems()}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def problems(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from gpudoctor import catalog

    return [CompletionItem(name) for name in sorted(catalog.problems()) if name.startswith(incomplete)]
