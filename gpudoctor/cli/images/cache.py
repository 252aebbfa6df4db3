"""`gpudoctor images cache`."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor import folders, screen
from gpudoctor.cli import options
from gpudoctor.cli.images import COMMANDS
from gpudoctor.errors import WorkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpudoctor.containers.run.kept_caches import Kept

_HELP = f"""{COMMANDS["cache"]}

`gpudoctor run` keeps downloads (Hugging Face, torch, pip) once for all images, and compiled kernels for each image, in
~/.cache/gpudoctor/containers. --clear removes all of them; the next run downloads and compiles again.
"""
_SHARED = "shared"


@click.command(help=_HELP)
@click.option("--clear", is_flag=True, help="Remove all caches. Do not use it while a container of `gpudoctor run` is running.")
@options.text_or_json
@options.output()
def command(clear: bool, form: str | None, destination: Path | None) -> None:
    from gpudoctor.cli import output
    from gpudoctor.containers.run import kept_caches

    form = output.prepared(form, destination)
    root = folders.cache() / "containers"
    found = kept_caches.found(root)
    output.deliver(_as_json(found) if form == "json" else _as_text(found, root, clear), destination)
    if clear:
        _clear(found, root)


def _clear(found: Sequence[Kept], root: Path) -> None:
    from gpudoctor.containers.run import kept_caches

    reasons = list(filter(None, map(kept_caches.remove, found)))
    if reasons:  # root's daemon made them for root inside
        raise WorkError(f"not everything could be removed: {reasons[0]}; remove it with: sudo rm -r {shlex.quote(str(root))}")
    if found:
        screen.note(f"Removed {len(found)} caches, {_size(sum(kept.size_bytes for kept in found))}.")


def _as_text(found: Sequence[Kept], root: Path, is_cleared: bool) -> str:
    if not found:
        return f"No caches in {root}.\n"
    lines = [f"{'SIZE':>9}  {'LAST CHANGE':<11}  USER   CONTENT"]
    for kept in found:
        day = datetime.fromtimestamp(kept.latest).date().isoformat()
        lines.append(f"{_size(kept.size_bytes):>9}  {day:<11}  {kept.user:<5}  {_content(kept)}")
    hint = "" if is_cleared else " Remove them: gpudoctor images cache --clear"
    return "\n".join([*lines, "", f"{_size(sum(kept.size_bytes for kept in found))} in {root}.{hint}", ""])


def _as_json(found: Sequence[Kept]) -> str:
    rows = [
        {
            "path": str(kept.path),
            "user": kept.user,
            "image": None if kept.of == _SHARED else kept.of,
            "bytes": kept.size_bytes,
            "changed": datetime.fromtimestamp(kept.latest).astimezone().isoformat(timespec="seconds"),
        }
        for kept in found
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def _content(kept: Kept) -> str:
    return "downloads, for all images" if kept.of == _SHARED else f"compiled kernels of image {kept.of}"


def _size(size_bytes: int) -> str:
    if size_bytes < 1 << 20:
        return f"{size_bytes >> 10} KiB"
    return f"{size_bytes / (1 << 20):.0f} MiB" if size_bytes < 1 << 30 else f"{size_bytes / (1 << 30):.1f} GiB"
