"""`gpudoctor explain`: an id, a code, a message, or evidence in files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli import COMMANDS, completion
from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.evidence import Evidence
    from gpudoctor.model import Check, Report

_PATH = click.Path(path_type=Path)
_EPILOG = """\
\b
Examples:
  gpudoctor explain xids                         a check
  gpudoctor explain no-driver-found              a problem
  gpudoctor explain Xid 79                       a code; also: CUDA error 802,
                                                 NVML 18, nvidia-smi 9
  gpudoctor explain 'invalid device ordinal'     a message
  gpudoctor explain train.log dmesg.txt          all that these files tell
  sudo dmesg | gpudoctor explain -
\b
Files: tracebacks and training logs, dmesg and the journal, nvidia-smi (plain,
-q, -q -x), nvidia-bug-report.log(.gz), torch's collect_env, NCCL_DEBUG=INFO,
messages of Docker, pip and compilers, a snapshot of gpudoctor.
\b
Exit code: 0 explained, 2 wrong usage, 3 nothing in it is known.
"""


class _Command(click.Command):
    """A message may begin with a dash, such as "-bash: nvidia-smi: command not found"."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        messages = [] if "--" in args else [word for word in args if re.match(r"-(?!o)[^\s=]*\s", word)]
        options = [word for word in args if word not in messages]
        return super().parse_args(context, [*options, "--", *messages] if messages else args)


@click.command(cls=_Command, help=COMMANDS["explain"], epilog=_EPILOG)
@click.argument("what", nargs=-1, metavar="ID|CODE|MESSAGE|FILE…", shell_complete=completion.anything)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="For people or programs."
)
@click.option("-o", "--output", "destination", metavar="FILE", type=_PATH, help="Write it here.")
@click.option("--save", metavar="FILE", type=_PATH, help="Write what the evidence tells as a snapshot.")
@click.option("-v", "--verbose", is_flag=True, help="Show all of the evidence.")
@click.pass_context
def command(
    context: click.Context, what: tuple[str, ...], form: str, destination: Path | None, save: Path | None, verbose: bool
) -> None:
    if not "".join(what).strip() and (what or sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("give an id, a code, a message or files; - reads standard input.")
    about = list(_known(what))
    if about:
        if form == "json" or save:
            raise click.UsageError(f"{' '.join(what)!r} is no evidence: --format json and --save are about evidence.")
        _deliver("".join(f"{line}\n" for line in about), destination)
        return
    report = _judged(_evidence(what or ("-",)), save)
    if form == "text" and not explained_anything(report) and not _are_files(what or ("-",)):
        about = _mentioned(" ".join(what)) or _part_of(" ".join(what))
        if about:
            _deliver("".join(f"{line}\n" for line in about), destination)
            return
    if form == "json":
        from gpudoctor.report import json

        _deliver(json.render(report), destination)
    else:
        from gpudoctor.report import explained, terminal

        look = (80, False) if destination else terminal.look()
        _deliver(explained.render(report, *look, verbose=verbose), destination)
    context.exit(0 if explained_anything(report) else 3)


def explained_anything(report: Report) -> bool:
    return bool(report.diagnosis) or any(text.kinds for text in report.evidence) or not report.evidence


def _known(what: tuple[str, ...]) -> Iterable[str]:
    """What the catalog says of an id or a code; nothing for files and messages."""
    name = " ".join(what)
    if not name or _are_files(what):
        return ()
    from gpudoctor import catalog
    from gpudoctor.report import explanation

    checks, problems = catalog.checks(), catalog.problems()
    ids = [word.strip().lower().replace("_", "-") for word in what]
    if all(id in checks or id in problems for id in ids):
        return _apart(
            explanation.of_check(checks[id])
            if id in checks
            else explanation.of_problem([check for check in checks.values() if id in _finds(check)], problems[id][1])
            for id in ids
        )
    from gpudoctor import codes

    code = codes.parse(name)
    if code:
        return codes.lines(code)
    meant = codes.of_number(name)
    if len(meant) > 1:
        raise UserError(f"{name!r} alone can be several things: {', '.join(map(codes.shown, meant))}; say which")
    if meant:
        return codes.lines(meant[0])
    if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        from gpudoctor import doctor

        raise UserError(doctor.unknown("check or problem", name, {**checks, **problems}))
    return ()


def _finds(check: Check) -> set[str]:
    return {problem.id for problem in check.problems}


def _mentioned(text: str) -> list[str]:
    """What is known of the codes in a sentence that no check knows."""
    from gpudoctor import codes

    return list(_apart(codes.lines(code) for code in codes.mentioned(text)))


def _part_of(text: str) -> list[str]:
    """The known messages that the given words are a part of."""
    from gpudoctor.knowledge import messages

    found = messages.with_words(text)
    if not found:
        return []
    lines = ["These words alone decide nothing. They are part of messages that are known:"]
    for sample, problem in found:
        lines += ["", f"  {sample}", f"    mostly: gpudoctor explain {problem}"]
    return [*lines, "", "Give the whole message, or the log that it stands in: gpudoctor explain FILE"]


def _apart(texts: Iterable[Iterable[str]]) -> Iterator[str]:
    for place, lines in enumerate(texts):
        yield from ["", ""] if place else []
        yield from lines


def _are_files(what: tuple[str, ...]) -> bool:
    """Whether files are meant; UserError for one that is not there among others that are, or looks like a path."""
    missing = [name for name in what if name != "-" and not _is_there(name)]
    looks = [name for name in missing if re.fullmatch(r"\S*/\S+|\S+\.(?:log|txt|json|gz|xml|out|err)(?:\.\d+)?", name)]
    if missing and (len(missing) < len(what) or looks == missing):
        raise UserError(f"{missing[0]} cannot be read: there is no such file")
    return bool(what) and not missing


def _is_there(name: str) -> bool:
    """What is too long for a name is a message; what lies in a closed folder is a file that cannot be read."""
    try:
        return Path(name).exists()
    except PermissionError:
        return not re.search(r"\s", name)
    except OSError:
        return False


def _evidence(what: tuple[str, ...]) -> Evidence:
    from gpudoctor import evidence

    return evidence.gather(what) if _are_files(what) else evidence.of_text(" ".join(what))


def _judged(found: Evidence, save: Path | None) -> Report:
    from gpudoctor import catalog, doctor, evidence, snapshot
    from gpudoctor.cli import output

    taken = evidence.snapshot_of(found)
    if save:
        output.write(save, snapshot.dump(taken))
    return doctor.judge(taken, doctor.select(catalog.checks(), "full" if taken.measured else "quick"))


def _deliver(text: str, destination: Path | None) -> None:
    from gpudoctor.cli import output

    if destination:
        output.write(destination, text.encode("utf-8", "replace"))
    else:
        output.show(text)
