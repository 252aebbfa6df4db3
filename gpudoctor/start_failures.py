"""Why a container did not start: link by link, from the docker command's context to the image's requirements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpudoctor import catalog, doctor
from gpudoctor.collect import collect
from gpudoctor.errors import UserError, WorkError
from gpudoctor.facts.container_start import Start
from gpudoctor.interpreter import this_interpreter
from gpudoctor.judging.containers import failed_start
from gpudoctor.judging.containers.causes import DRIVER_CHECKS
from gpudoctor.judging.containers.toolkit import RULES_REFUSED
from gpudoctor.knowledge import messages
from gpudoctor.model import SNAPSHOT_SCHEMA, Diagnosis, Reply, Report, Result, Skip, Snapshot, Status
from gpudoctor.plain import plain
from gpudoctor.report import findings, words
from gpudoctor.report.layout import Page
from gpudoctor.version import __version__

__all__ = ["Start", "explain", "judge", "text"]

SECONDS = 15.0  # for all questions to this host; most take less than one, except on a loaded machine
START = "container-start"
MOST_FIXES = 3
PAGE = Page(80, verbose=False)

# The chain: the name of each link, and the checks that examine it. Links after a broken one are not examined.
LINKS: dict[str, tuple[str, ...]] = {
    "driver": DRIVER_CHECKS,
    "context": ("docker-context",),
    "daemon, daemon.json": ("docker-daemon",),
    "runtime": ("container-runtime",),
    "hook": ("container-toolkit",),
    "CDI": ("container-cdi",),
    "cgroups": ("container-cgroups",),
    "SELinux, user namespaces": ("container-isolation",),
}
OF_PODMAN = ("driver", "CDI", "SELinux, user namespaces")  # Podman has no daemon and no choice of runtime
# Links of problems that show only when a container is started.
LINK_OF = {
    "container-host-driver-not-loaded": "driver",
    "container-driver-libraries-not-found": "driver",
    RULES_REFUSED.id: "hook",
    "docker-daemon-unreachable": "daemon, daemon.json",
    "docker-socket-denied": "daemon, daemon.json",
    "docker-selects-no-gpu-driver": "runtime",
    "nvidia-hook-missing": "runtime",
    "container-cli-ldconfig-fails": "hook",
    "cdi-device-unresolvable": "CDI",
    "cdi-device-unknown": "CDI",
    "cdi-hook-failed": "CDI",
    "cdi-hook-missing": "CDI",
    "cdi-names-no-gpu-vendor": "CDI",
    "runtime-cdi-specification-failed": "CDI",
    "nvidia-visible-devices-refused": "hook",
    "engine-too-old-for-cdi": "CDI",
    "container-lost-gpu-access": "cgroups",
}
OF_THE_IMAGE = {
    "container-requires-newer-driver": "NVIDIA_REQUIRE_CUDA of the image",
    "image-holds-driver-files": "the image",
    "container-gpu-unknown": "the requested GPU",
    "container-gpus-misquoted": "the GPU request",
    "container-nvidia-smi-not-brought-in": "the GPU request",
    "container-no-gpus-flag": "the GPU request",
}
# Tables of messages whose problems all belong to one link, or are not about GPUs.
LINK_OF_TABLE = {"engine_driver": "driver", "engine_hooks": "hook"}
NOT_ABOUT_GPUS = ("engine_daemons", "engine_networks", "engine_hosts", "engine_commands", "engine_fields")


def explain(start: Start) -> Report:
    """Collects replies from this host, which takes about a second, and judges the chain."""
    try:
        taken = collect(this_interpreter(), SECONDS, {}, lambda names: None)
    except (UserError, WorkError):  # the engine's message alone is still useful
        taken = Snapshot(SNAPSHOT_SCHEMA, __version__, "", {})
    reply = Reply("ok", {**vars(start), "arguments": list(start.arguments)})
    return judge(replace(taken, replies={**taken.replies, START: reply}))


def judge(taken: Snapshot) -> Report:
    """The verdict of the checks in the chain only."""
    chain = [check for checks in LINKS.values() for check in checks]
    return doctor.judge(taken, doctor.select(catalog.checks(), "quick", only=(*chain, START)))


def text(report: Report) -> str:
    """For a terminal of 80 columns: the engine's message, the links that passed, the first broken link and its fix."""
    return "\n".join(_lines(report)) + "\n"


def diagnosis(report: Report) -> Diagnosis | None:
    """The broken link. Other problems of this host did not keep the container from starting."""
    return next((entry for entry in report.diagnosis if START in (entry.check, *entry.explains)), None)


def _lines(report: Report) -> Iterator[str]:
    entry = diagnosis(report)
    if entry is None:
        yield "The container started."
        return
    said = _said(report, entry)
    engine, image = str(report.target.get("container_engine", "The engine")), report.target.get("image") or "the container"
    yield from PAGE.wrap(f"{engine[:1].upper()}{engine[1:]} did not start {image}. Its message:")
    yield from PAGE.wrap(said, "  ", "  ")
    yield ""
    yield from _way(report, entry)
    yield from PAGE.wrap(entry.title, "  ", "  ")
    yield from _if_any("Seen: ", entry.message.removeprefix(said).removeprefix(": "))
    yield from _if_any("", findings.doubt(entry))
    yield from _if_any("Also found on this host: ", findings.value(entry.evidence.get("also_found", ())))
    meaning = failed_start.recognised(said)
    if meaning and meaning.problem != entry.problem:
        yield from _if_any("The engine's message means: ", failed_start.problems()[meaning.problem].title)
    yield from _if_any("Why: ", entry.why)
    yield from _fixes(entry)


def _said(report: Report, entry: Diagnosis) -> str:
    """The engine's message, with which the row of container-start begins."""
    message = next(result.message for result in report.checks if result.id == START)
    return str(entry.evidence.get("engine_said") or message.removesuffix(f": {entry.message}"))


def _way(report: Report, entry: Diagnosis) -> Iterator[str]:
    """The links in the order of the chain: those that passed, those that could not be checked, and the broken one."""
    if entry.problem not in LINK_OF and any(entry.problem == message.problem for message in _not_about_gpus()):
        yield "This is not related to the GPU:"
        return
    broken = _link(entry)
    if elsewhere := _elsewhere(report):
        yield from _if_any("Not checked: ", f"{elsewhere}, with its driver and toolkit", "")
        yield f"Broken: {broken}" if broken else "Broken: unknown"
        return
    chain = OF_PODMAN if _is_podman(report) else tuple(LINKS)
    before = chain[: chain.index(broken)] if broken in chain else chain
    rows = {name: [result for result in report.checks if result.id in LINKS[name]] for name in before}
    fine = [name for name, results in rows.items() if _is_fine(results)]
    hidden = {name: why for name, results in rows.items() if name not in fine and (why := _hidden(results))}
    yield from _if_any("OK: ", ", ".join(fine), "")
    yield from _if_any("Not checked: ", "; ".join(f"{name} ({why})" for name, why in hidden.items()), "")
    yield f"Broken: {broken}" if broken else "Broken: unknown"


def _not_about_gpus() -> Iterator[messages.Message]:
    return (message for topic in NOT_ABOUT_GPUS for message in messages.table(topic).messages)


def _is_podman(report: Report) -> bool:
    return str(report.target.get("container_engine", "")).startswith("podman")


def _elsewhere(report: Report) -> str:
    """The message that Docker's daemon is on another machine, which cannot be examined; "" if it is on this one."""
    if _is_podman(report):
        return ""
    daemon = next(result for result in report.checks if result.id == "docker-daemon")
    return daemon.message if daemon.status is Status.SKIP and daemon.reason == Skip.UNSUPPORTED else ""


def _is_fine(results: Sequence[Result]) -> bool:
    statuses = {result.status for result in results}
    return Status.PASS in statuses and statuses <= {Status.PASS, Status.SKIP}


def _hidden(results: Sequence[Result]) -> str:
    """Why none of a link's checks could run; "" if they do not apply."""
    skipped = (result for result in results if result.status is Status.SKIP and result.reason != Skip.NOT_APPLICABLE)
    return next((result.message for result in skipped), "")


def _link(entry: Diagnosis) -> str:
    """The name of the broken link; "" if unknown."""
    checks = catalog.checks()
    for name, ids in LINKS.items():
        if entry.check in ids or any(entry.problem == problem.id for id in ids for problem in checks[id].problems):
            return name
    of_tables = {problem.id: link for topic, link in LINK_OF_TABLE.items() for problem in messages.table(topic).problems}
    return LINK_OF.get(entry.problem) or OF_THE_IMAGE.get(entry.problem) or of_tables.get(entry.problem, "")


def _if_any(first: str, said: str, indent: str = "  ") -> Iterator[str]:
    if said and said != "none":
        yield from PAGE.wrap(said, f"{indent}{first}", "  ")


def _fixes(entry: Diagnosis) -> Iterator[str]:
    for number, fix in enumerate(entry.fixes[:MOST_FIXES]):
        terms = f" ({words.terms(fix)})" if words.terms(fix) else ""
        yield ""
        yield from PAGE.wrap(fix.title + terms, "Or: " if number else "Fix: ", "  ")
        yield from (f"    {plain(line)}" for line in fix.command.splitlines())
    verify = next((fix.verify for fix in entry.fixes if fix.verify), "")
    if verify:
        yield from ("", "Check that it worked:", f"    {plain(verify)}")
    yield from ("", f"More: gpudoctor explain {entry.problem}")
