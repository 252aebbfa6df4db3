"""No GPU, firmware or link has reported an error (Xid) since boot.

What it means
When something goes wrong on a GPU, the driver writes a line with an Xid number into the kernel log. The number says what
failed: the bus (79), a link (74), the firmware (119, 120), the power controller (62), a hang (46, 109).

How it is judged
Reads the Xids of the kernel log, grouped by GPU and problem. Follow-up Xids (43, 45, 154) are never a cause: what came before
them is. After Xid 79 the other Xids of that GPU mean nothing; 119 and 120 follow from 62 and from one another. An Xid without
its own problem is judged by the action that NVIDIA lists for it. If the driver asked for a recovery action (154) and now asks
for none, the error is over and only warns. An error that comes back after a reset or in another boot is more serious. An
error seen only in an earlier boot of the log warns. Errors of programs and of memory have their own checks.

Known exceptions
Xids to be ignored and non-fatal errors of NVLink 5 are named only if a log is all there is. An error that a tool injected for a
test (i1 in the line) is named as such. Xid 74 together with a fatal NVSwitch error belongs to that switch. The kernel log is
often not readable for users, goes back only to the last boot, and under WSL it is in Windows.

References
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
https://docs.nvidia.com/health-validation/reference/checks/xid.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.xids import FALLEN_OFF, GpuXids, is_in_windows, log_span, past_xids_by_gpu, xids_by_gpu
from gpudoctor.fixes.common import ASK_OWNER, PHYSICAL, look, power_off, report_to_vendor, reset
from gpudoctor.judging.driver import external_gpus, history, nvlink5, nvlink_bridges, quiet_xids
from gpudoctor.judging.texts import circumstances
from gpudoctor.model import NEW_INITRAMFS, Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

CATALOG = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
ISSUES = "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/"

LOOK, LINKS = "nvidia-smi -i <address>", "nvidia-smi nvlink -s"
RESET = reset(verify=LOOK)
RESET_ALL = replace(RESET, title="Stop all GPU work, then reset all GPUs", command="sudo nvidia-smi --gpu-reset", verify=LINKS)
REBOOT = Fix("If the reset does not help or is refused: reboot", verify=LOOK, on=("host",), reboot=True)
POWER_OFF = power_off("If the GPU stays away after the reboot: switch off, wait, then switch on")
UPDATE = Fix("If it comes back: update the driver to the newest release of its branch", on=("host",))
REPORT = report_to_vendor("If it comes back: collect NVIDIA's report for vendor support")
HOST = ASK_OWNER


def problem(
    id: str,
    title: str,
    why: str,
    *fixes: Fix,
    action: Action = Action.RESET_GPU,
    status: Status = Status.FAIL,
    reference: str = "",
) -> Problem:
    return Problem(id, title, why, action, (*fixes, HOST), (CATALOG, *filter(None, [reference])), status)


NVLINK = problem(
    "xid-74-nvlink-error",
    "An NVLink failed (Xid 74, or 144 to 150)",
    "The link between two GPUs, or to an NVSwitch, was lost. Possible causes: its signal, its far end, the hardware.",
    RESET_ALL,
    replace(REBOOT, verify=LINKS),
    look(
        "If it comes back on the same link: reseat the bridge or board, or have it replaced", "nvidia-smi nvlink -e", on=PHYSICAL
    ),
)
OWN = {
    46: problem(
        "xid-46-gpu-timeout",
        "The GPU stopped processing (Xid 46)",
        "An engine of the GPU did not answer in time. It stays unusable until the GPU is reset.",
        RESET,
        REBOOT,
        REPORT,
        reference="https://docs.nvidia.com/health-validation/reference/checks/xid.md",
    ),
    54: problem(
        "xid-54-power-cable",
        "A GPU's power cable is not connected (Xid 54)",
        "Without auxiliary power the board runs with reduced clocks, if at all.",
        power_off(
            "Switch off, connect every power plug of the board (many server cards take an EPS plug, as CPUs do), switch on"
        ),
        action=Action.REPLACE_HARDWARE,
    ),
    61: problem(
        "xid-61-pmu-breakpoint",
        "The GPU's power controller stopped at a breakpoint (Xid 61)",
        "Clocks and fans may be stuck. This is known from GeForce cards on some mainboards when PCIe changes its power state.",
        replace(REBOOT, title="Reboot"),
        Fix(
            "If it comes back: keep the clocks up",
            "sudo nvidia-smi -i <address> -lgc 1000,9999",
            on=("host",),
            kind="set",
            needs=("root",),
            undo="sudo nvidia-smi -i <address> -rgc",
        ),
        Fix("If that helps: update the mainboard's firmware, or disable ASPM there", on=("host",)),
        action=Action.REBOOT,
        status=Status.WARN,
    ),
    62: problem(
        "xid-62-pmu-halt",
        "The GPU's power controller halted (Xid 62)",
        "Possible causes: hardware, heat, a driver bug, an NVLink error of a neighbouring GPU. Only a reset restarts it.",
        RESET,
        REBOOT,
        UPDATE,
        REPORT,
        reference=ISSUES + "1045",
    ),
    FALLEN_OFF: problem(
        "xid-79-fallen-off-bus",
        "A GPU has fallen off the bus (Xid 79)",
        "The driver cannot reach it over PCIe. Possible causes: heat, too little power, a loose card or plug, a failing board.",
        replace(REBOOT, title="Reboot"),
        POWER_OFF,
        Fix("If it comes back: reseat card and power plugs, update the mainboard's firmware, replace a weak PSU", on=PHYSICAL),
        Fix(
            "To find out whether power is the cause: limit the clocks",
            "sudo nvidia-smi -lgc 300,1500",
            on=("host",),
            kind="set",
            needs=("root",),
            undo="sudo nvidia-smi -rgc",
        ),
        action=Action.REBOOT,
        reference=ISSUES + "1151",
    ),
    109: problem(
        "xid-109-ctxsw-timeout",
        "A program hung on the GPU and could not be interrupted (Xid 109)",
        "The context switch timed out. The cause is a kernel that never ends or a driver bug, rarely the hardware.",
        RESET,
        REBOOT,
        UPDATE,
    ),
    119: problem(
        "xid-119-gsp-rpc-timeout",
        "The GPU's firmware processor stopped answering (Xid 119)",
        "The driver gets no answer from the GSP, so nvidia-smi hangs or shows ERR!. The cause is a firmware bug or a bad board.",
        RESET,
        REBOOT,
        UPDATE,
        Fix(
            "With the proprietary module, on GPUs before Blackwell: disable the GSP",
            f"echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf && {NEW_INITRAMFS}",
            verify="nvidia-smi -q | grep -i gsp",
            on=("host",),
            kind="set",
            reboot=True,
            undo=f"sudo rm /etc/modprobe.d/nvidia-gsp.conf && {NEW_INITRAMFS}",
        ),
        reference=ISSUES + "446",
    ),
    120: problem(
        "xid-120-gsp-error",
        "The GPU's firmware processor crashed (Xid 120)",
        "Code on the GSP raised an exception. The cause is a driver or firmware bug, or the hardware.",
        RESET,
        REBOOT,
        UPDATE,
        REPORT,
        reference=ISSUES + "876",
    ),
    143: problem(
        "xid-143-gpu-init-error",
        "A GPU failed to initialise (Xid 143)",
        "Its firmware or hardware did not start, so programs cannot use it.",
        replace(REBOOT, title="Reboot"),
        POWER_OFF,
        UPDATE,
        REPORT,
        action=Action.REBOOT,
    ),
}
NEEDS_RESET = problem(
    "xid-needs-gpu-reset",
    "A GPU reported an error that needs a reset",
    "NVIDIA's catalogue asks for a GPU reset after this Xid. Until then programs may fail or compute wrong results.",
    RESET,
    REBOOT,
    REPORT,
)
NEEDS_REBOOT = problem(
    "xid-needs-reboot",
    "A GPU reported an error that needs a reboot",
    "NVIDIA's catalogue asks for a reboot after this Xid. A GPU reset is not enough.",
    replace(REBOOT, title="Reboot"),
    REPORT,
    action=Action.REBOOT,
)
CONTACT_SUPPORT = problem(
    "xid-contact-support",
    "A GPU reported an unusual error",
    "NVIDIA's catalogue has no simple fix for this Xid, or does not list it.",
    replace(REPORT, title="Collect NVIDIA's report and send it to vendor support"),
    UPDATE,
    action=Action.WATCH,
    status=Status.WARN,
)
ALL = (*OWN.values(), NVLINK, NEEDS_RESET, NEEDS_REBOOT, CONTACT_SUPPORT, quiet_xids.INJECTED, quiet_xids.NOTHING_TO_DO)
PROBLEMS = {problem.id: problem for problem in ALL}
OVER = "; the driver no longer asks for a recovery action"
CAUSED_BY = {119: (62, 120), 120: (62, 119)}
NVLINK5 = range(144, 151)


def judge(facts: Facts) -> Iterator[Finding]:
    if is_in_windows(facts):
        raise Skip("under WSL, the driver's messages are in Windows")
    links: list[GpuXids] = []
    present: set[tuple[str, Problem]] = set()
    for gpu in xids_by_gpu(facts):
        for problem, codes in problems_of(gpu).items():
            present.add((gpu.pci, problem))
            if problem is NVLINK:
                links.append(gpu)
            else:
                finding = circumstances.told(found(external_gpus.of_cable(problem, facts, gpu), gpu, codes), facts)
                yield replace(finding, because=finding.because or facts.texts.alone * "blackwell-needs-open-module")
        if facts.texts.alone:
            yield from quiet_xids.need_no_action(gpu)
    yield from quiet_xids.injected(facts.kernel_log.injected_xids, facts.kernel_log.counted)
    if links and not any(sxid.is_fatal for sxid in facts.kernel_log.sxids):
        yield nvlink(facts, links)
    for past in past_xids_by_gpu(facts):
        for problem, codes in problems_of(past).items():
            if (past.pci, problem) not in present:
                before = history.before(problem, past, codes)
                yield before.problem.found(past.words(codes) + before.words, past.evidence(codes), past.index)


def problems_of(gpu: GpuXids) -> dict[Problem, list[int]]:
    """The problems of a GPU with their codes, without codes that follow from others."""
    codes = (FALLEN_OFF,) if FALLEN_OFF in gpu.codes else gpu.faults
    problems: dict[Problem, list[int]] = {}
    for place, code in enumerate(codes):
        problem = problem_of(code)
        if problem and not set(CAUSED_BY.get(code, ())) & set(codes[:place]) and not is_harmless_link_error(gpu, code):
            problems.setdefault(problem, []).append(code)
    return problems


def problem_of(code: int) -> Problem | None:
    """None for Xids that are judged elsewhere (memory, programs) or not at all."""
    known = knowledge.xid(code)
    return PROBLEMS.get(known.problem or "") if known else CONTACT_SUPPORT


def is_harmless_link_error(gpu: GpuXids, code: int) -> bool:
    if code not in NVLINK5 or gpu.recovery not in (None, "none"):
        return False
    return all("nonfatal" in xid.text.lower() for xid in gpu.all if xid.code == code)


def found(problem: Problem, gpu: GpuXids, codes: Sequence[int]) -> Finding:
    told, words = history.again(problem, gpu, codes)
    over = gpu.recovered and problem.status is Status.FAIL
    if over and not words:
        told, words = replace(problem, status=Status.WARN), OVER
    confidence = Confidence.UNKNOWN if problem is CONTACT_SUPPORT else Confidence.CONFIRMED
    return told.found(gpu.words(codes) + words, gpu.evidence(codes), gpu.index, confidence)


def nvlink(facts: Facts, gpus: list[GpuXids]) -> Finding:
    """One finding for all GPUs: both ends of a link report it."""
    first, *others = gpus
    if ends := nvlink_bridges.broken_at_both_ends(facts, gpus):
        return bridge(first, *ends)
    finding = nvlink5.told(found(NVLINK, first, list(problems_of(first)[NVLINK])), first)
    if not others:
        return finding
    names = ", ".join(gpu.name for gpu in others)
    return replace(finding, message=f"{finding.message}; also {names}", evidence={**finding.evidence, "also": names})


def bridge(gpu: GpuXids, links: tuple[int, ...], other: str) -> Finding:
    codes = list(problems_of(gpu)[NVLINK])
    ends = found(nvlink_bridges.of_bridge(NVLINK, " (Xid 74)"), gpu, codes)
    words = f"{nvlink_bridges.numbers(links)} failed at both ends, {gpu.name} and {other}, as Xid {codes[0]} reports"
    evidence = {**ends.evidence, "also": other, "links": list(links)}
    return replace(ends, message=words, evidence=evidence, gpu=None, confidence=Confidence.LIKELY)


def summary(facts: Facts) -> str:
    codes = sorted({xid.code for xid in facts.kernel_log.xids})
    if not codes:
        return f"no Xids {log_span(facts)}"
    return f"no bus, link or firmware errors {log_span(facts)}; other Xids: {', '.join(map(str, codes))}"


BUS = ("gpu-on-bus",)
CHECK = Check(judge=judge, summary=summary, problems=tuple(PROBLEMS.values()), needs=BUS, explained_by=BUS, tags=("hardware",))
