"""Commands that a machine is asked to run, or whose output answers another question: ip addr, free, which, python -V."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import system_texts
from gpudoctor.model import Reply
from gpudoctor.worker.probes import runtime

_SAME = (
    "ldconfig -p",
    "nvidia-ctk --version",
    "nvidia-container-cli --version",
    "podman --version",
    "nv-fabricmanager --version",
)
_LINK = re.compile(r"^\d+: ([\w.-]+)(?:@\w+)?: <")
_MEMORY = re.compile(
    r"""
    ^\s*(?P<name>Mem|Swap):
    \s+(?P<total>[\d.]+)(?P<unit>[KMGT]?)i?B?
    (?:\s+[\d.]+[KMGT]?i?B?)*?
    (?:\s+(?P<last>[\d.]+)(?P<last_unit>[KMGT]?)i?B?)?\s*$
    """,
    re.VERBOSE,
)
_COMMA = re.compile(r"(?<=\d),(?=\d)")  # of numbers in other languages
_KIB = {"K": 1, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}


def _same(command: str, output: str) -> dict[str, Reply] | None:
    """The question itself; a program that is not there is missing."""
    name = next((each for each in _SAME if command.endswith(each)), None)
    if name is None or not output.strip():
        return None
    if re.search(r"(?:command )?not found", output.splitlines()[0]):
        return {f"command:{name}": Reply("missing", detail="no such program")}
    return {f"command:{name}": Reply("ok", {"code": 0, "out": output, "err": ""})}


def _interfaces(text: str) -> dict[str, Reply] | None:
    names = [match[1] for match in map(_LINK.match, text.splitlines()) if match]
    return {"glob:/sys/class/net/*": Reply("ok", [f"/sys/class/net/{name}" for name in names])} if "lo" in names else None


def _memory(text: str) -> dict[str, Reply] | None:
    """free without -h prints KiB, with -m or -g bare numbers of an unknown unit: those are left out if they are small."""
    found = {}
    for match in filter(None, map(_MEMORY.match, _COMMA.sub(".", text).splitlines())):
        total, unit = float(match["total"]), match["unit"]
        if not unit and total < 1 << 16:
            return None
        factor = _KIB.get(unit, 1)
        found[f"{match['name']}Total"] = int(total * factor)
        if match["name"] == "Mem" and match["last"]:
            found["MemAvailable"] = int(float(match["last"]) * _KIB.get(match["last_unit"], 1))
    lines = "".join(f"{name}: {kib} kB\n" for name, kib in found.items())
    return {"file:/proc/meminfo": Reply("ok", lines)} if "MemTotal" in found else None


def _libcuda(text: str) -> dict[str, Reply]:
    """The libcuda.so.1 that the loader finds, and the others, in their order."""
    paths = _LIBCUDA.findall(text)
    is_wsl = any(path.startswith("/usr/lib/wsl/lib/") for path in paths)
    return {"shown-libcuda": Reply("ok", paths), **(system_texts.of_wsl("") if is_wsl else {})}


def _searched(command: str, output: str) -> dict[str, Reply] | None:
    """grep finds no libcuda in the loader's cache; the one of the driver only where the toolkit's runtime is asked too."""
    is_empty = not re.search(r"\blibcuda\.so", output) and not re.search(r"(?i)not found|denied", output)
    return {"shown-no-libcuda": Reply("ok", True)} if is_empty and re.search(r"libcuda(?:\.so\S*)?['\"]?\s*$", command) else None


_LIBCUDA = re.compile(r"(?m)^\s*libcuda\.so\.1 \(libc6,(?:x86-64|AArch64)\) => (\S+)")


def _which(command: str, output: str) -> dict[str, Reply] | None:
    """The programs of container engines and compilers on PATH; what which does not print is not there."""
    asked = re.findall(r"[\w.+-]+", command)[1:]
    paths = [line.split()[-1] for line in output.splitlines() if re.search(r"(?:^|\s)/\S+$", line)]
    found = {path.rsplit("/", 1)[-1]: {"path": path, "real": path} for path in paths}
    engines = {name: place for name, place in found.items() if name in runtime.PROGRAMS}
    return {"runtime-programs": Reply("ok", engines)} if set(asked) & set(runtime.PROGRAMS) and engines else None


def _python(command: str, output: str) -> dict[str, Reply] | None:
    match = re.match(r"\s*Python (\d+)\.(\d+)\.(\d+)", output)
    return {"interpreter": Reply("ok", {"version": [int(part) for part in match.groups()]})} if match else None


def _cpus(command: str, output: str) -> dict[str, Reply] | None:
    """nproc counts the CPUs that its process may use, not those of the machine."""
    word = (output.split() or [""])[0]
    if not word.isdigit():
        return None
    return {"shown-every-cpu" if "--all" in command else "shown-cpus": Reply("ok", int(word))}


def _context(command: str, output: str) -> dict[str, Reply] | None:
    current = re.search(r"(?m)^(\S+) \*\s", output)
    name = current[1] if current else (output.split() or [""])[0] if command.endswith("show") else ""
    return {"docker-context": Reply("ok", {"currentContext": name})} if name else None


READERS = (
    prompts.reader("a program's own version", _SAME, rf"(?:{'|'.join(_SAME).replace(' ', '[ ]')})", _same, most_lines=5000),
    Reader("ip addr", (": <",), _LINK, _interfaces, re.compile(r"^(?!\s|\d+: [\w.-]+(?:@\w+)?: <)\S|^\s*$"), 400),
    Reader("free", ("Mem:",), re.compile(r"^\s*Mem:\s+[\d.]"), _memory, re.compile(r"^(?!\s*(?:Mem|Swap|-/\+))"), 4),
    Reader("ldconfig -p | grep libcuda", ("libcuda.so.1 (libc6",), _LIBCUDA, _libcuda, re.compile(r"^(?!\s*libcuda)"), 20),
    prompts.reader(
        "ldconfig -p, filtered",
        ("ldconfig -p",),
        rf"\S*ldconfig\ -p\ *\|\ *{prompts.FILTER}\ .*libcuda.*",
        _searched,
        inside=True,
        most_lines=8,
    ),
    prompts.reader(
        "which", ("which ", "command -v", "type "), r"(?:which|command\ -v|type)(?:\ [\w.+-]+)+", _which, most_lines=12
    ),
    prompts.reader("python -V", ("ython -V", "ython3 -V", "--version"), r"python[\d.]*\ (?:-V|--version)", _python, most_lines=3),
    prompts.reader("nproc", ("nproc",), r"nproc(?:\ --all)?", _cpus, bare=False, inside=True, most_lines=3),
    prompts.reader("docker context", ("docker context",), r"docker\ context\ (?:ls|show)", _context, most_lines=20),
)
