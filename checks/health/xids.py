"""No GPU, firmware or link has reported an error (Xid) since the boot.

What it means
When something goes wrong on a GPU, the driver writes a line with an Xid number into the kernel log, which says what it was:
the bus (79), a link (74), the firmware (119, 120), the power controller (62), a hang (46, 109).

How it is judged
The Xids of the kernel log, grouped by GPU and problem. Follow-ups (43, 45, 154) are never a cause: what came before them is.
After Xid 79 the others of that GPU mean nothing; 119 and 120 follow from 62 and from one another. Xids without a problem of
their own are judged by the action that NVIDIA names. Where the log shows that the driver asked for a recovery (154), and
now asks for none, the error is over and only warns. What comes back after a reset or in another boot is graver; what only an
earlier boot of the log had warns. Errors of programs and of memory have checks of their own.

Known exceptions
Xids that NVIDIA marks as unused or to be ignored, and non-fatal errors of NVLink 5, are no finding. Xid 74 beside a fatal
error of an NVSwitch is that switch's. The log is often closed to users, ends at the last boot, and under WSL is in Windows.

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
from gpudoctor.fixes.common import ASK_OWNER, look, power_off, report_to_vendor, reset
from gpudoctor.judging.driver import history, nvlink_bridges
from gpudoctor.model import NEW_INITRAMFS, Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

CATALOG = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
ISSUES = "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/"

LOOK, LINKS = "nvidia-smi -i <address>", "nvidia-smi nvlink -s"
RESET = reset(verify=LOOK)
RESET_ALL = replace(RESET, title="Stop all GPU work, then reset all GPUs", command="sudo nvidia-smi --gpu-reset", verify=LINKS)
REBOOT = Fix("Where that does not help or is refused: reboot", verify=LOOK, on=("host",), reboot=True)
POWER_OFF = power_off("Switch off, wait, switch on: a warm reboot may not be enough")
UPDATE = Fix("If it comes back: update the driver to the newest release of its branch", on=("host",))
REPORT = report_to_vendor("If it comes back: collect NVIDIA's report for the vendor's support")
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
    "The link between two GPUs, or to an NVSwitch, broke off: its signal, its far end, or the hardware.",
    RESET_ALL,
    replace(REBOOT, verify=LINKS),
    look("If it comes back on the same link: reseat bridge or board, or have it replaced", "nvidia-smi nvlink -e", on=("host",)),
)
OWN = {
    46: problem(
        "xid-46-gpu-timeout",
        "The GPU stopped processing (Xid 46)",
        "An engine of the GPU did not answer in time, and stays unusable until it is reset.",
        RESET,
        REBOOT,
        REPORT,
        reference="https://docs.nvidia.com/health-validation/reference/checks/xid.md",
    ),
    54: problem(
        "xid-54-power-cable",
        "The power cable of a GPU is not connected (Xid 54)",
        "Without its auxiliary power the board runs with reduced clocks, if at all.",
        power_off(
            "Switch off, connect every power plug of the board (many cards for servers take an EPS plug, as CPUs do), switch on"
        ),
        action=Action.REPLACE_HARDWARE,
    ),
    61: problem(
        "xid-61-pmu-breakpoint",
        "The GPU's power controller stopped at a breakpoint (Xid 61)",
        "Clocks and fans may be stuck. Known from GeForce cards on some mainboards when PCIe changes its power state.",
        replace(REBOOT, title="Reboot"),
        Fix(
            "If it comes back: keep the clocks up",
            "sudo nvidia-smi -i <address> -lgc 1000,9999",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix("If that helps: update the mainboard's firmware, or switch ASPM off there", on=("host",)),
        action=Action.REBOOT,
        status=Status.WARN,
    ),
    62: problem(
        "xid-62-pmu-halt",
        "The GPU's power controller halted (Xid 62)",
        "Hardware, heat or a driver bug; an NVLink error of a neighbour can cause it. Only a reset starts it again.",
        RESET,
        REBOOT,
        UPDATE,
        REPORT,
        reference=ISSUES + "1045",
    ),
    FALLEN_OFF: problem(
        "xid-79-fallen-off-bus",
        "A GPU has fallen off the bus (Xid 79)",
        "The driver cannot reach it over PCIe: too hot, too little power, a loose card, riser or power plug, or a dying board.",
        POWER_OFF,
        Fix("If it comes back: reseat card and power plugs, update the mainboard's firmware, replace a weak PSU", on=("host",)),
        Fix(
            "To find out whether power is the cause: limit the clocks",
            "sudo nvidia-smi -lgc 300,1500",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        action=Action.REBOOT,
        reference=ISSUES + "1151",
    ),
    109: problem(
        "xid-109-ctxsw-timeout",
        "A program hung on the GPU and could not be interrupted (Xid 109)",
        "The context switch timed out: an endless kernel, a driver bug, rarely the hardware.",
        RESET,
        REBOOT,
        UPDATE,
    ),
    119: problem(
        "xid-119-gsp-rpc-timeout",
        "The GPU's firmware processor stopped answering (Xid 119)",
        "The driver gets no answer from the GSP, so nvidia-smi hangs or shows ERR!. A bug of the firmware, or a dying board.",
        RESET,
        REBOOT,
        UPDATE,
        Fix(
            "Proprietary module, older than Blackwell: run without the GSP",
            f"echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf && {NEW_INITRAMFS}",
            verify="nvidia-smi -q | grep -i gsp",
            on=("host",),
            kind="set",
            reboot=True,
        ),
        reference=ISSUES + "446",
    ),
    120: problem(
        "xid-120-gsp-error",
        "The GPU's firmware processor crashed (Xid 120)",
        "Code on the GSP raised an exception: a bug of driver or firmware, or the hardware.",
        RESET,
        REBOOT,
        UPDATE,
        REPORT,
        reference=ISSUES + "876",
    ),
    143: problem(
        "xid-143-gpu-init-error",
        "A GPU failed to initialise (Xid 143)",
        "Its firmware or hardware did not come up, so programs cannot use it.",
        POWER_OFF,
        UPDATE,
        REPORT,
        action=Action.REBOOT,
    ),
}
NEEDS_RESET = problem(
    "xid-needs-gpu-reset",
    "A GPU reported an error that needs a reset",
    "NVIDIA's catalogue asks for a reset of the GPU after this Xid; until then programs may fail or compute wrongly.",
    RESET,
    REBOOT,
    REPORT,
)
NEEDS_REBOOT = problem(
    "xid-needs-reboot",
    "A GPU reported an error that needs a reboot",
    "NVIDIA's catalogue asks to restart the machine after this Xid; a reset of the GPU is not enough.",
    replace(REBOOT, title="Reboot"),
    REPORT,
    action=Action.REBOOT,
)
CONTACT_SUPPORT = problem(
    "xid-contact-support",
    "A GPU reported an unusual error",
    "NVIDIA's catalogue has no simple way out for this Xid, or does not list it.",
    replace(REPORT, title="Collect NVIDIA's report and send it to the vendor's support"),
    UPDATE,
    action=Action.WATCH,
    status=Status.WARN,
)
PROBLEMS = {problem.id: problem for problem in (*OWN.values(), NVLINK, NEEDS_RESET, NEEDS_REBOOT, CONTACT_SUPPORT)}
OVER = "; the driver asks for no recovery any more"
CAUSED_BY = {119: (62, 120), 120: (62, 119)}
NVLINK5 = range(144, 151)


def judge(facts: Facts) -> Iterator[Finding]:
    if is_in_windows(facts):
        raise Skip("under WSL the driver's messages are in Windows")
    links: list[GpuXids] = []
    present: set[tuple[str, Problem]] = set()
    for gpu in xids_by_gpu(facts):
        for problem, codes in problems_of(gpu).items():
            present.add((gpu.pci, problem))
            if problem is NVLINK:
                links.append(gpu)
            else:
                yield found(problem, gpu, codes)
    if links and not any(sxid.is_fatal for sxid in facts.kernel_log.sxids):
        yield nvlink(facts, links)
    for past in past_xids_by_gpu(facts):
        for problem, codes in problems_of(past).items():
            if (past.pci, problem) not in present:
                told = history.before(problem, past, codes)
                yield told.problem.found(past.words(codes) + told.words, past.evidence(codes), past.index)


def problems_of(gpu: GpuXids) -> dict[Problem, list[int]]:
    """Every problem of a GPU with its codes, without those that follow from others."""
    codes = (FALLEN_OFF,) if FALLEN_OFF in gpu.codes else gpu.faults
    problems: dict[Problem, list[int]] = {}
    for place, code in enumerate(codes):
        problem = problem_of(code)
        if problem and not set(CAUSED_BY.get(code, ())) & set(codes[:place]) and not is_harmless_link_error(gpu, code):
            problems.setdefault(problem, []).append(code)
    return problems


def problem_of(code: int) -> Problem | None:
    """None for what is judged elsewhere (memory, programs) or not at all."""
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
    finding = found(NVLINK, first, list(problems_of(first)[NVLINK]))
    if not others:
        return finding
    names = ", ".join(gpu.name for gpu in others)
    return replace(finding, message=f"{finding.message}; also {names}", evidence={**finding.evidence, "also": names})


def bridge(gpu: GpuXids, links: tuple[int, ...], other: str) -> Finding:
    codes = list(problems_of(gpu)[NVLINK])
    ends = found(nvlink_bridges.of_bridge(NVLINK, " (Xid 74)"), gpu, codes)
    words = f"{nvlink_bridges.numbers(links)} broke off at both ends, {gpu.name} and {other}, as Xid {codes[0]} reports"
    evidence = {**ends.evidence, "also": other, "links": list(links)}
    return replace(ends, message=words, evidence=evidence, gpu=None, confidence=Confidence.LIKELY)


def summary(facts: Facts) -> str:
    codes = sorted({xid.code for xid in facts.kernel_log.xids})
    if not codes:
        return f"no Xid {log_span(facts)}"
    return f"no error of bus, links or firmware {log_span(facts)}; other Xids: {', '.join(map(str, codes))}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=tuple(PROBLEMS.values()),
    needs=("gpu-on-bus",),
    explained_by=("gpu-on-bus",),
)
