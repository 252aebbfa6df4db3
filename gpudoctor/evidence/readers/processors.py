"""The instruction sets of a processor: `lscpu`, /proc/cpuinfo, and the words that grep looks for in it."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_FLAGS = re.compile(r"^\s*[Ff]lags\s*:\s*(?P<flags>(?:\w+ ?){8,})")
_MODEL = re.compile(r"^\s*[Mm]odel name\s*:\s*(?P<model>\S.*?)\s*$")


def _flags(text: str) -> dict[str, Reply] | None:
    match = _FLAGS.match(text)
    return {"shown-cpu": Reply("ok", {"flags": dict.fromkeys(match["flags"].split(), True)})} if match else None


def _model(text: str) -> dict[str, Reply] | None:
    match = _MODEL.match(text)
    return {"shown-cpu": Reply("ok", {"model": match["model"]})} if match else None


def _searched(command: str, output: str) -> dict[str, Reply] | None:
    """grep prints nothing, or counts 0 lines, if the processor does not have what is asked for."""
    asked = re.search(r"\b(avx\w*|sse4\w*|fma|f16c)\b", command)
    first = next((line.strip() for line in output.splitlines() if line.strip()), "")
    lacks = asked and (first == "0" if re.search(r"\s-\w*c", command) else not first)
    return {"shown-cpu": Reply("ok", {"lacks": {asked[1]: True}})} if asked and lacks else None


def _count(text: str) -> dict[str, Reply] | None:
    match = _CPUS.match(text)
    return {"shown-every-cpu": Reply("ok", int(match["count"]))} if match else None


_CPUS = re.compile(r"^CPU\(s\):\s+(?P<count>\d+)\s*$")
READERS = (
    Reader("CPUs of the machine", ("CPU(s):",), _CPUS, _count, re.compile(""), 1, once=True),
    Reader("flags of the processor", ("fpu ",), _FLAGS, _flags, re.compile(""), 1),
    Reader("model of the processor", ("odel name",), _MODEL, _model, re.compile(""), 1),
    prompts.reader(
        "grep in /proc/cpuinfo",
        ("cpuinfo", "lscpu"),
        r"(?:(?:e?grep|rg)\ .*/proc/cpuinfo|(?:cat\ /proc/cpuinfo|lscpu)\ *\|.*(?:grep|rg).*)",
        _searched,
        most_lines=40,
    ),
)
