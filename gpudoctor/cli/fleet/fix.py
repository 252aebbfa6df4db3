"""`gpudoctor fleet fix`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli import output
from gpudoctor.cli.fleet import COMMANDS
from gpudoctor.cli.paths import NAME, PATH

if TYPE_CHECKING:
    from gpudoctor.model import Report

_EPILOG = """\
\b
Examples:
  gpudoctor fleet fix day1                   print all scripts
  gpudoctor fleet fix day1 -o fixes          write fixes/1.sh, fixes/2.sh, …
  clush -w $(cat fixes/1.nodes) -c fixes/1.sh --dest /tmp/fix.sh

\b
Nodes that need exactly the same steps share a script. Read a script before you
run it: gpudoctor fix --help says what it does and leaves to you.

\b
Exit code: 0 printed or written, 2 wrong usage.
"""
_RULE = "#" * 78


@click.command(help=COMMANDS["fix"], epilog=_EPILOG)
@click.argument("paths", metavar="FILE|DIR…", type=NAME, nargs=-1, required=True)
@click.option(
    "-o", "--output", "folder", metavar="DIR", type=PATH, help="Write the scripts, each with a list of its nodes, to DIR."
)
def command(paths: tuple[str, ...], folder: Path | None) -> None:
    from gpudoctor.cli.fleet import delivering
    from gpudoctor.fleet import nodesets

    scripts = list(_scripts(paths))
    if folder:
        delivering.make_folder(folder)
    for number, (names, text) in enumerate(scripts, 1):
        if folder:
            output.write(folder / f"{number}.sh", text.encode("utf-8", "replace"))
            output.write(folder / f"{number}.nodes", f"{nodesets.folded(names)}\n".encode())
            output.wrote(folder / f"{number}.sh")
            output.wrote(folder / f"{number}.nodes")
        else:
            output.show(f"{_RULE}\n# Script {number} of {len(scripts)}, for {nodesets.folded(names)}\n{_RULE}\n{text}\n")
    if not scripts:
        output.show("# No node has a problem that a script can fix.\n")


def _scripts(paths: Iterable[str]) -> Iterator[tuple[list[str], str]]:
    """Nodes and their script, the one for most nodes first."""
    from gpudoctor.fleet import nodesets
    from gpudoctor.repair import plan, script
    from gpudoctor.repair.plan import Step

    nodes: dict[str, list[str]] = {}
    steps: dict[str, list[Step]] = {}
    for name, report in _reports(paths):
        found = plan.of_report(report.diagnosis)
        if not found:
            continue
        text = script.render(found, str(report.target.get("distribution", "")))
        nodes.setdefault(text, []).append(name)
        steps[text] = found
    for text in sorted(nodes, key=lambda text: -len(nodes[text])):
        titles = dict.fromkeys(step.title for step in steps[text])
        note = f"For {len(nodes[text])} node{'s' * (len(nodes[text]) != 1)}: {nodesets.folded(nodes[text])}. {'; '.join(titles)}."
        yield nodes[text], script.render(steps[text], notes=[note])


def _reports(paths: Iterable[str]) -> Iterator[tuple[str, Report]]:
    """The reports of the nodes that can be judged. Tokens of a redaction are replaced by what they stand for, as far as known."""
    from gpudoctor.fleet import merging
    from gpudoctor.fleet.reading import Answers, Reader
    from gpudoctor.model import Report
    from gpudoctor.redaction import remembering

    reader, judge = Reader(), merging.judge()
    with output.progress() as tell:
        for name, path in merging.files(paths).items():
            tell(f"Judging {name}")
            read = merging.read(reader, name, path)
            if isinstance(read, Report):
                yield name, read
            elif isinstance(read, Answers):
                taken = remembering.restored(read.snapshot)
                yield name, judge.report(read if taken is read.snapshot else reader.snapshot(taken))
