"""The code of one kernel: what Triton and Inductor compiled for a command, or what its program file contains."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.jobs.tracing import listing, tuned
from gpudoctor.jobs.tracing.listing import Listing

CACHES = "compiled"  # within the folder of the traces
KEPT = "code"
MOST_VARIANTS, MOST_BYTES = 24, 256 << 20
ASK_SECONDS = 60.0
NOTHING = (
    "no kernel of that name was compiled by Triton or Inductor, or found by cuobjdump in the program file (it is in the toolkit)"
)
ELF = b"\x7fELF"
PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
ASK_TRITON = "import importlib.util as u; print(u.find_spec('triton').submodule_search_locations[0])"


def variables(folder: Path) -> dict[str, str]:
    """The compilers write what they make for this run into separate folders, with the times of the autotuner."""
    return {
        "TRITON_CACHE_DIR": str(folder / CACHES / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / CACHES / "inductor"),
        "TRITON_CACHE_AUTOTUNING": "1",
    }


def told(
    wanted: str, measured: Mapping[str, Any], folder: Path, argv: Sequence[str], python: str | None, is_kept: bool
) -> dict[str, Any]:
    """{"code", "tuned"}, each only if there is something to tell."""
    tools = Tools(python)
    cache = folder / CACHES
    found: dict[str, Any] = {}
    try:
        kernels = [*_of_triton(cache, wanted), *_of_program(argv, wanted, tools, folder / CACHES / "program")]
        if rows := tuned.rows(folder, cache, wanted):
            found["tuned"] = rows
            found["measured_before_the_choice"] = tuned.is_other(rows, measured.get("threads_per_block"))
            measured = {**tuned.threads(rows), **measured}
        if kernels:
            found["code"] = _code(kernels[:MOST_VARIANTS], measured, tools, cache, folder / KEPT if is_kept else None)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    return found


class Tools:
    """cuobjdump and nvdisasm: of PATH, of a toolkit, or those that Triton brings along. python: the command's."""

    def __init__(self, python: str | None) -> None:
        self._places = [*PLACES, *_of_triton_itself(python)]

    def run(self, name: str, *options: str, within: Path | None = None) -> str:
        """Its output; "" if it is not installed or fails."""
        path = shutil.which(name) or next(filter(None, (shutil.which(name, path=place) for place in self._places)), None)
        if path is None:
            return ""
        try:
            ran = subprocess.run(
                (path, *options), stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_SECONDS, check=False, cwd=within
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return ran.stdout.decode("utf-8", "replace") if ran.returncode == 0 else ""


def _of_triton_itself(python: str | None) -> Iterator[str]:
    if not python:
        return
    try:
        asked = subprocess.run((python, "-c", ASK_TRITON), capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    if asked.returncode == 0:
        yield f"{asked.stdout.strip()}/backends/nvidia/bin"


class Kernel:
    """One compiled variant. name: mangled, as in its cubin. about: warps and stages, if Triton compiled it."""

    def __init__(self, name: str, cubin: Path, ptx: Path, about: Mapping[str, Any]) -> None:
        self.name, self.cubin, self.ptx, self.about = name, cubin, ptx, about

    def variant(self, tools: Tools) -> dict[str, Any]:
        usage = listing.resources(tools.run("cuobjdump", "-res-usage", str(self.cubin))).get(self.name, {})
        return {**{key: value for key, value in self.about.items() if value is not None}, **usage, **self.listed(tools).counted()}

    def listed(self, tools: Tools) -> Listing:
        return listing.read(tools.run("nvdisasm", "-g", "-c", str(self.cubin)), _read(self.ptx), self.name)


def _of_triton(cache: Path, wanted: str) -> Iterator[Kernel]:
    found = [file for file in cache.glob("**/*.cubin") if wanted in file.stem]
    for cubin in sorted(found, key=lambda file: (file.stat().st_mtime_ns, file)):
        about = _about(cubin.with_suffix(".json"))
        kept = {"warps": about.get("num_warps"), "stages": about.get("num_stages"), "dynamic_shared_bytes": about.get("shared")}
        yield Kernel(str(about.get("name") or cubin.stem), cubin, cubin.with_suffix(".ptx"), kept)


def _about(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(file))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _of_program(argv: Sequence[str], wanted: str, tools: Tools, room: Path) -> Iterator[Kernel]:
    """The command itself, if it is a program with CUDA code in it."""
    program = Path(shutil.which(argv[0]) or argv[0])
    try:
        with program.open("rb") as file:
            is_elf = file.read(4) == ELF
        if not is_elf or program.stat().st_size > MOST_BYTES:
            return
        room.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    for option in ("-xelf", "-xptx"):
        tools.run("cuobjdump", option, "all", str(program.resolve()), within=room)
    for cubin in sorted(room.glob("*.cubin")):
        for name in listing.resources(tools.run("cuobjdump", "-res-usage", str(cubin))):
            if wanted in name:
                yield Kernel(name, cubin, cubin.with_suffix(".ptx"), {"architecture": cubin.stem.rpartition(".")[2]})


def _code(kernels: Sequence[Kernel], measured: Mapping[str, Any], tools: Tools, cache: Path, kept: Path | None) -> dict[str, Any]:
    variants = [kernel.variant(tools) for kernel in kernels]
    number = listing.chosen(variants, measured)
    kernel = kernels[number]
    listed = kernel.listed(tools)
    lines = listed.rows()
    files = {row["file"] for row in lines}
    own = (cache / "inductor").resolve()
    of_inductor = [file for file in sorted(files) if Path(file).resolve().is_relative_to(own)]
    origin = "Inductor" if of_inductor else "Triton" if "warps" in kernel.about else "the program file"
    found = {"function": kernel.name, "origin": origin, "variants": variants, "chosen": number, "lines": lines}
    if of_inductor:
        modules = sorted((cache / "inductor").glob("**/*.py"))
        made = (listing.of_inductor(_read(file), kernel.name) for file in modules)
        found["made_from"] = next(filter(None, made), [])
    if not listed.sass:
        found["nothing"] = "no SASS: cuobjdump and nvdisasm are not installed (they are in the CUDA toolkit and in Triton)"
    if kept:
        _keep(kernels, listed, number, kept, tools, of_inductor)
    return found


def _keep(kernels: Sequence[Kernel], listed: Listing, number: int, kept: Path, tools: Tools, sources: Sequence[str]) -> None:
    kept.mkdir(exist_ok=True)
    kernel = kernels[number]
    (kept / "listing.txt").write_text(listed.as_text(), encoding="utf-8")
    (kept / "kernel.sass").write_text(tools.run("nvdisasm", "-g", "-c", str(kernel.cubin)), encoding="utf-8")
    for file in (*kernel.cubin.parent.glob(f"{kernel.cubin.stem}.*"), *map(Path, sources)):
        if file.is_file():
            shutil.copy(file, kept / file.name)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace") if file.stat().st_size < MOST_BYTES else ""
    except OSError:
        return ""
