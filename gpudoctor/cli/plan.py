"""`gpudoctor plan`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli import COMMANDS, options
from gpudoctor.cli.installing import TOOLS
from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.facts import Facts
    from gpudoctor.judging.python.installable import Option, Place

PACKAGES = ("torch", "vllm", "sglang", "jax", "cupy", "tensorflow", "onnxruntime")
_HELP = f"""{COMMANDS["plan"]}

Compares the releases of PACKAGE with the GPU, its driver, glibc and Python: those of this machine, of a snapshot (--replay), or
as given. Nothing is installed and no package index is asked: the releases are those of gpudoctor's tables (gpudoctor knowledge).

PACKAGE is one of {", ".join(PACKAGES)}.
"""
_EPILOG = """\
\b
Examples:
  gpudoctor plan torch
  gpudoctor plan torch --python 3.9 --all
  gpudoctor plan vllm --gpu 'Tesla V100-SXM2-32GB' --driver 570.86.15 --python 3.12
  gpudoctor plan jax --replay machine.json
  gpudoctor plan torch --for dockerfile
  gpudoctor plan sglang --gpu 'NVIDIA GB200' --driver 580.95.05 --python 3.12 --glibc 2.39

\b
Exit code: 0 a release runs here, 1 none does, 2 wrong usage.
"""
_SHOWN = 6
_WITH_ARM = re.compile(r"\bG[HB]\d+|\bOrin\b|\bThor\b|\bXavier\b")
_VERSION = re.compile(r"\d{1,2}\.\d{1,3}(\.\d{1,3})?")


@click.command(help=_HELP, epilog=_EPILOG)
@click.argument("package", metavar="PACKAGE", type=click.Choice(PACKAGES))
@click.option("--python", metavar="VERSION|PATH", help="A version such as 3.12, or a Python.  [default: as gpudoctor check]")
@click.option("--gpu", "gpu_name", metavar="NAME", help="A GPU as nvidia-smi names it, instead of those here.")
@click.option("--driver", metavar="VERSION", help="A driver version, instead of the one here.")
@click.option("--machine", type=click.Choice(("x86_64", "aarch64")), help="The processors, instead of those here.")
@click.option("--glibc", metavar="VERSION", help="A glibc such as 2.28, instead of the one here.")
@options.replay("Plan for the machine of a snapshot.")
@click.option("--for", "tool", type=click.Choice(tuple(TOOLS)), help="Print only the lines for this tool.")
@click.option("--all", "everything", is_flag=True, help="List every known release.")
@options.text_or_json
@options.output()
@click.pass_context
def command(
    context: click.Context,
    package: str,
    python: str | None,
    gpu_name: str | None,
    driver: str | None,
    machine: str | None,
    glibc: str | None,
    replay: Path | None,
    tool: str | None,
    everything: bool,
    form: str | None,
    destination: Path | None,
) -> None:
    from gpudoctor.cli import output
    from gpudoctor.judging.python import installable

    form = output.prepared(form, destination)
    place, names = _place(python, gpu_name, driver, replay)
    place = _changed(place, gpu_name, machine, glibc)
    found = installable.options(package, place)
    best = next((option for option in found if not option.why_not), None)
    if form == "json":
        text = as_json(package, place, found, best)
    elif tool and best:
        text = as_lines(package, place, names, best, tool)
    else:
        text = as_text(package, place, names, found, best, everything)
    output.deliver(text, destination)
    context.exit(0 if best else 1)


def _place(python: str | None, gpu_name: str | None, driver: str | None, replay: Path | None) -> tuple[Place, str]:
    """Where the package is to run, and its GPUs in words."""
    from gpudoctor import knowledge
    from gpudoctor.facts.known import known
    from gpudoctor.facts.versions import dotted
    from gpudoctor.judging.python import installable

    version = python if python and _VERSION.fullmatch(python) else None
    if driver and not re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,3}", driver):
        raise UserError(f"--driver {driver}: not a driver version such as 580.95.05")
    board = knowledge.gpu_by_name(gpu_name) if gpu_name else None
    if gpu_name and not board:
        raise UserError(f"--gpu {gpu_name}: not in the tables; give the name as nvidia-smi --query-gpu=name prints it")
    if board and driver and version:
        return installable.Place((board.compute_capability,), driver, version), board.name
    facts = _facts(None if version else python, replay)
    capabilities = (board.compute_capability,) if board else _capabilities(facts)
    if not capabilities:
        raise UserError("no GPU is known here: name one with --gpu, and its driver with --driver")
    driver = driver or known(lambda: facts.nvml.driver_version) or known(lambda: facts.driver.module_version)
    if not driver:
        raise UserError("the driver version is not known here: name it with --driver")
    version = version or known(lambda: dotted(facts.python.version))
    if not version:
        raise UserError("the Python is not known here: name its version with --python")
    machine = known(lambda: facts.system.architecture) or "x86_64"
    glibc = known(lambda: facts.python.libc)
    names = (
        board.name if board else ", ".join(dict.fromkeys(known(lambda: [gpu.name for gpu in facts.nvml.reachable.values()], [])))
    )
    return installable.Place(capabilities, driver, version, machine, glibc), names


def _changed(place: Place, gpu_name: str | None, machine: str | None, glibc: str | None) -> Place:
    """With what was given. A GPU that was named is on a board with Arm processors if there is no other."""
    if glibc and not re.fullmatch(r"2\.\d{1,2}", glibc):
        raise UserError(f"--glibc {glibc}: not a version such as 2.28")
    if gpu_name and _WITH_ARM.search(gpu_name):
        place = replace(place, machine="aarch64")
    if glibc:
        place = replace(place, glibc=(2, int(glibc.partition(".")[2])))
    return replace(place, machine=machine) if machine else place


def _facts(python: str | None, replay: Path | None) -> Facts:
    from gpudoctor import examining
    from gpudoctor.cli import check
    from gpudoctor.facts import Facts
    from gpudoctor.wanted import Wanted

    wanted = Wanted(level="quick", python=python)
    found = examining.replayed(replay, Wanted(), None) if replay else check.examined(wanted)[0]
    assert found.snapshot
    return Facts(found.snapshot)


def _capabilities(facts: Facts) -> tuple[tuple[int, int], ...]:
    from gpudoctor.facts.known import known

    gpus = known(lambda: facts.nvml.reachable, {}).values()
    return tuple(sorted({found for gpu in gpus if (found := known(partial(getattr, gpu, "compute_capability")))}))


def as_json(package: str, place: Place, found: list[Option], best: Option | None) -> str:
    rows = [
        {
            "version": option.version,
            "build": option.build,
            "runs_here": not option.why_not,
            "why_not": option.why_not,
            "command": option.command,
        }
        for option in found
    ]
    here = {
        "compute_capabilities": [f"{major}.{minor}" for major, minor in place.capabilities],
        "driver": place.driver,
        "python": place.python,
        "architecture": place.machine,
        "glibc": None if place.glibc is None else ".".join(map(str, place.glibc)),
    }
    install = {tool: "\n".join(write(best, place.python)) for tool, write in TOOLS.items()} if best else {}
    return json.dumps({"package": package, "place": here, "install": install, "releases": rows}, indent=2) + "\n"


def as_lines(package: str, place: Place, names: str, best: Option, tool: str) -> str:
    """Only what the tool reads, to be written to a file; the rest is comments."""
    told = [f"# {line}" for line in _place_in_words(package, place, names)]
    return "\n".join([*told, *(f"# {line}" for line in _missing(best)), *TOOLS[tool](best, place.python)]) + "\n"


def _place_in_words(package: str, place: Place, names: str) -> list[str]:
    from gpudoctor.facts.versions import dotted

    capabilities = ", ".join(dotted(each) for each in place.capabilities)
    glibc = f", glibc {dotted(place.glibc)}" if place.glibc else ""
    return [
        f"{package} on {names or 'the GPU'} (compute capability {capabilities}), driver {place.driver},",
        f"Python {place.python}, {place.machine}{glibc}",
    ]


def _missing(best: Option) -> list[str]:
    return [f"It needs the libraries of CUDA {best.cuda}, which are not installed with it."] if best.cuda else []


def as_text(package: str, place: Place, names: str, found: list[Option], best: Option | None, everything: bool) -> str:
    lines = [*_place_in_words(package, place, names), ""]
    if best:
        lines += ["Install  " + best.command, "     or  uv " + best.command, *_missing(best), ""]
    else:
        lines += [f"{found[0].requirement} does not run here: it {found[0].why_not}.", ""]
    shown = found if everything else found[:_SHOWN]
    lines.append("RELEASE   BUILD   RUNS HERE")
    lines += [
        f"{option.version:9} {option.build:7} {'no: it ' + option.why_not if option.why_not else 'yes'}" for option in shown
    ]
    if len(shown) < len(found):
        lines.append(f"{len(found) - len(shown)} older releases: --all")
    return "\n".join(lines) + "\n"
