"""nvidia-smi's output about a GPU, in any format, as NVML's answers (probes/nvml.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpudoctor import knowledge
from gpudoctor.evidence.readers.nvidia_smi_fields import WHOLE, plain, refusal, values, yes
from gpudoctor.facts.nvml_values import ERRORS, FABRIC_STATES, FABRIC_SUMMARIES
from gpudoctor.model import Reply

LIBRARY = "libnvidia-ml.so.1"  # nvidia-smi cannot print anything without it
GPU_IS_LOST, NOT_SUPPORTED, LIBRARY_NOT_FOUND = 15, 3, 12
# The bits of CurrentClocksEventReasons by the name after "clocks event reason" in XML, and by the words in the text format.
REASONS = {
    "gpuidle": 0x1,
    "idle": 0x1,
    "applicationsclockssetting": 0x2,
    "userdefinedclocks": 0x2,
    "swpowercap": 0x4,
    "hwslowdown": 0x8,
    "syncboost": 0x10,
    "swthermalslowdown": 0x20,
    "hwthermalslowdown": 0x40,
    "hwpowerbrakeslowdown": 0x80,
    "displayclocksetting": 0x100,
    "displayclockssetting": 0x100,
}
_SECTION = re.compile(
    r"""
    clocks(?:event|throttle)reasons
    (?: /(?:hwslowdown/)?(?:clocks(?:event|throttle)reason)?(?P<reason>\w+) )?
    """,
    re.VERBOSE,
)
_HEALTH = (("bandwidth", 0), ("routerecoveryinprogress", 2), ("routeunhealthy", 4), ("accesstimeoutrecovery", 6))

Answers = dict[str, Any]


def replies(system: Mapping[str, Any], gpus: Iterable[Mapping[str, Any]] | None) -> dict[str, Reply]:
    """`nvml` and `nvml:gpuN`; None without information about any GPU."""
    listed = None if gpus is None else list(gpus)
    start = {"library": LIBRARY, "load_error": "", "init": 0, "system": dict(system)}
    counted = {} if listed is None else {"count": len(listed)}
    found = {"nvml": Reply("ok", {**start, **counted})}
    version = system.get("CudaDriverVersion_v2")
    if isinstance(version, int):  # the driver's libcuda was asked
        found["cuda"] = Reply("ok", {"library": "libcuda.so.1", "load_error": "", "driver_version": version})
    return found | {f"nvml:gpu{index}": Reply("ok", dict(answers)) for index, answers in enumerate(listed or ())}


def system(driver: str | None, cuda: str | None) -> Answers:
    """NVML's answers about the driver, from the two versions at the top of nvidia-smi's output."""
    found: Answers = {}
    release = re.match(r"\d+\.\d+(?:\.\d+)*", driver or "")
    if release:
        found["DriverVersion"] = release[0]
    match = re.match(r"(\d+)\.(\d+)", cuda or "")
    if match:
        found["CudaDriverVersion_v2"] = found["CudaDriverVersion"] = 1000 * int(match[1]) + 10 * int(match[2])
    elif cuda and plain(cuda) in ("na", "notfound"):
        found["CudaDriverVersion_v2"] = found["CudaDriverVersion"] = {"error": LIBRARY_NOT_FOUND}
    return found


def answers(form: str, said: Mapping[str, str]) -> Answers:
    """The answers of one GPU. said: path of a field -> its text, named as in this output format."""
    if (refusal(said.get("uuid" if form == "x" else "gpuuuid", "")) or {}).get("error") == GPU_IS_LOST:
        return {"handle_error": GPU_IS_LOST}
    found = tidy(values(form, said))
    for name, answer in (("CurrentClocksEventReasons", _reasons(said)), ("GpuFabricInfoV", _fabric(said))):
        if answer is not None:
            found[name] = answer
    if "FieldValues" not in found or "GET_GPU_RECOVERY_ACTION" not in found["FieldValues"]:
        _add_reset_status(found, said)
    return found


def tidy(pairs: Iterable[tuple[str, Any]]) -> Answers:
    """Turns dotted getters into the tree of NVML's binding; answers that are a whole need all parts, or are dropped."""
    found: Answers = {}
    for getter, value in pairs:
        name, _, part = getter.partition(".")
        if part:
            found.setdefault(name, {})[part] = value
        else:
            found[name] = value
    for name in WHOLE:
        if isinstance(found.get(name), dict) and "error" not in found[name]:
            parts = found.pop(name)
            whole = _whole(name, parts)
            if name in ("MigMode", "EccMode") and whole is None and isinstance(parts.get("0"), int):
                found[f"{name}Shown"] = parts["0"]
            found |= {name: whole} if whole is not None else {}
    return _completed(found)


_PARTS = {"RemappedRows": 4, "SramEccErrorStatus": 12}


def _whole(name: str, parts: dict[str, Any]) -> Any:
    if len(parts) < _PARTS.get(name, 2):
        return None
    refused = [part for part in parts.values() if isinstance(part, dict)]
    if refused:
        return refused[0] if len(refused) == len(parts) else None
    return parts if name == "SramEccErrorStatus" else [parts[str(place)] for place in range(len(parts))]


def _completed(found: Answers) -> Answers:
    """Adds what follows from the rest: parts of the address, the reserve, the compute capability of a known board."""
    pci = found.get("PciInfo", {})
    match = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.[0-9a-f]", str(pci.get("busId", "")).lower())
    if match:
        domain, bus, device = (int(part, 16) for part in match.groups())
        pci |= {"busId": f"{domain:08X}:{bus:02X}:{device:02X}.0", "domain": domain, "bus": bus, "device": device}
    memory, second = found.get("MemoryInfo", {}), found.get("MemoryInfo_v2", {})
    if isinstance(second.get("reserved"), int) and memory:
        found["MemoryInfo_v2"] = {**memory, **second}
        found["MemoryInfo"] = {name: size for name, size in memory.items() if name != "used"}
    board = knowledge.gpu_by_name(name) if isinstance(name := found.get("Name"), str) else None
    if board:
        found.setdefault("CudaComputeCapability", list(board.compute_capability))
    return found


def _reasons(said: Mapping[str, str]) -> Any:
    bits, told = 0, False
    for path, text in said.items():
        match = _SECTION.fullmatch(path)
        if match and match[1] is None and refusal(text):
            return refusal(text)
        state = yes(text) if match and match[1] else None
        told = told or state is not None
        bits |= REASONS.get(match[1], 0) if match and state else 0
    return bits if told else None


def _add_reset_status(found: Answers, said: Mapping[str, str]) -> None:
    """Before R570, two lines had the information of today's recovery action."""
    asked = [yes(said.get(f"gpuresetstatus/{name}", "")) for name in ("resetrequired", "drainandresetrecommended")]
    if None not in asked:
        found.setdefault("FieldValues", {})["GET_GPU_RECOVERY_ACTION"] = 1 if asked[0] else 4 if asked[1] else 0


def _fabric(said: Mapping[str, str]) -> Any:
    state = said.get("fabric/state", said.get("fabric"))
    if state is None or refusal(state):
        return None if state is None else refusal(state)
    codes = {plain(words): code for code, words in FABRIC_STATES.items()}
    if plain(state) not in codes:
        return None
    clique, summary = said.get("fabric/cliqueid", ""), plain(said.get("fabric/health/summary", ""))
    return {
        "state": codes[plain(state)],
        "status": _status(said.get("fabric/status", "")),
        "cliqueId": int(clique) if clique.isdigit() else 0,
        "healthMask": _health(said),
        "healthSummary": next((code for code, words in FABRIC_SUMMARIES.items() if words and plain(words) == summary), 0),
    }


def _status(text: str) -> int:
    codes = {plain(name): code for code, name in ERRORS.items()}
    return 0 if refusal(text) == {"error": NOT_SUPPORTED} else codes.get(plain(text), 999)


def _health(said: Mapping[str, str]) -> int:
    """Each part of the mask is 1 if faulty, 2 if healthy."""
    mask = 0
    for name, shift in _HEALTH:
        word = plain(said.get(f"fabric/health/{name}", ""))
        mask |= (1 if word in ("true", "degraded", "yes") else 2 if word in ("false", "full", "no") else 0) << shift
    return mask


def processes(listed: Sequence[Mapping[str, str]]) -> Answers:
    """NVML's three lists, from (pid, type, name, used) of each process."""
    found: Answers = {"ComputeRunningProcesses": [], "GraphicsRunningProcesses": [], "MPSComputeRunningProcesses": []}
    for entry in (entry for entry in listed if entry.get("pid", "").isdigit()):
        size = re.match(r"(\d+) ?MiB", entry.get("used", ""))
        name = entry.get("name", "").split(" ")[0].rsplit("/", 1)[-1]
        row = {"pid": int(entry["pid"]), "usedGpuMemory": int(size[1]) << 20 if size else None, "name": name or None}
        for kind, getter in _LISTS:
            if kind(entry.get("type", "")):
                found[getter].append({**row, "ours": None})
    return found


_LISTS: tuple[tuple[Callable[[str], bool], str], ...] = (
    (lambda kind: "C" in kind.split("+"), "ComputeRunningProcesses"),
    (lambda kind: "G" in kind.split("+"), "GraphicsRunningProcesses"),
    (lambda kind: "M" in kind, "MPSComputeRunningProcesses"),
)


def mig_device(gpu_instance: str, compute_instance: str, size: str) -> Answers:
    """A MIG device with the values that -q shows."""
    memory = re.match(r"(\d+) ?MiB", size)
    found: Answers = {"MemoryInfo": {"total": int(memory[1]) << 20}} if memory else {}
    instances = {"GpuInstanceId": gpu_instance, "ComputeInstanceId": compute_instance}
    return found | {name: int(number) for name, number in instances.items() if number.isdigit()}


def licence(product: str, status: str) -> Answers:
    """A vGPU's licence: status is "Licensed (Expiry: ...)", "Unlicensed", "Unlicensed (Restricted)" ..."""
    is_licensed = int(plain(status).startswith("licensed"))
    feature = {"productName": product, "featureEnabled": 1, "featureState": is_licensed, "licenseExpiry": {"status": 0}}
    return {"isGridLicenseSupported": 1, "licensableFeaturesCount": 1, "gridLicensableFeatures": [feature]}
