"""The issue form of each project, in the order and with the headings of its template (read on 2026-11-21)."""

from __future__ import annotations

import html
import re
from typing import Any

from gpudoctor import quoting
from gpudoctor.facts import Facts
from gpudoctor.facts.overview import readable
from gpudoctor.model import Report, Snapshot
from gpudoctor.report import heading, markdown
from gpudoctor.report.tickets import sections
from gpudoctor.report.tickets.sections import Part, Section

Taken = Snapshot | None
DESCRIBE = "🐛 Describe the bug"
_BUG = "What happened, what you expected, and the smallest program that reproduces it, with the full traceback."
_WAYS_TO_INSTALL = "Wheel, Source, Conda-Forge, or Built from GitHub source"
_STEPS = "Step by step, from a fresh start; how often it happens; whether it worked before, and with which versions."


def github(report: Report, taken: Taken) -> tuple[Section, ...]:
    return (
        sections.to_fill_in("What happened", _BUG),
        sections.to_fill_in("To reproduce", _STEPS),
        sections.diagnosis(report),
        sections.of("Environment", sections.table(_environment(report))),
        sections.quoted("nvidia-smi", taken, "nvidia-smi"),
        sections.whole(report),
    )


def pytorch(report: Report, taken: Taken) -> tuple[Section, ...]:
    return (
        sections.to_fill_in(DESCRIBE, _BUG),
        sections.quoted("Versions", taken, "torch"),
        sections.diagnosis(report),
        sections.whole(report),
    )


def vllm(report: Report, taken: Taken) -> tuple[Section, ...]:
    is_only_torchs = taken and not quoting.said(taken.replies, "vllm") and quoting.said(taken.replies, "torch")
    return (
        sections.quoted("Your current environment", taken, "torch" if is_only_torchs else "vllm"),
        sections.to_fill_in(DESCRIBE, f"{_BUG} With VLLM_LOGGING_LEVEL=DEBUG; for a crash or a hang also VLLM_TRACE_FUNCTION=1."),
        sections.diagnosis(report),
        sections.whole(report),
    )


def nccl(report: Report, taken: Taken) -> tuple[Section, ...]:
    settings = (("NCCL settings", _nccl_settings(taken)),) if taken else ()
    platform: tuple[str | Part, ...] = (
        Part(sections.table((*_environment(report), *settings)), file="snapshot.json" if taken else "report.json"),
        *(sections.quotation(taken, name) for name in ("nvidia-smi", "topology", "infiniband")),
        "<!-- Does it depend on the number of ranks or nodes? -->\n",
    )
    return (
        sections.to_fill_in(
            "How is this issue impacting you?",
            "Choose one: Lower performance than expected, Application crash, Data corruption, or Application hang.",
        ),
        sections.to_fill_in(
            "Share Your Debug Logs",
            "Set NCCL_DEBUG=INFO NCCL_DEBUG_FILE=ncclDebug.%h.%p NCCL_TOPO_DUMP_FILE=ncclSystem.txt, run again, read the files "
            "for private names, and attach them.",
        ),
        sections.to_fill_in("Steps to Reproduce the Issue", _STEPS),
        sections.of("NCCL Version", markdown.text(_package(report, "nvidia-nccl") or "unknown") + "\n"),
        sections.of("Your platform details", *platform),
        sections.to_fill_in("Error Message & Behavior", "The first NCCL WARN of the log; what you expected instead."),
        sections.diagnosis(report),
        sections.whole(report),
    )


def cupy(report: Report, taken: Taken) -> tuple[Section, ...]:
    return (
        sections.to_fill_in("Description", _BUG),
        sections.to_fill_in("To Reproduce", _STEPS),
        sections.of("Installation", f"{markdown.text(_installed(report, 'cupy'))}\n\n<!-- Choose one: {_WAYS_TO_INSTALL}. -->\n"),
        sections.quoted("Environment", taken, "cupy"),
        sections.diagnosis(report),
        sections.whole(report),
    )


def toolkit(report: Report, taken: Taken) -> tuple[Section, ...]:
    rows = (
        ("`nvidia-container-toolkit` version", _toolkit(report, taken)),
        ("NVIDIA Driver Version", str(report.facts.get("driver_version") or "")),
        ("Host OS", _host_os(report, taken)),
        ("Kernel Version", str(report.target.get("kernel", ""))),
        ("Container Runtime Version", str(report.target.get("container_engine") or _engine(taken))),
        ("CPU Architecture", str(report.target.get("architecture", ""))),
        ("GPU Model(s)", heading.gpu_names(report)),
        ("CUDA Version", str(report.facts.get("cuda_driver_version") or "")),
    )
    kubernetes = (
        "<!-- With Kubernetes: its distribution and version, how the toolkit was installed (GPU Operator, its version) -->\n"
    )
    return (
        sections.to_fill_in("Describe the bug", _BUG),
        sections.to_fill_in("To Reproduce", _STEPS),
        sections.to_fill_in("Expected behavior", "What you expected instead."),
        sections.of("Environment", sections.listed(rows) + kubernetes),
        sections.of("Information to attach", sections.quotation(taken, "nvidia-smi"), _container_logs(taken)),
        sections.diagnosis(report),
        sections.whole(report),
    )


def _container_logs(taken: Taken) -> Part:
    """The engine's output if the container did not start; otherwise the reporter has it."""
    reply = taken.replies.get("container-start") if taken else None
    value = reply.value if reply and isinstance(reply.value, dict) else {}
    said = "\n".join(filter(None, (str(value.get(name) or "") for name in ("message", "entrypoint_failed"))))
    if said:
        summary = f"Output of <code>{html.escape(str(value.get('engine')))}</code>"
        return sections.fenced(summary, said, "raw/machine/…-container-start.json")
    return Part("Container logs:\n\n<!-- The output of `docker logs CONTAINER`, or of the tool that runs it. -->\n")


def driver(report: Report, taken: Taken) -> tuple[Section, ...]:
    return (
        sections.of("NVIDIA Open GPU Kernel Modules Version", markdown.text(_module(report)) + "\n"),
        sections.to_fill_in("Comparison with proprietary kernel module", "Does it happen there too? If you cannot try, say why."),
        sections.of("Operating System and Version", markdown.text(_host_os(report, taken) or "unknown") + "\n"),
        sections.of("Kernel Release", markdown.text(_uname(report, taken)) + "\n"),
        sections.to_fill_in(
            "Please confirm you are running a stable release kernel", "Tick: I am running on a stable kernel release."
        ),
        sections.of("Hardware: GPU", _gpus(report)),
        sections.to_fill_in("Describe the bug", _BUG),
        sections.to_fill_in("To Reproduce", _STEPS),
        sections.to_fill_in("Bug Incidence", "Choose one: Once, Sometimes, or Always."),
        sections.of(
            "nvidia-bug-report.log.gz",
            "<!-- Reports without this file will be closed. Run `sudo nvidia-bug-report.sh` after it happened, and attach the "
            "file. It names this machine, its users and its serial numbers: gpudoctor does not redact it. -->\n",
        ),
        sections.quoted("More Info", taken, "nvidia-smi"),
        sections.diagnosis(report),
        sections.whole(report),
    )


def _module(report: Report) -> str:
    facts = report.facts
    if not facts.get("driver_version"):
        return "no driver is loaded" if "driver_version" in facts else "unknown"
    kind = {True: "open", False: "proprietary"}.get(facts.get("driver_is_open"), "flavour unknown")  # type: ignore[arg-type]
    return f"{facts['driver_version']} ({kind})"


def _uname(report: Report, taken: Taken) -> str:
    """Like `uname -srvm`, as far as known."""
    reply = taken.replies.get("interpreter") if taken else None
    markers = reply.value.get("markers") if reply and isinstance(reply.value, dict) else None
    version = str(markers.get("platform_version", "")) if isinstance(markers, dict) else ""
    parts = ("Linux", str(report.target.get("kernel", "unknown")), version, str(report.target.get("architecture", "")))
    return " ".join(filter(None, parts))


def _gpus(report: Report) -> str:
    """Like `nvidia-smi -L`, on the one line that the field takes."""
    gpus = report.facts.get("gpus", ())
    lines = [f"GPU {gpu.get('index')}: {_named(gpu)}" for gpu in gpus]
    return markdown.text("; ".join(lines) or heading.gpus(report)) + "\n"


def _named(gpu: dict[str, Any]) -> str:
    name = gpu.get("name", "unknown model")
    return f"{name} (UUID: {gpu['uuid']})" if "uuid" in gpu else str(name)


def _nccl_settings(taken: Snapshot) -> str:
    """The settings of the environment and of NCCL's files."""
    known = readable({"settings": lambda: Facts(taken).environment.nccl})
    if "settings" not in known:
        return "unknown"
    found = sorted(known["settings"].items())
    return ", ".join(f"{name}={setting.value} ({setting.source})" for name, setting in found) or "none"


def _kind_of_machine(report: Report) -> str:
    if report.target.get("container"):
        return "a container"
    if "hypervisor" not in report.target:
        return "unknown"
    maker = report.target["hypervisor"]
    return f"a virtual machine ({maker})" if maker else "bare metal"


def _environment(report: Report) -> tuple[tuple[str, str], ...]:
    facts, target = report.facts, report.target
    packages = ", ".join(f"{name} {version}" for name, version in facts.get("packages", {}).items())
    return (
        *((("Image", heading.container(report)),) if heading.container(report) else ()),
        ("System", heading.system(report)),
        ("Runs on", _kind_of_machine(report)),
        ("Architecture", str(target.get("architecture", ""))),
        ("GPU", heading.gpus(report)),
        ("CUDA of the driver", str(facts.get("cuda_driver_version") or "")),
        ("Toolkits", ", ".join(facts.get("toolkits", {}).values()) or "none"),
        ("Python", heading.python(report)),
        ("Packages", packages or "no GPU packages"),
    )


def _package(report: Report, prefix: str) -> str:
    packages: dict[str, Any] = report.facts.get("packages", {})
    return ", ".join(f"{version} ({name})" for name, version in packages.items() if name.startswith(prefix))


def _installed(report: Report, prefix: str) -> str:
    packages: dict[str, Any] = report.facts.get("packages", {})
    names = [f"{name} {version}" for name, version in packages.items() if name.startswith(prefix)]
    wheels = [name for name in names if "-cuda" in name]
    return f"Wheel ({', '.join(wheels)})" if wheels else ", ".join(names) or "CuPy is not installed in this Python"


def _toolkit(report: Report, taken: Taken) -> str:
    """For a container that was examined from outside: the engine of its host."""
    if not taken:
        return ""
    replies = taken.host if _is_inside(report) else taken.replies
    reply = replies.get("command:nvidia-ctk --version")
    if reply and reply.status == "missing":
        return "not installed"
    value = reply.value if reply and reply.status == "ok" else None
    return str(value.get("out", "")).strip().partition("\n")[0] if isinstance(value, dict) else ""


def _is_inside(report: Report) -> bool:
    return bool(heading.container(report)) and report.target.get("kind") != "host"


def _host_os(report: Report, taken: Taken) -> str:
    """For a container that was examined from outside: that of its host."""
    if not _is_inside(report):
        return str(report.target.get("distribution", ""))
    reply = taken.host.get("file:/etc/os-release") if taken else None
    named = re.search(r'^PRETTY_NAME="?([^"\n]*)', str(reply.value), re.MULTILINE) if reply and reply.status == "ok" else None
    return named[1] if named else ""


def _engine(taken: Taken) -> str:
    reply = taken.replies.get("docker") if taken else None
    value = reply.value if reply and reply.status == "ok" else None
    version = value.get("version") if isinstance(value, dict) else None
    return f"Docker {version.get('Version', '')}" if isinstance(version, dict) else ""
