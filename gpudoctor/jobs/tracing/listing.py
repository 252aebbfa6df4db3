"""The lines of a kernel's source with its PTX and SASS, as the compiler's line information connects them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Place = tuple[str, int]
NOWHERE: Place = ("", 0)
MOST_LINES, MOST_TEXT, MOST_MADE, MOST_BYTES = 200, 160, 300, 4 << 20
SASS = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+((?:@!?U?P\w+\s+)?([A-Z][\w.]*)[^;]*);")
SASS_LINE = re.compile(r'^\s*//## File "([^"]+)", line (\d+)')
SASS_FUNCTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
PTX = re.compile(r"^\s*((?:@!?%\w+\s+)?[a-z][\w.:]*\b[^;{}]*);")
PTX_LINE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
PTX_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"(?:\s+"([^"]+)")?')
PTX_FUNCTION = re.compile(r"\.entry\s+([\w$]+)")
KINDS = {
    "local": re.compile(r"(LDL|STL)\b"),
    "global": re.compile(r"(LDG|STG|LDGSTS|RED|REDG|ATOM|ATOMG|UTMALDG|UTMASTG|UBLKCP|LD|ST)\b"),
    "shared": re.compile(r"(LDS|STS|LDSM|STSM|ATOMS)\b"),
    "tensor": re.compile(r"([HIDQ]G?MMA|UTC\w*MMA|BGMMA)\b"),
}
RESOURCES = re.compile(r"Function ([^\s:]+):\s*\n\s*([^\n]*)")
RESOURCE = {"REG": "registers", "STACK": "stack_bytes", "SHARED": "shared_bytes"}


@dataclass
class Listing:
    """Of one function: source line -> its instructions, in their order."""

    ptx: dict[Place, list[str]] = field(default_factory=dict)
    sass: dict[Place, list[str]] = field(default_factory=dict)

    def counted(self) -> dict[str, int]:
        return {"instructions": sum(map(len, self.sass.values())), **_kinds(line for each in self.sass.values() for line in each)}

    def rows(self, only: Path | None = None) -> list[dict[str, Any]]:
        """By file and line, with the text of the source where it can be read."""
        found = []
        texts: dict[str, list[str]] = {}
        for place in sorted({*self.ptx, *self.sass} - {NOWHERE})[:MOST_LINES]:
            file, line = place
            text = texts.setdefault(file, _text(Path(file)))
            sass = self.sass.get(place, [])
            said = text[line - 1].strip()[:MOST_TEXT] if 0 < line <= len(text) else ""
            row = {"file": file, "line": line, "text": said, "ptx": len(self.ptx.get(place, [])), "sass": len(sass)}
            found.append({**row, **_kinds(sass)})
        return found

    def as_text(self) -> str:
        """Each source line, then its PTX and SASS in two columns."""
        lines: list[str] = []
        texts: dict[str, list[str]] = {}
        for place in sorted({*self.ptx, *self.sass}):
            file, line = place
            text = texts.setdefault(file, _text(Path(file)) if file else [])
            said = text[line - 1].rstrip() if 0 < line <= len(text) else ""
            lines.append(f"{file}:{line}  {said}" if file else "without a line")
            left, right = self.ptx.get(place, []), self.sass.get(place, [])
            for number in range(max(len(left), len(right))):
                one = left[number] if number < len(left) else ""
                other = right[number] if number < len(right) else ""
                lines.append(f"    {one[:70]:<70} | {other}".rstrip())
        return "\n".join(lines) + "\n"


def read(sass: str, ptx: str, function: str) -> Listing:
    """sass: of `nvdisasm -g -c`. function: the mangled name of the kernel."""
    return Listing(dict(_grouped(_ptx(ptx, function))), dict(_grouped(_sass(sass, function))))


def _grouped(found: Iterator[tuple[Place, str]]) -> dict[Place, list[str]]:
    groups: dict[Place, list[str]] = {}
    for place, words in found:
        groups.setdefault(place, []).append(words)
    return groups


def _sass(text: str, function: str) -> Iterator[tuple[Place, str]]:
    place, is_in = NOWHERE, False
    for line in text.splitlines():
        if begun := SASS_FUNCTION.match(line):
            place, is_in = NOWHERE, begun[1] == function
        elif not is_in:
            continue
        elif at := SASS_LINE.match(line):
            place = (at[1], int(at[2]))
        elif (found := SASS.match(line)) and found[2] != "NOP":
            yield place, " ".join(found[1].split())


def _ptx(text: str, function: str) -> Iterator[tuple[Place, str]]:
    files = {found[1]: "/".join(filter(None, found.groups()[1:])) for found in map(PTX_FILE.match, text.splitlines()) if found}
    place, is_in = NOWHERE, False
    for line in text.splitlines():
        if begun := PTX_FUNCTION.search(line):
            place, is_in = NOWHERE, begun[1] == function
        elif line.startswith("}"):
            is_in = False
        elif not is_in:
            continue
        elif at := PTX_LINE.match(line):
            place = (files.get(at[1], ""), int(at[2])) if at[2] != "0" else NOWHERE
        elif found := PTX.match(line):
            yield place, " ".join(found[1].split())


def _kinds(instructions: Any) -> dict[str, int]:
    """How many use memory of each kind or the tensor cores. local: memory of a thread, usually for spilled registers."""
    found = dict.fromkeys(KINDS, 0)
    for words in instructions:
        name = words.split()[1] if words.startswith("@") else words
        for kind, pattern in KINDS.items():
            found[kind] += pattern.match(name) is not None
    return found


def resources(text: str) -> dict[str, dict[str, int]]:
    """Of `cuobjdump -res-usage`: function -> registers, stack and static shared memory."""
    found = {}
    for name, values in RESOURCES.findall(text):
        pairs = [word.partition(":") for word in values.split()]
        found[name] = {RESOURCE[key]: int(value) for key, _, value in pairs if key in RESOURCE and value.isdigit()}
    return found


def _text(file: Path) -> list[str]:
    try:
        if not file.is_file() or file.stat().st_size > MOST_BYTES:
            return []
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def of_inductor(text: str, kernel: str) -> list[str]:
    """What a kernel was made from, as Inductor says above it in the module that calls it: nodes and operators of the graph."""
    lines = text.splitlines()
    at = next((number for number, line in enumerate(lines) if line.startswith(f"{kernel} = ")), 0)
    above: list[str] = []
    while at > 0 and lines[at - 1].startswith("#"):
        at -= 1
        above.insert(0, lines[at].lstrip("# ").strip()[:MOST_MADE])
    return [line for line in above if line.startswith(("Topologically Sorted", "Source Nodes", "Original ATen", "%"))][:20]


def chosen(variants: list[dict[str, Any]], measured: Mapping[str, Any]) -> int:
    """Which of the variants ran, by the threads and registers that ncu measured; else the last that was compiled."""
    if not variants:
        return -1
    threads, registers = measured.get("threads_per_block"), measured.get("registers")

    def agrees(one: Mapping[str, Any]) -> tuple[bool, bool]:
        return one.get("warps", 0) * 32 == threads, one.get("registers") == registers

    return max(range(len(variants)), key=lambda number: (agrees(variants[number]), number))
