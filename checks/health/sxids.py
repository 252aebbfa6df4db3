"""No NVSwitch has reported an error (SXid) since boot.

What it means
On boards with NVSwitches, all traffic between the GPUs goes through the switches. A switch reports its errors in the kernel
log as SXids. After a fatal one its links are down, and every job that uses several GPUs fails.

How it is judged
Reads the SXid lines of the kernel log, one finding for each switch. A line marked Fatal fails. A line marked Non-fatal warns
if NVIDIA's Fabric Manager guide or driver lists the code as always or potentially fatal. An error that comes back in another
boot is more serious. An error seen only in an earlier boot of the log warns.

Known exceptions
Corrected errors and single link errors (11012, 20009 and similar) are not reported. Xid 74 of the GPUs that follows is part
of the same fault. A virtual machine does not see the switches of its host.

References
https://github.com/leptonai/gpud/blob/4a8de33/components/accelerator/nvidia/sxid/sxid.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.kernel_log import Sxid
from gpudoctor.facts.known import known
from gpudoctor.facts.xids import is_in_windows, log_span, xids_by_gpu
from gpudoctor.fixes.common import ASK_OWNER, kernel_log, report_to_vendor
from gpudoctor.judging.driver import history
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

LINK = re.compile(r"on link (\d+)")
REFERENCES = ("https://github.com/leptonai/gpud/blob/4a8de33/components/accelerator/nvidia/sxid/sxid.go",)
REPORT = report_to_vendor("If it comes back: collect NVIDIA's report for vendor support")
HOST = ASK_OWNER

EITHER_END = (
    "The GPU at the other end of the link reports it, too: either of the two, or the board between them, can be at fault."
)
FATAL = Problem(
    id="nvswitch-error",
    title="An NVSwitch reported a fatal error",
    why="The switch stopped some links or all of its traffic. Jobs on several GPUs fail or hang until the board is reset.",
    action=Action.REBOOT,
    fixes=(
        Fix("Reboot to reset all GPUs and switches together", verify="nvidia-smi nvlink -s", on=("host",), reboot=True),
        REPORT,
        HOST,
    ),
    references=REFERENCES,
)
NON_FATAL = Problem(
    id="nvswitch-nonfatal-error",
    title="An NVSwitch reported an error that can become fatal",
    why="The switch is still running, but NVIDIA lists this error among those that can stop links.",
    action=Action.WATCH,
    fixes=(
        kernel_log("Watch for more of these errors", "SXid", on=("host",)),
        Fix("When convenient: reboot", verify="nvidia-smi nvlink -s", on=("host",), reboot=True),
        REPORT,
        HOST,
    ),
    references=REFERENCES,
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    if is_in_windows(facts):
        raise Skip("under WSL, the driver's messages are in Windows")
    sxids = read(facts)
    switches = list(dict.fromkeys(sxid.pci for sxid in sxids))
    for pci in switches:
        yield from judge_switch(facts, [sxid for sxid in sxids if sxid.pci == pci])
    yield from judge_past(facts, switches)


def read(facts: Facts) -> tuple[Sxid, ...]:
    """The SXids of the log; an unreadable log skips the check only if there is an NVSwitch."""
    try:
        sxids = facts.kernel_log.sxids
    except Skip:
        if facts.pci.nvswitches:
            raise
        sxids = ()
    if not (sxids or has_past(facts) or facts.pci.nvswitches):
        raise Skip("no NVSwitch found on the PCI bus")
    return sxids


def has_past(facts: Facts) -> bool:
    return known(lambda: any(facts.kernel_log.earlier_sxids), False)


def judge_switch(facts: Facts, sxids: list[Sxid]) -> Iterator[Finding]:
    fatal = [sxid for sxid in sxids if sxid.is_fatal]
    risky = [sxid for sxid in sxids if is_risky(sxid.code)]
    if fatal:
        ends = other_ends(facts)
        boots = sum(any(is_same(sxid, fatal) for sxid in boot) for boot in facts.kernel_log.earlier_sxids)
        problem, again = history.of_switch(FATAL, boots)
        message = words(fatal, facts.kernel_log.counted) + again + (f"; the other end: {'; '.join(ends)}" if ends else "")
        problem = replace(problem, why=f"{problem.why} {EITHER_END}") if ends else problem
        yield problem.found(message, {**evidence(fatal), **({"other_ends": ends} if ends else {})})
    elif risky:
        yield NON_FATAL.found(words(risky, facts.kernel_log.counted), evidence(risky))


def is_same(sxid: Sxid, others: list[Sxid]) -> bool:
    return sxid.is_fatal and any((sxid.pci, sxid.code) == (other.pci, other.code) for other in others)


def judge_past(facts: Facts, switches: list[str]) -> Iterator[Finding]:
    """Fatal errors in earlier boots, for switches that report nothing now."""
    past = [sxid for boot in facts.kernel_log.earlier_sxids for sxid in boot] if has_past(facts) else []
    for pci in dict.fromkeys(sxid.pci for sxid in past if sxid.is_fatal and sxid.pci not in switches):
        fatal = [sxid for sxid in past if sxid.pci == pci and sxid.is_fatal]
        message = f"{words(fatal, facts.kernel_log.counted)}; this was before the last boot and has not come back since"
        yield replace(FATAL, action=Action.WATCH, status=Status.WARN).found(message, evidence(fatal))


def other_ends(facts: Facts) -> list[str]:
    """The GPUs that reported a lost link, with the link; if none did, those with a link that NVML reports as down."""
    lost = {gpu.name: [LINK.search(xid.text) for xid in gpu.all if xid.code == 74] for gpu in xids_by_gpu(facts)}
    reported = {name: sorted({int(match[1]) for match in matches if match}) for name, matches in lost.items() if matches}
    is_down = down(facts)
    lost_links = reported or is_down
    xid = " (Xid 74)" if reported else ""
    return [
        ", link ".join(filter(None, (name, ", ".join(map(str, numbers))))) + xid + counted(facts, name)
        for name, numbers in lost_links.items()
    ]


def counted(facts: Facts, name: str) -> str:
    """How many links of a GPU are up, if some are not."""
    links = known(lambda: next(gpu.nvlinks for gpu in facts.nvml.reachable.values() if name_of(gpu) == name), ())
    active = sum(link.active for link in links)
    return f", {active} of {len(links)} links up" if active < len(links) else ""


def name_of(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.bus_id.rpartition('.')[0] or gpu.bus_id})"


def down(facts: Facts) -> dict[str, list[int]]:
    found = {}
    try:
        for gpu in facts.nvml.reachable.values():
            found[f"GPU {gpu.index} ({gpu.bus_id})"] = [link.link for link in gpu.nvlinks if not link.active]
    except Skip:
        pass
    return {name: links for name, links in found.items() if links}


def is_risky(code: int) -> bool:
    row = knowledge.sxid(code)
    return row is not None and row.is_risky


def words(sxids: list[Sxid], counted: str) -> str:
    codes = ", ".join(map(str, dict.fromkeys(sxid.code for sxid in sxids)))
    times = f", {counted}{len(sxids)} times" if len(sxids) > 1 else ""
    return f"NVSwitch {sxids[0].pci} reported SXid {codes}{times}: {sxids[0].text}"


def evidence(sxids: list[Sxid]) -> dict[str, object]:
    links = sorted({sxid.link for sxid in sxids if sxid.link is not None})
    codes = list(dict.fromkeys(sxid.code for sxid in sxids))
    return {"switch": sxids[0].pci, "sxids": codes, "count": len(sxids), "links": links, "first": sxids[0].text}


def summary(facts: Facts) -> str:
    return f"no serious SXids {log_span(facts)} from {len(facts.pci.nvswitches)} NVSwitches"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FATAL, NON_FATAL),
    needs=("gpu-on-bus",),
    tags=("hardware", "multi-gpu"),
)
