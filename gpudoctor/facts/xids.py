"""Which GPU reported which errors: the Xids of the kernel log, matched with NVML's GPUs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpudoctor import knowledge
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.kernel_log import Xid
from gpudoctor.facts.known import known
from gpudoctor.facts.nvml_values import RECOVERY_ACTIONS
from gpudoctor.model import Skip

if TYPE_CHECKING:
    from gpudoctor.facts import Facts

FALLEN_OFF = 79
LINK_ERRORS = (74, *range(144, 151))
RECOVERY_CHANGED = 154
FIRMWARE_ERRORS = {62, 119, 120}
# What the driver reports for one bad word or row of memory, the most severe first.
MEMORY_ERRORS = (64, 95, 140, 48, 172, 171, 94, 63)
LONGEST_TEXT = 160
_CHANGE = re.compile(r"changed from 0x[0-9a-f]+ \([^)]*\) to (0x[0-9a-f]+)", re.IGNORECASE)


@dataclass(frozen=True)
class GpuXids:
    """The Xids of one GPU in the order of the log.

    gpu: NVML's answers about it, None if NVML does not know it; recovery: the recovery action that NVML, or else the log,
    requests now; None if neither reports one. earlier: its Xids in each earlier boot. counted: as of KernelLog.
    """

    pci: str
    gpu: Gpu | None
    all: tuple[Xid, ...]
    recovery: str | None
    earlier: tuple[tuple[Xid, ...], ...] = ()
    counted: str = ""

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """Every code once, in order of first occurrence."""
        return tuple(dict.fromkeys(xid.code for xid in self.all))

    @cached_property
    def faults(self) -> tuple[int, ...]:
        """The codes without those that only follow from other Xids of this GPU."""
        alone = all(_follows(code) for code in self.codes)
        return tuple(code for code in self.codes if not _follows(code) or (alone and _follows(code) != "always"))

    @property
    def recovered(self) -> bool:
        """The log shows that the driver requested a recovery, and now it requests none."""
        return RECOVERY_CHANGED in self.codes and self.recovery == "none"

    def boots_with(self, codes: Collection[int]) -> int:
        """The number of earlier boots in which it reported any of these."""
        return sum(any(xid.code in codes for xid in boot) for boot in self.earlier)

    def came_back(self, codes: Collection[int]) -> bool:
        """Whether it reported one of these again in this boot after a reset: the driver no longer requested a recovery in
        between."""
        seen = False
        healed = False
        for xid in self.all:
            if xid.code in codes:
                if healed:
                    return True
                seen = True
            elif xid.code == RECOVERY_CHANGED and seen:
                healed = _asked(xid) == "none"
        return False

    @property
    def index(self) -> int | None:
        return self.gpu.index if self.gpu else None

    @property
    def gsp_firmware(self) -> str:
        """The release of the firmware that runs on the GPU's GSP, "" if unknown."""
        gpu = self.gpu
        return known(lambda: gpu.gsp_firmware) or "" if gpu else ""

    @property
    def name(self) -> str:
        return self.pci if self.gpu is None else f"GPU {self.gpu.index} ({self.pci})"

    def words(self, codes: Collection[int]) -> str:
        """A phrase with these Xids and the text of the first."""
        found = [xid for xid in self.all if xid.code in codes]
        numbers = ", ".join(str(code) for code in self.codes if code in codes)
        times = f", {self.counted}{len(found)} times" if len(found) > 1 else ""
        who = f", by {found[0].process}" if found[0].process else ""
        text = f": {found[0].text[:LONGEST_TEXT].rstrip('.')}" if found[0].text else ""
        return f"{self.name} reported Xid {numbers}{times}{who}{text}"

    def evidence(self, codes: Collection[int]) -> dict[str, Any]:
        first = next(xid for xid in self.all if xid.code in codes)
        changes = [xid.text for xid in self.all if xid.code == RECOVERY_CHANGED]
        earlier = self.boots_with(codes)
        values = {
            "address": f"{self.pci}.0",
            "xids": [code for code in self.codes if code in codes],
            "others": [code for code in self.codes if code not in codes],
            "count": sum(xid.code in codes for xid in self.all),
            "first": first.text,
            "seconds_after_boot": first.seconds,
            "process": first.process,
            "pid": first.pid,
            "recovery_change": changes[-1] if changes else None,
            "recovery_action": self.recovery,
            "earlier_boots": earlier or None,
            "gsp_firmware": self.gsp_firmware if FIRMWARE_ERRORS & set(codes) else None,
        }
        return {name: value for name, value in values.items() if value not in (None, [], "")}


def xids_by_gpu(facts: Facts) -> tuple[GpuXids, ...]:
    """The GPUs of this machine that reported any Xid; Unavailable if the kernel log cannot be read.

    A container sees the kernel log of its host: Xids of GPUs that it was not given are left out.
    """
    slots = dict.fromkeys(xid.pci for xid in facts.kernel_log.xids)
    return _known(facts, slots)


def past_xids_by_gpu(facts: Facts) -> tuple[GpuXids, ...]:
    """The GPUs that reported any Xid before the latest boot, with all of those Xids."""
    slots = dict.fromkeys(xid.pci for boot in facts.kernel_log.earlier_xids for xid in boot)
    past = (replace(gpu, all=tuple(xid for boot in gpu.earlier for xid in boot), recovery=None) for gpu in _known(facts, slots))
    return tuple(past)


def is_in_windows(facts: Facts) -> bool:
    """Whether the driver logs to Windows (WSL). A log without a machine is one of Linux."""
    try:
        return bool(facts.system.wsl)
    except Skip:
        return False


def _known(facts: Facts, slots: Iterable[str]) -> tuple[GpuXids, ...]:
    return tuple(gpu for gpu in (_of(facts, slot) for slot in slots) if gpu.gpu or not has_all_that_it_was_given(facts))


def has_all_that_it_was_given(facts: Facts) -> bool:
    """Whether this is a container in which NVML works with every GPU that has a node: any other GPU was not given to it."""
    try:
        gpus = facts.nvml.gpus
        if not (facts.system.is_container and gpus):
            return False
        return {f"/dev/nvidia{gpu.minor_number}" for gpu in gpus if _bus_id(gpu)} >= set(facts.devices.gpu_nodes)
    except Skip:  # unknown, so no GPU is left out
        return False


def needs_recovery(facts: Facts, gpu: Gpu) -> bool:
    """Whether the driver requests a recovery of this GPU, or the log has a fatal Xid without a later recovery."""
    recovery, codes = _recovery(gpu), xid_codes(facts, gpu)
    if recovery not in (None, "none"):
        return True
    return any(map(is_fatal, codes)) and not (RECOVERY_CHANGED in codes and recovery == "none")


def xid_codes(facts: Facts, gpu: Gpu) -> frozenset[int]:
    """The codes that a GPU reported; empty if they are unknown, so that other evidence of the same fault counts."""
    try:
        return frozenset(xid.code for xid in facts.kernel_log.xids if gpu.bus_id.startswith(xid.pci + "."))
    except Skip:
        return frozenset()


def log_span(facts: Facts) -> str:
    """How far back the log goes, in words."""
    if facts.kernel_log.complete:
        return "since the boot"
    return "in what is left of the kernel log, which no longer reaches back to the boot"


def has_lost_link(facts: Facts, gpu: Gpu) -> bool:
    """Whether the log reports that a link of this GPU failed, and nothing has restored it since."""
    return needs_recovery(facts, gpu) and not xid_codes(facts, gpu).isdisjoint(LINK_ERRORS)


def is_fatal(code: int) -> bool:
    row = knowledge.xid(code)
    return row is not None and row.severity == "fatal"


def _follows(code: int) -> str:
    row = knowledge.xid(code)
    return row.follows if row else ""


def _of(facts: Facts, slot: str) -> GpuXids:
    found = tuple(xid for xid in facts.kernel_log.xids if xid.pci == slot)
    earlier = tuple(tuple(xid for xid in boot if xid.pci == slot) for boot in facts.kernel_log.earlier_xids)
    gpu = _gpu_at(facts, slot)
    return GpuXids(slot, gpu, found, _recovery(gpu) if gpu else _asked_in_log(found), earlier, facts.kernel_log.counted)


def _asked_in_log(xids: Sequence[Xid]) -> str | None:
    """The last recovery that the driver requested."""
    changes = [xid for xid in xids if xid.code == RECOVERY_CHANGED]
    return _asked(changes[-1]) if changes else None


def _asked(change: Xid) -> str | None:
    """The recovery by NVML's name: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"."""
    match = _CHANGE.search(change.text)
    return RECOVERY_ACTIONS.get(int(match[1], 16)) if match else None


def _gpu_at(facts: Facts, slot: str) -> Gpu | None:
    try:
        gpus = facts.nvml.gpus
    except Skip:
        return None
    return next((gpu for gpu in gpus if _bus_id(gpu).startswith(slot + ".")), None)


def _bus_id(gpu: Gpu) -> str:
    try:
        return gpu.bus_id
    except Skip:  # a lost GPU has no such answer
        return ""


def _recovery(gpu: Gpu) -> str | None:
    return known(lambda: gpu.recovery_action)


def is_row_pending(gpu: Gpu) -> bool:
    """Whether a bad memory row will be replaced at the next reset; also False if NVML does not report it."""
    return known(lambda: gpu.remapped_rows.pending, False)
