"""What the shell completes: names of checks, areas, tags, problems and containers."""

from __future__ import annotations

import contextlib
import subprocess

import click
from click.shell_completion import CompletionItem

_ENGINE_SECONDS = 0.5


def checks(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of checks, areas and tags, for the last item of a comma-separated list."""
    from gpudoctor import catalog
    from gpudoctor.model import AREAS, TAGS

    before, comma, last = incomplete.rpartition(",")
    names = dict.fromkeys((*sorted(catalog.ids()), *AREAS, *TAGS))
    return [CompletionItem(before + comma + name) for name in names if name.startswith(last)]


def groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Areas and tags."""
    from gpudoctor.model import AREAS, TAGS

    return [CompletionItem(name) for name in (*AREAS, *TAGS) if name.startswith(incomplete)]


def anything(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of checks, problems and practices."""
    from gpudoctor import catalog
    from gpudoctor.knowledge import practices

    names = {*catalog.ids(), *_problem_ids(), *practices.practices()}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def problems(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _problem_ids() if name.startswith(incomplete)]


def _problem_ids() -> list[str]:
    """Loading every check takes longer than a person waits for a TAB."""
    from gpudoctor import catalog, compiled, folders

    sources = [file for ending in ("py", "yaml") for file in folders.package().rglob(f"*.{ending}")]
    names: list[str] = compiled.made_once("problems", (*sources, *catalog.files()), lambda: sorted(catalog.problems()))
    return names


def containers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of running containers; nothing if no engine answers at once."""
    from gpudoctor import programs

    for program in ("docker", "podman"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = programs.finished([program, "ps", "--format", "{{.Names}}"], _ENGINE_SECONDS)
            if done.returncode == 0:
                return [CompletionItem(name) for name in done.stdout.split() if name.startswith(incomplete)]
    return []
