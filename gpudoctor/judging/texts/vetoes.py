"""What a text shows decides between the possible causes of its messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.calm import complains
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.texts import circumstances
from gpudoctor.judging.texts.blocked import by_firewall
from gpudoctor.judging.texts.causes import OF_MODULE
from gpudoctor.judging.texts.forced import by_variable
from gpudoctor.judging.texts.named import with_cause, with_ways_there
from gpudoctor.judging.texts.rules.elsewhere import for_guest, with_driver
from gpudoctor.judging.texts.rules.said import passages, with_ways_of_wsl
from gpudoctor.model import Confidence, Finding

ENOUGH_SHARED_MEMORY = 1 << 30  # bytes, free
SYMPTOMS = ("framework-sees-no-gpu", "cuda-out-of-memory", "k8s-no-free-gpu", "disk-full", "program-raised-error")
"""Problems that a message names for want of a cause: what contradicts in the same text explains them."""
OF_VISIBILITY = (
    *("gpu-on-bus", "kernel-module", "adapter-init", "device-nodes", "nvml", "gpu-count", "cuda-library", "cuda-init"),
    *("container-gpu-access", "compute-mode", "mig"),
)
"""Checks whose failures explain that a program sees no GPU."""

_QUOTED = re.compile(r">>(?:>{2,})? ?(?!>)")  # three are a prompt of Python
_SOLVED = re.compile(
    r"""
    ^[ \t\#*>\[(]{0,8}(?:(?:edit|update)[ \t]{0,2}\d{0,2}[ \t:!.*-]{0,6})?(?:solved|resolved|fixed)\b
    | \b(?:reboot|restart|power\ cycle|reinstall)\w*\ (?:has\ )?(?:fixed|solved|resolved|helped)\b
    | \b(?:fixed|solved|resolved)\ (?:the|my|this)\ (?:problem|issue|error)\b
    | \bnothing\ is\ (?:broken|wrong)\ any\ ?more\b | \breturned\ to\ service\b | \bdid\ the\ trick\b | \bvoil[aà]\b
    | \b(?:has|have)(?:n['’]t|\ not)\ (?:happened|occurred|come\ back)\ (?:again|since)\b
    | (?<!not\ )(?<!n't\ )\b(?:all\ good|works?(?:\ fine)?|working)\ (?:now|again)\b
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)

_UNTIL = re.compile(r"\b(?:before|until|till|unless)\b", re.IGNORECASE)

LIMITS = ("memlock-limited", "shm-too-small-for-dataloaders", "nccl-shm-no-space")
OF_NO_DRIVER = ("nvml-library-missing", "kernel-module-not-loaded", "no-driver-found", "nvidia-smi-command-not-found")


def weighed(finding: Finding, shown: tuple[str, ...], facts: Facts) -> Finding:
    """A message's finding, explained by what the outputs of the text show, without the causes that they exclude."""
    finding = _in_wsl(finding, facts)
    finding = _closer(finding, facts) if facts.texts.alone else finding
    if finding.problem.id == "host-memory-exhausted" and facts.texts.alone:
        finding = replace(finding, problem=with_ways_of_wsl(finding.problem, facts))
    explains = OF_VISIBILITY if finding.problem.id == "framework-sees-no-gpu" else ()
    finding = replace(finding, causes=(*finding.causes, *explains))
    if finding.problem.id in SYMPTOMS or _is_notebook(finding, facts) or finding.confidence is Confidence.UNKNOWN:
        finding = replace(finding, causes=(*finding.causes, *(id for id in shown if id != finding.problem.id)))
    if not facts.texts.alone or not finding.evidence.get("could_be"):
        return finding
    return _without(
        finding, {id: fact for id in (finding.problem.id, *finding.evidence["could_be"]) if (fact := veto(id, facts))}, facts
    )


def _closer(finding: Finding, facts: Facts) -> Finding:
    """With the cause and the ways that other words of the text point to."""
    finding = with_driver(for_guest(with_ways_there(with_cause(finding, facts), facts), facts), facts)
    return by_firewall(by_variable(circumstances.told(finding, facts), facts), facts)


def is_over(finding: Finding, facts: Facts) -> bool:
    """Whether the message is of an earlier time, by its quotes or the words around it, and the outputs show the opposite."""
    if facts.texts.alone and finding.problem.id in OF_NO_DRIVER and _are_reserved(facts):
        return True
    if not facts.texts.alone or not veto(finding.problem.id, facts):
        return False
    if finding.problem.id in LIMITS:  # raising it would change nothing
        return True
    return bool(_QUOTED.match(finding.evidence.get("said", ""))) or is_solved(facts)


def is_solved(facts: Facts) -> bool:
    """Whether the words of the text say that the trouble is over."""
    return any(_says_solved(text) or _ends_as_expected(text) for text in passages(facts))


def _says_solved(text: str) -> bool:
    return any(not _is_hoped(text, match.start()) for match in _SOLVED.finditer(text))


def _is_hoped(text: str, start: int) -> bool:
    """Whether the sentence names a condition, as in: I have to unplug it before it works again."""
    begins = max(text.rfind("\n", 0, start), text.rfind(". ", 0, start), 0)
    return bool(_UNTIL.search(text, begins, start))


def _ends_as_expected(text: str) -> bool:
    """Nothing that comes later complains."""
    _, as_expected, after = text.rpartition("as expected")
    return bool(as_expected) and not complains(after)


def _are_reserved(facts: Facts) -> bool:
    """Whether lspci shows that vfio-pci holds all GPUs, so that no driver can have them."""
    drivers = {known(lambda gpu=gpu: gpu.driver) for gpu in known(lambda: facts.pci.gpus, ())}  # type: ignore[misc]
    return drivers == {"vfio-pci"}


def _in_wsl(finding: Finding, facts: Facts) -> Finding:
    """WSL uses the driver of Windows: a module that cannot be built there is one that should not be installed."""
    wsl = known(lambda: facts.system.wsl, 0)
    if not wsl or finding.problem.id not in OF_MODULE or not facts.texts.alone:
        return finding
    if wsl == 1:
        return replace(finding, causes=(*finding.causes, "wsl1-has-no-gpu"))
    words = "a Linux driver is being installed inside WSL, which uses the driver of Windows"
    evidence: dict[str, Any] = {name: finding.evidence[name] for name in ("said", "where") if name in finding.evidence}
    return facts.problems["wsl-linux-driver-installed"].found(words, evidence, confidence=Confidence.LIKELY)


def _is_notebook(finding: Finding, facts: Facts) -> bool:
    return facts.shown.is_notebook and finding.problem.id in OF_NO_DRIVER


def _without(finding: Finding, excluded: Mapping[str, str], facts: Facts) -> Finding:
    """A message that is not sure gives way to its next cause; a likely one only to a fact about its own cause, since
    nvidia-smi can have worked elsewhere, such as on the host of a container."""
    if not excluded:
        return finding
    left = [id for id in finding.evidence["could_be"] if id not in excluded]
    evidence: dict[str, Any] = {**finding.evidence, "could_be": left, "excluded_by": sorted(set(excluded.values()))}
    causes = tuple(id for id in finding.causes if id not in excluded or id == finding.problem.id)
    changed = replace(finding, evidence={name: value for name, value in evidence.items() if value}, causes=causes)
    is_refuted = finding.problem.id in excluded and VETOES[finding.problem.id] is not _driver_works
    is_unsure = finding.problem.id in excluded and finding.confidence is Confidence.UNKNOWN
    if left and (is_unsure or (is_refuted and finding.confidence is Confidence.LIKELY)):
        evidence = {name: value for name, value in {**changed.evidence, "could_be": left[1:]}.items() if value}
        surest = Confidence.UNKNOWN if left[1:] else Confidence.LIKELY
        return replace(changed, problem=facts.problems[left[0]], evidence=evidence, confidence=surest)
    return changed


def veto(id: str, facts: Facts) -> str:
    """The fact that excludes a problem; "" if nothing in the text does."""
    return known(lambda: VETOES[id](facts), "") if id in VETOES else ""


def _driver_works(facts: Facts) -> str:
    gpus = known(lambda: facts.nvml.count, 0)
    release = known(lambda: facts.nvml.driver_version)
    return f"nvidia-smi lists {gpus} GPU{'s' * (gpus != 1)} with driver {release}" if gpus and release else ""


def _has_cuda(facts: Facts) -> str:
    cuda = facts.python.torch_cuda
    return f"torch {facts.python.torch_version} is built with CUDA {cuda}" if cuda else ""


def _shows_gpus(facts: Facts) -> str:
    value = facts.environment.get("CUDA_VISIBLE_DEVICES")
    return f"CUDA_VISIBLE_DEVICES is {value!r}" if value and value.strip()[:1].isdigit() else ""


def _has_gpu(facts: Facts) -> str:
    on_bus = [gpu.address for gpu in known(lambda: facts.pci.gpus, ())]
    return f"lspci lists {', '.join(on_bus)}" if on_bus else _driver_works(facts)


def _has_shared_memory(facts: Facts) -> str:
    free = facts.limits.shm_free_bytes
    return f"/dev/shm has {free >> 20} MiB free" if free >= ENOUGH_SHARED_MEMORY else ""


def _locks_memory(facts: Facts) -> str:
    return "the limit on locked memory is unlimited" if facts.limits.memlock[0] is None else ""


def _no_secure_boot(facts: Facts) -> str:
    return "Secure Boot is off" if known(lambda: facts.system.secure_boot) is False else _driver_works(facts)


def _no_nouveau(facts: Facts) -> str:
    drivers = known(lambda: {gpu.driver for gpu in facts.pci.gpus}, set())
    if drivers and not drivers & {"nouveau", None}:
        return f"lspci shows the driver {', '.join(map(str, sorted(filter(None, drivers))))}"
    return "lsmod does not list nouveau" if facts.shown.is_loaded("nouveau") is False else _driver_works(facts)


def _of_all(facts: Facts, fact: Callable[[Gpu], bool], words: str) -> str:
    gpus = facts.nvml.gpus
    return words if gpus and all(fact(gpu) for gpu in gpus) else ""


def _no_mig(facts: Facts) -> str:
    return _of_all(facts, lambda gpu: gpu.mig_mode.current is False, "MIG is disabled")


def _shared(facts: Facts) -> str:
    return _of_all(facts, lambda gpu: gpu.compute_mode == "default", "the compute mode is Default")


def _new_enough(facts: Facts) -> str:
    """The check of the driver against CUDA's runtimes, in its words."""
    numbers = list(map(int, re.findall(r"\d+", facts.python.torch_cuda or "")))
    least = knowledge.minimum_driver((numbers[0], numbers[1])) if len(numbers) > 1 else None
    driver = facts.nvml.driver_version
    fits = least and Version(driver) >= Version(least)
    return f"driver {driver} runs torch's CUDA {facts.python.torch_cuda}" if fits else ""


def _has_code_for_gpus(facts: Facts) -> str:
    """torch.cuda.get_arch_list() of the text names each GPU's architecture, or an older one of the same major version."""
    lists = [match[0] for text in passages(facts) for match in _ARCHITECTURES.finditer(text)]
    have = {(int(number[:-1]), int(number[-1])) for number in re.findall(r"sm_(\d{2,3})", lists[-1] if lists else "")}
    gpus = {gpu.compute_capability for gpu in facts.nvml.gpus}
    fits = all(any(own[0] == major and minor <= own[1] for major, minor in have) for own in gpus)
    return (
        f"torch has machine code for {', '.join(f'sm_{major}{minor}' for major, minor in sorted(gpus))}" if gpus and fits else ""
    )


_ARCHITECTURES = re.compile(r"\['sm_\d{2,3}'(?:, '(?:sm|compute)_\d{2,3}\w?')*\]")
_EMPTY_PATH = re.compile(
    r"""
    \becho\ [\"'\[]*\$\{?LD_LIBRARY_PATH\}?[\"'\]]*[ \t]*\n
    (?:\[\])?[ \t]*(?:\n|\Z)
    """,
    re.VERBOSE,
)


def _no_library_path(facts: Facts) -> str:
    return "LD_LIBRARY_PATH is empty" if any(_EMPTY_PATH.search(text) for text in passages(facts)) else ""


VETOES: Mapping[str, Callable[[Facts], str]] = {
    **dict.fromkeys(
        (
            *("no-driver-found", "kernel-module-not-loaded", "nvml-driver-not-loaded", "driver-library-version-mismatch"),
            *("module-not-built-after-kernel-update", "container-no-gpus-flag", "container-host-driver-not-loaded"),
            *("container-driver-library-mismatch", "container-lost-gpu-access"),
            *("nvidia-visible-devices-void", "notebook-without-gpu", "module-of-another-kernel", "nvidia-module-blacklisted"),
        ),
        _driver_works,
    ),
    "torch-cpu-only-wheel": _has_cuda,
    "cuda-visible-devices-hides-all-gpus": _shows_gpus,
    "no-nvidia-gpu": _has_gpu,
    "nouveau-loaded": _no_nouveau,
    "secure-boot-module-rejected": _no_secure_boot,
    "driver-too-old-for-runtime": _new_enough,
    "torch-missing-gpu-architecture": _has_code_for_gpus,
    **dict.fromkeys(
        ("stale-ld-library-path-cuda", "older-cuda-toolkit-before-wheels", "environment-module-overwrites-library-path"),
        _no_library_path,
    ),
    "nccl-shm-no-space": _has_shared_memory,
    "shm-too-small-for-dataloaders": _has_shared_memory,
    "memlock-limited": _locks_memory,
    "mig-enabled-without-instances": _no_mig,
    "compute-mode-exclusive-busy": _shared,
    "compute-mode-prohibited": _shared,
}
