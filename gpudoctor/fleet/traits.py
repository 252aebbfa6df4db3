"""What is compared between nodes: versions, and the parts of answers that are the same on machines that are set up alike."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any

import msgspec

from gpudoctor.comparing import noise, parts
from gpudoctor.facts import shared
from gpudoctor.fleet.reading import Answers
from gpudoctor.model import Reply, Report

GPU_QUESTION = re.compile(r"nvml:gpu(\d{1,4})")
ANY_GPU = "nvml:gpu"
LONGEST = 160  # characters of a value that is shown
MOST_PARTS = 4000  # of one answer
MOST_ANSWERS = 20_000  # whose parts are remembered
# Beside what differs between any two machines: logs, states and counters, which the checks judge.
_QUESTIONS = re.compile(
    r"""
    kernel-log | .*-log | command:systemctl\ .* | command:nvidia-smi\ -L | docker-.* | runtime-.* | host-.* | reduced
    | file:/( proc/(devices|modules|partitions|interrupts) | run/.* | var/log/.* | sys/class/net/.* | sys/fs/cgroup/.* )
    | glob:/(proc|run|var)/.*
    | mounts | kubernetes-.* | nccl-segments | licence-tokens | experiments | command-.* | cpus | kernel-modules | fabric-.*
    | broken-python
    """,
    re.VERBOSE,
)
_PARTS = re.compile(
    r"""
    .*(
        ecc_?error | replay | recovery | remap | retired | repair | histogram | counter | error | boardpartnumber | remotepciinfo
        | memory_?used | free | hostname | address | ssh_ | _?session | pwd | lastboot | uptime | processes | minor | handle_error
        | pcielinkgeneration | pciespeed | supportedclocks | clocksevent | health | margin
    ).*
    | HOME | USER | LOGNAME | MAIL | SHLVL | SHELL | TERM | LANG | PATH | OLDPWD | _ | DBUS_.* | XDG_.* | SLURM.* | KUBERNETES_.*
    | .*_(PORT|HOST) | GPUDOCTOR.* | PYTHONSAFEPATH
    """,
    re.IGNORECASE | re.VERBOSE,
)

Parts = Mapping[str, str]
Digest = bytes


def versions(report: Report) -> dict[str, str]:
    """Name -> version or number of what most nodes of a fleet have in common."""
    target, facts = report.target, report.facts
    gpus = facts.get("gpus") or ()
    is_open = facts.get("driver_is_open")
    found: dict[str, Any] = {
        "GPUs": len(gpus) or None,
        "driver": facts.get("driver_version"),
        "kernel module": None if is_open is None else "open" if is_open else "proprietary",
        "CUDA": facts.get("cuda_driver_version"),
        "kernel": target.get("kernel"),
        "distribution": target.get("distribution"),
        "Python": target.get("python_version"),
        "CPUs": facts.get("cpus"),
        "memory": _gibibytes(facts.get("memory_mib")),
        "GPU memory": _gibibytes(gpus[0].get("memory_mib")) if gpus else None,
        **{_NAMES.get(name, name): version for name, version in (facts.get("versions") or {}).items() if name not in _DRIVERS},
    }
    return {name: str(value) for name, value in found.items() if value is not None}


_NAMES = {"cudnn": "cuDNN", "nccl": "NCCL", "container_toolkit": "NVIDIA Container Toolkit"}
_DRIVERS = ("driver", "cuda", "gpu", "gpus", "python")


def _gibibytes(mib: Any) -> str | None:
    """Rounded, as boards of the same kind reserve different amounts."""
    return f"{round(mib / 1024)} GiB" if isinstance(mib, (int, float)) and mib > 0 else None


class Alike:
    """Numbers for equal parts of answers, whatever the noise in them, and the parts by number."""

    def __init__(self) -> None:
        self.parts: list[Parts] = []
        self._by_answer: dict[tuple[Any, ...], int] = {}
        self._by_digest: dict[Digest, int] = {}

    def of(self, answers: Answers) -> dict[str, int]:
        """Question -> the number of what is compared of its answer."""
        found = {}
        for question, reply in answers.snapshot.replies.items():
            if is_compared(question) and reply.status == "ok" and reply.value is not None and not _is_dead(reply.value):
                found[question] = self._number(question, answers.numbers[question], reply)
        return found

    def _number(self, question: str, of_answer: int, reply: Reply) -> int:
        key: tuple[Any, ...] = question, of_answer
        if GPU_QUESTION.fullmatch(question) and isinstance(reply.value, dict):  # these hold the temperature: no two are the same
            key = tuple([(name, _json(value)) for name, value in reply.value.items() if not _is_noise(name)])
        if key in self._by_answer:
            return self._by_answer[key]
        told = _told(parts.of(reply))
        digest = blake2b(msgspec.json.encode(told), digest_size=16).digest()
        number = self._by_digest.get(digest)
        if number is None:
            number = self.add(digest, {name: _shown(value) for name, value in _flat(told)})
        if len(self._by_answer) > MOST_ANSWERS:
            self._by_answer.clear()
        self._by_answer[key] = number
        return number

    def add(self, digest: Digest, parts: Parts) -> int:
        """The number of these parts, which is that of equal ones if they are known."""
        number = self._by_digest.setdefault(digest, len(self.parts))
        if number == len(self.parts):
            self.parts.append(parts)
        return number

    def since(self, number: int) -> list[tuple[Digest, Parts]]:
        """The parts from this number on."""
        return list(zip(self._by_digest, self.parts, strict=True))[number:]


def _json(value: Any) -> Any:
    return value if type(value) is str else shared.once(value, msgspec.json.encode)


def _is_dead(value: Any) -> bool:
    """A GPU that does not answer."""
    return isinstance(value, dict) and "handle_error" in value


@cache
def is_compared(question: str) -> bool:
    return not noise.is_noise(question, "") and not _QUESTIONS.fullmatch(question)


@cache
def _is_noise(part: str) -> bool:
    return noise.is_noise("", part) or bool(_PARTS.fullmatch(part))


def _told(found: Mapping[str, Any], levels: int = 2) -> dict[str, Any]:
    """Without noise, some levels deep."""
    return {
        name: _told(value, levels - 1) if levels and isinstance(value, dict) else value
        for name, value in found.items()
        if not _is_noise(name)
    }


def _flat(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in list(found.items())[:MOST_PARTS]:
        if isinstance(value, dict) and value and "error" not in value:
            yield from _flat(value, f"{before}{name} ")
        else:
            yield before + name, value


def _shown(value: Any) -> str:
    said = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    said = " ".join(said.split())
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}… ({len(said)} characters, {zlib.crc32(said.encode()):08x})"
