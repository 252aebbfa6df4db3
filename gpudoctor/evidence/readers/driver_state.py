"""How a session asks for the driver's module: fields of modinfo, files below /lib/modules, and a laptop's graphics mode."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply
from gpudoctor.worker.probes.modules import MODULE_FILE, PACKAGE_OF_INTEREST, package

MODINFO = "command:modinfo nvidia"
_LETTERS = {"-l": "license", "-n": "filename", "-a": "author", "-d": "description", "-p": "parm"}
_FIELD = re.compile(r"^[\w-]+:\s+\S")
_FILE = re.compile(r"(?:/usr)?/lib/modules/(?P<kernel>[^/\s]+)/\S*/(?P<name>[\w.-]+)$")
_ABSENT = re.compile(r"No such file|cannot access")
_COLUMNS = re.compile(
    r"""
    ^\s* (?: \S+\.(?:rules|conf)\s+ )*
    (?:\S*/)?50-remove-nvidia\.rules
    (?: \s+\S+\.(?:rules|conf) )* \s*$
    """,
    re.VERBOSE,
)
TOOLS = {
    "prime-select": "prime-select",
    "envycontrol": "EnvyControl",
    "supergfxctl": "supergfxctl",
    "system76-power": "system76-power",
    "optimus-manager": "optimus-manager",
}
_MODE = re.compile(
    r"\b(?P<mode> intel | nvidia | on-demand | offload | amd | integrated | hybrid | compute | dedicated | vfio | igpu )\b",
    re.IGNORECASE | re.VERBOSE,
)


def _modinfo(command: str, output: str) -> dict[str, Reply] | None:
    """One field, or the lines that grep left: their names are printed, or given by the option."""
    lines = [line for line in output.splitlines() if line.strip()]
    if not lines or "ERROR" in lines[0]:
        return None
    name = re.search(r"(?:-F|--field)[ =]?(\w+)", command)
    letter = next((field for option, field in _LETTERS.items() if f" {option} " in command), None)
    if field := name[1] if name else letter:
        lines = [f"{field}: {lines[0].strip()}"]
    said = [line for line in lines if _FIELD.match(line)]
    return {MODINFO: Reply("ok", {"code": 0, "out": "".join(f"{line}\n" for line in said), "err": ""})} if said else None


def _modules(command: str, output: str) -> dict[str, Reply] | None:
    """Every kernel with the module; those that are not listed lack it."""
    if "modules/$(uname" in command or "modules/`uname" in command:
        return None
    kernels: dict[str, dict[str, object]] = {}
    for line in output.splitlines():
        match = _FILE.search(line.strip())
        if match and MODULE_FILE.fullmatch(match["name"]):
            paths = kernels.setdefault(match["kernel"], {"nvidia": []})["nvidia"]
            paths.append(match[0])  # type: ignore[attr-defined]
    return {"kernel-modules": Reply("ok", kernels)} if kernels else None


def _kernels(command: str, output: str) -> dict[str, Reply] | None:
    """The kernels with modules on disk."""
    names = [
        word.rstrip("/") for line in output.splitlines() for word in line.split()[-8:] if re.match(r"\d+\.\d+\.\d+\S*-", word)
    ]
    return {"shown-kernels": Reply("ok", names)} if names else None


def _packages(command: str, output: str) -> dict[str, Reply] | None:
    """pacman -Q prints a name and a version a line; that of the kernel is its release, written with a dot."""
    said = [words for line in output.splitlines() if len(words := line.split()) == 2 and re.match(r"(?:\d+:)?\d", words[1])]
    found = [package("pacman", name, version) for name, version in said if PACKAGE_OF_INTEREST.search(name)]
    kernels = [re.sub(r"\.arch(\d)", r"-arch\1", version) for name, version in said if name == "linux"]
    replies = {"shown-kernels": Reply("ok", kernels)} if kernels and "-arch" in kernels[0] else {}
    return {**replies, **({"os-packages": Reply("ok", found)} if found else {})} or None


def _flatpaks(text: str) -> dict[str, Reply]:
    releases = {".".join(filter(None, match.groups())): True for match in _FLATPAK.finditer(text)}
    return {"shown-flatpak-drivers": Reply("ok", releases)}


_FLATPAK = re.compile(r"org\.freedesktop\.Platform\.GL\.nvidia-(\d{3})-(\d+)(?:-(\d+))?")


def _nix(text: str) -> dict[str, Reply]:
    return {"shown-nix-drivers": Reply("ok", {match[1]: True for match in _NIX.finditer(text)})}


_NIX = re.compile(r"/nix/store/\w+-nvidia-x11-(\d{3}\.\d+(?:\.\d+)?)-")


def _mode(command: str, output: str) -> dict[str, Reply] | None:
    tool = next((name for program, name in TOOLS.items() if program in command), None)
    match = _MODE.search(output)
    return _shown(tool, match["mode"].lower()) if tool and match else None


def _rule(text: str) -> dict[str, Reply] | None:
    """A folder with the rule by which EnvyControl removes the GPU."""
    if _ABSENT.search(text):
        return None
    return {"shown-graphics-rule": Reply("ok", {"tool": "EnvyControl", "mode": "integrated"})}


def _links(text: str) -> dict[str, Reply]:
    links = {match["path"]: match["target"] for match in map(_LINK.search, text.splitlines()) if match}
    return {"shown-library-links": Reply("ok", links)}


_LINK = re.compile(
    r"^l[rwx]{9}.*?\s(?P<path>\S*lib(?:cuda|nvidia-ml)\.so\.1)\ ->\ (?P<target>\S*\.so\.\d{3}\.[\d.]+)\s*$", re.VERBOSE
)


def _shown(tool: str, mode: str) -> dict[str, Reply]:
    return {"shown-graphics-mode": Reply("ok", {"tool": tool, "mode": mode})}


READERS = (
    prompts.reader(
        "modinfo",
        ("modinfo ",),
        r"""modinfo\ (?:
              (?:-F|--field)[ =]?\w+\ nvidia
            | nvidia\ (?:-F|--field)[ =]?\w+
            | -[lnadp]\ nvidia
            | nvidia(?:\ nvidia\w*)*\ *\|\ *(?:e?grep|head|rg)\b.*
            ) (?:\s+2>\S+)?""",
        _modinfo,
        most_lines=60,
    ),
    prompts.reader(
        "files below /lib/modules",
        ("/lib/modules",),
        r"(?:find|ls)\ (?:-\w+\ )*(?:/usr)?/lib/modules\S*.*nvidia.*",
        _modules,
        most_lines=400,
    ),
    prompts.reader(
        "graphics mode",
        tuple(TOOLS),
        r"(?: prime-select\ (?:query|get-current) | envycontrol\ (?:-q|--query) | supergfxctl\ (?:-g|--get)"
        r" | system76-power\ graphics | optimus-manager\ --(?:status|print-mode) )",
        _mode,
        most_lines=8,
    ),
    prompts.reader("folders of kernels", ("lib/modules",), r"ls\ (?:-\w+\ )*(?:/usr)?/lib/modules/?", _kernels, most_lines=60),
    prompts.reader("pacman -Q", ("pacman -Q",), r"pacman\ -Q\w*(?:\ [\w.-]+)*(?:\ *\|.*)?", _packages, most_lines=300),
    Reader("drivers of NixOS", ("-nvidia-x11-",), _NIX, _nix, re.compile(""), 1),
    Reader("flatpak's drivers", ("Platform.GL.nvidia-",), _FLATPAK, _flatpaks, re.compile(r"^(?!.*Platform\.GL)"), 40),
    Reader("links to the driver's libraries", (".so.1 -> ",), _LINK, _links, re.compile(r"^(?!l[rwx]{9}|-[rwx-]{9})"), 40),
    Reader("a list of rules", ("50-remove-nvidia.rules",), _COLUMNS, _rule, re.compile(""), 1),
)
