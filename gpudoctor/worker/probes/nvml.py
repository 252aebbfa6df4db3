"""Asks NVML through nvidia-ml-py, one getter at a time: one that fails or crashes loses only its own answer.

An answer is the value, or {"error": NVML code}, {"absent": true} (not in this nvidia-ml-py), {"raised": text} or {"died": true}
(it killed this probe before).
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterator, Sequence

from gpudoctor.worker.probes.machine import Answer, Machine, believable
from gpudoctor.worker.probes.nvml_getters import (
    FAMILIES,
    FIELDS,
    GETTERS,
    LINK_ERRORS,
    LINK_FIELDS,
    NEW_LINK_FIELDS,
    NVLINK_5,
    PROCESSES,
    SYSTEM,
    VALUE_TYPES,
)

LIBRARY = "libnvidia-ml.so.1"
SUCCESS, INVALID_ARGUMENT, FUNCTION_NOT_FOUND, NO_DATA, VERSION_MISMATCH = 0, 2, 13, 21, 25
MAXIMUM_LINKS = 36
MAXIMUM_PEERS = 16
MAXIMUM_MIG_DEVICES = 64  # of one GPU; none has more than 8


def ask(machine: Machine) -> Iterator[Answer]:
    """`nvml`, then `nvml:gpuN` for every GPU, then `nvml:peers` if there are 2 to 16."""
    machine.at("nvml", "dlopen " + LIBRARY)
    library = machine.call(_load)
    if library.status != "ok" or library.value["library"] is None:
        yield "nvml", library
        return
    binding = machine.call(_binding)
    if binding.status != "ok":
        yield "nvml", binding
        return
    nvml = Nvml(machine, binding.value)
    reply = machine.call(lambda: dict(library.value, **nvml.start()))
    yield "nvml", reply
    if not reply.value or reply.value["init"] != SUCCESS:
        return
    try:
        count = reply.value["count"]
        yield from nvml.devices(count if isinstance(count, int) else 0)
    finally:
        nvml.question = "nvml:shutdown"
        nvml("nvmlShutdown")


def _load() -> Dict[str, Any]:
    """The library and the path that the loader took it from; if it fails, nothing else is imported."""
    import ctypes

    try:
        ctypes.CDLL(LIBRARY)
    except OSError as failure:
        return {"library": None, "load_error": str(failure)}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = [line.split(None, 5)[5].strip() for line in maps if "/libnvidia-ml.so" in line]
    return {"library": paths[0] if paths else LIBRARY, "load_error": ""}


def _binding() -> Any:
    import pynvml

    return pynvml


class Nvml:
    """NVML, called by name; `question` is the one that the answers belong to."""

    def __init__(self, machine: Machine, binding: Any) -> None:
        self.machine = machine
        self.binding = binding
        self.question = "nvml"

    def __call__(self, function: str, *arguments: Any) -> Any:
        """The answer of one function as plain JSON; a device handle is returned unchanged."""
        if function in self.machine.skip:
            return {"died": True}
        found = getattr(self.binding, function, None)
        if found is None:
            return {"absent": True}
        self.machine.at(self.question, function)
        try:
            return plain(found(*arguments))
        except self.binding.NVMLError as failure:
            return {"error": failure.value}
        except Exception as failure:
            if type(failure).__name__ == "NVMLLibraryMismatchError":  # the binding's error for an unversioned function
                return {"error": FUNCTION_NOT_FOUND}
            return {"raised": "%s: %s" % (type(failure).__name__, failure)}

    def start(self) -> Dict[str, Any]:
        """Initialises NVML; returns what it reports about the system."""
        start = time.monotonic()
        answer = self("nvmlInit")
        seconds = round(time.monotonic() - start, 4)
        init = answer.get("error", answer) if failed(answer) else SUCCESS
        if init != SUCCESS:
            return {"init": init, "init_seconds": seconds}
        system = {name: self("nvmlSystemGet" + name) for name in SYSTEM}
        return {"init": init, "init_seconds": seconds, "system": system, "count": believable(self("nvmlDeviceGetCount"))}

    def devices(self, count: int) -> Iterator[Answer]:
        handles = {}
        for index in range(count):
            self.question = "nvml:gpu%d" % index
            handles[index] = self("nvmlDeviceGetHandleByIndex", index)
            yield self.question, self.machine.call(lambda: self.device(handles[index]))  # noqa: B023 (called at once)
        reachable = {index: handle for index, handle in handles.items() if not failed(handle)}
        if 2 <= len(reachable) <= MAXIMUM_PEERS:
            self.question = "nvml:peers"
            yield self.question, self.machine.call(lambda: self.peers(reachable))

    def device(self, handle: Any) -> Dict[str, Any]:
        if failed(handle):
            return {"handle_error": handle.get("error", handle)}
        answers = {name: self("nvmlDeviceGet" + name, handle) for name in GETTERS}
        for name, rows in FAMILIES.items():
            answers[name] = {label: self("nvmlDeviceGet" + name, handle, *row) for label, row in rows.items()}
        answers["MemoryInfo_v2"] = self.memory(handle)
        answers["SramEccErrorStatus"] = self.structure("SramEccErrorStatus", handle, "c_nvmlEccSramErrorStatus_v1_t")
        answers["GpuFabricInfoV"] = self.fabric(handle)
        answers["FieldValues"] = self.fields(handle, FIELDS)
        answers["NvLinks"] = self.links(handle)
        answers["MigDevices"] = self.mig_devices(handle, answers["MigMode"], answers["MaxMigDeviceCount"])
        for name in PROCESSES:
            answers[name] = self.processes(name, handle)
        return answers

    def memory(self, handle: Any) -> Any:
        """The second version separates the driver's reserve from used memory."""
        version = getattr(self.binding, "nvmlMemory_v2", None)
        return self("nvmlDeviceGetMemoryInfo", handle, version) if version else {"absent": True}

    def structure(self, name: str, handle: Any, structure: str) -> Any:
        """A getter that fills a versioned structure of the caller."""
        import ctypes

        make = getattr(self.binding, structure, None)
        if make is None:
            return {"absent": True}
        filled = make()
        answer = self("nvmlDeviceGet" + name, handle, ctypes.byref(filled))
        return answer if failed(answer) else plain(filled)

    def fabric(self, handle: Any) -> Any:
        answer: Any = {"absent": True}
        for structure in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfoV_t"):
            answer = self.structure("GpuFabricInfoV", handle, structure)
            if answer not in ({"absent": True}, {"error": VERSION_MISMATCH}):
                break
        if not failed(answer):
            del answer["clusterUuid"]
        return answer

    def fields(self, handle: Any, names: Sequence[str], scope: int = 0) -> Dict[str, Any]:
        """Field -> value. Asked one by one: in a long list some fields come back unset (580.159.04, H200)."""
        return {name: self.field(handle, getattr(self.binding, "NVML_FI_DEV_" + name, None), scope) for name in names}

    def field(self, handle: Any, number: Any, scope: int) -> Any:
        if number is None:
            return {"absent": True}
        answer = self("nvmlDeviceGetFieldValues", handle, [(number, scope)])
        if failed(answer):
            return answer
        code, kind, value = (answer[0][key] for key in ("nvmlReturn", "valueType", "value"))
        if code != SUCCESS:
            return {"error": code}
        return value[VALUE_TYPES[kind]] if kind in VALUE_TYPES else {"error": NO_DATA}

    def links(self, handle: Any) -> Any:
        """Link -> its answers; {"error": code} if no link has a state."""
        links: Dict[str, Any] = {}
        error: Any = {"error": INVALID_ARGUMENT}
        for link in range(MAXIMUM_LINKS):
            state = self("nvmlDeviceGetNvLinkState", handle, link)
            if state == {"error": INVALID_ARGUMENT}:  # one past the last link
                break
            if failed(state):
                error = state
            else:
                links[str(link)] = dict(self.link(handle, link), State=state)
        return links or error

    def link(self, handle: Any, link: int) -> Dict[str, Any]:
        names = ("Version", "RemoteDeviceType", "RemotePciInfo")
        answers = {name: self("nvmlDeviceGetNvLink" + name, handle, link) for name in names}
        is_new = not failed(answers["Version"]) and answers["Version"] >= NVLINK_5
        answers["FieldValues"] = self.fields(handle, LINK_FIELDS + NEW_LINK_FIELDS * is_new, link)
        if failed(answers["FieldValues"]["NVLINK_ERROR_DL_CRC"]):  # older drivers; on newer ones each of these takes 1 ms
            answers["ErrorCounter"] = {
                name: self("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter) for name, counter in LINK_ERRORS.items()
            }
        return answers

    def mig_devices(self, handle: Any, mode: Any, maximum: Any) -> Any:
        if failed(mode) or not mode[0]:
            return []
        if failed(maximum):
            return maximum
        found = [self("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(min(maximum, MAXIMUM_MIG_DEVICES))]
        names = ("Name", "UUID", "GpuInstanceId", "ComputeInstanceId", "MemoryInfo", "Attributes")
        return [{name: self("nvmlDeviceGet" + name, mig) for name in names} for mig in found if not failed(mig)]

    def processes(self, name: str, handle: Any) -> Any:
        answer = self("nvmlDeviceGet" + name, handle)
        if answer == {"error": FUNCTION_NOT_FOUND}:  # drivers before R510
            answer = self("nvmlDeviceGet" + name + "_v2", handle)
        return answer if failed(answer) else [self.process(entry) for entry in answer]

    def process(self, entry: Dict[str, Any]) -> Dict[str, Any]:
        """The entry with the command's name (no arguments), and whether it belongs to this user."""
        folder = "/proc/%d" % entry["pid"]
        name = self.machine.call(lambda: self.machine.read(folder + "/comm").strip())
        ours = self.machine.call(lambda: os.stat(self.machine.path(folder)).st_uid == os.getuid())
        return dict(entry, name=name.value, ours=ours.value)

    def peers(self, handles: Dict[int, Any]) -> Dict[str, Any]:
        """Whether each GPU can read each other one, and what lies between them: "0,1" -> code."""
        pairs = [(one, other) for one in handles for other in handles if one != other]
        return {
            "p2p": {"%d,%d" % pair: self("nvmlDeviceGetP2PStatus", *(handles[i] for i in pair), 0) for pair in pairs},
            "topology": {
                "%d,%d" % pair: self("nvmlDeviceGetTopologyCommonAncestor", *(handles[i] for i in pair))
                for pair in pairs
                if pair[0] < pair[1]
            },
        }


def failed(answer: Any) -> bool:
    return isinstance(answer, dict) and not answer.keys().isdisjoint(("error", "absent", "raised", "died"))


def plain(value: Any) -> Any:
    """A value of the binding as JSON."""
    import ctypes

    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [plain(item) for item in value]
    if isinstance(value, (ctypes.Structure, ctypes.Union)):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if type(value).__name__ == "nvmlFriendlyObject":
        return {name: plain(item) for name, item in vars(value).items()}
    return value
