"""The types of the answers to each question. An answer of another type is no answer: code may rely on what stands here.

None is allowed everywhere but in a `whole` answer, a field may be missing, and unknown fields and questions are not looked at:
other versions of gpudoctor have others. What NVML and libcuda answer about one GPU is validated where it is read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from gpudoctor.facts import shapes_measured
from gpudoctor.facts.job.stuck import Look
from gpudoctor.facts.shape_types import FLAG, NUMBER, TEXT, TEXTS, lists, maps, record, whole
from gpudoctor.model import Reply

_LINK = "current_link_speed current_link_width max_link_speed max_link_width driver"
_FOLDER = record(numbers="bytes free_bytes free_files", flags="noexec writable")
_OUTCOME = record(numbers="metric seconds", texts="how unit words", flags="worked")
_FILES = record(numbers="count", files=TEXTS)
_CODE = NUMBER | str | dict[str, Any]  # or {"error": code}

_EXACT: dict[str, Any] = {
    "bitsandbytes": TEXTS,
    "boot": TEXT,
    "broken-python": maps(TEXT),
    "cache-folders": maps(record(texts="path", flags="exists writable")),
    "cdi": lists(record(numbers="mtime", texts="path text")),
    "cgroup-limits": maps(TEXTS),
    "cloud": record(texts="asset_tag instance_type"),
    "command": whole(
        seconds=float,
        **dict.fromkeys(("failure", "kind", "line", "not_repeated"), str),
        **dict.fromkeys(("left", "waiting"), list[str]),
    ),
    "conda": list[dict[str, Any]] | None,
    "container-marks": maps(FLAG),
    "container-start": record(
        numbers="code",
        texts="container engine entrypoint_failed gpus image message mode replaced version",
        flags="started",
        arguments=TEXTS,
        asked=TEXTS,
    ),
    "cpu-frequency": maps(maps(NUMBER)),
    "cpu-topology": record(numbers="cores sockets", texts="offline online present"),
    "cpus": record(numbers="count", affinity=list[int] | None),
    "cuda": record(numbers="init_seconds", texts="library load_error", maps=TEXTS, names=maps(TEXTS), init=_CODE, count=_CODE),
    "cuda:devices": list[dict[str, Any]] | None,
    "devices": maps(
        record(numbers="gid major minor uid", texts="type", flags="access opened", mode=NUMBER | str, open_error=NUMBER | str)
    ),
    "disks": maps(record(numbers="bytes", texts="model transport", flags="rotational")),
    "driver-changes": lists(record(numbers="count", texts="by log when", packages=lists(record(texts="name new old")))),
    "docker": record(texts="endpoint not_asked", info=maps(Any), version=maps(Any)),
    "docker-context": dict[str, Any] | None,
    "environment": maps(TEXT),
    "host-not-asked": TEXT,
    "job-watch": dict[str, Any] | None,
    "identity": record(numbers="gid uid", groups=maps(TEXT), owners=maps(TEXT)),
    "infiniband-rates": maps(TEXT),
    "interpreter": record(
        texts="abi_flags base_prefix conda_prefix executable implementation include machine prefix user_site",
        flags="externally_managed free_threaded has_ctypes python_h user_site_enabled",
        libc=TEXTS,
        markers=maps(TEXT),
        path=TEXTS,
        project_files=TEXTS,
        venv_settings=TEXTS,
        version=list[int | str] | None,
    ),
    "job-hang": Look,
    "job-profile": record(
        numbers="code seconds",
        texts="ended engine engine_why line nothing",
        notes=TEXTS,
        kernel=dict[str, Any] | None,
        ranks=list[dict[str, Any]] | None,
        wanted=maps(NUMBER),
    ),
    "kernel-config": TEXT,
    "kernel-log": record(numbers="left_out total", texts="source", flags="complete", lines=TEXTS),
    "kernel-log-earlier": lists(TEXTS),
    "kernel-modules": maps(record(flags="headers", nvidia=TEXTS)),
    "kubernetes-marks": maps(FLAG),
    "libraries": lists(record(numbers="index size", texts="path real_path via", flags="mounted")),
    "library-owners": record(numbers="code", texts="manager out", paths=TEXTS),
    "licence-tokens": lists(record(texts="name", mode=NUMBER | str)),
    "limits": maps(lists(NUMBER)),
    "modprobe": maps(TEXT),
    "mounts": lists(maps(TEXT)),
    "nccl-log": record(
        numbers="channels nodes nvls_channels ranks",
        texts="network version",
        flags="completed without_infiniband",
        connections=maps(NUMBER),
        interfaces=TEXTS,
        settings=maps(TEXT),
    ),
    "nccl-segments": lists(record(numbers="age_seconds bytes uid", texts="name")),
    "own-address": record(texts="interface kind"),
    "socket-interfaces": lists(record(texts="name", flags="ipv4 ipv6 loopback running")),
    "network-interfaces": maps(record(numbers="mbit_per_s", texts="device driver state type")),
    "node-tests": record(texts="tool version", results=lists(record(numbers="gpu", texts="category status test", words=TEXTS))),
    "nvml": record(numbers="init_seconds", texts="library load_error", init=_CODE, count=_CODE, system=maps(Any)),
    "nvml:peers": maps(Any),
    "onnxruntime": record(texts="build_info", providers=TEXTS),
    "os-packages": lists(maps(TEXT)),
    "package-files": lists(
        record(numbers="checked", texts="location name", missing=_FILES, truncated=_FILES, changed=_FILES),
    ),
    "package-sources": record(
        entries=lists(record(texts="file signed_by suite uri", flags="key_exists")),
        malformed=lists(record(numbers="line", texts="file")),
    ),
    "packages": lists(
        record(texts="build installer location name version", requires=TEXTS, tags=TEXTS, direct_url=dict[str, Any] | None)
    ),
    "pci": record(
        bridges=maps(record(numbers="device vendor", texts=_LINK, acs=NUMBER | str, parents=TEXTS)),
        functions=maps(
            record(
                numbers="device subsystem_device subsystem_vendor vendor",
                texts=f"{_LINK} iommu_group_type numa_node",
                flags="all_ones virtual_function",
                parents=TEXTS,
                resource=TEXTS,
            )
        ),
        other_display=TEXTS,
    ),
    "power-supply": record(numbers="batteries", texts="profile", flags="has_powerd", profiles=TEXTS, mains=TEXTS),
    "processes": lists(record(numbers="pid", texts="name state")),
    "processor": TEXT,
    "reduced": TEXT,
    "root-filesystem": TEXT,
    "runtime-file-times": maps(NUMBER),
    "runtime-processes": record(numbers="boot ticks_per_second", started=maps(NUMBER)),
    "runtime-programs": maps(record(numbers="changed mtime", texts="path real")),
    "secure-boot": NUMBER,
    "serials": maps(TEXT),
    "service-files": maps(FLAG),
    "shm": _FOLDER,
    "tmp": _FOLDER,
    "toolchain": record(
        texts="default",
        headers=TEXTS,
        homes=maps(TEXT),
        nvvm=TEXTS,
        programs=maps(TEXTS),
        real_paths=maps(TEXT),
        toolkits=lists(maps(TEXT)),
        versions=maps(TEXT),
    ),
    "torch": record(texts="location version_py", libraries=TEXTS),
    "udev-rules": maps(TEXT),
    "variable-sources": maps(TEXTS),
    "uname": record(texts="machine nodename release sysname system version"),
    "working-folder": record(texts="folder", hides=lists(record(texts="file hidden module"))),
    "wsl": record(flags="is_wsl", marks=maps(FLAG)),
    "wsl-libraries": maps(record(numbers="bytes", texts="kind")),
}
_NEVER_NULL = ("command", "job-hang")
_BEGINNINGS: dict[str, Any] = {
    "file:": TEXT,
    "glob:": TEXTS,
    "command:": record(numbers="code", texts="err out"),
    "cuda:context": record(numbers="seconds", texts="name skipped text", code=_CODE),
    "experiment ": record(
        texts="ended subject",
        also=TEXTS,
        suspects=lists(record(numbers="weight", texts="kind name reason value")),
        trials=lists(record(flags="good", away=list[int], outcome=_OUTCOME)),
    ),
    "nvml:gpu": dict[str, Any] | None,
    "package-hashes:": record(numbers="bytes checked", texts="location name", other=_FILES),
    "text:": record(numbers="bytes left_out total_lines", kinds=TEXTS, lines=list[tuple[int, str]] | None),
}


def fitting(question: str, reply: Reply) -> Reply:
    """The reply, or an error in its place if its value has another type than the answers to this question.

    Other collectors write "" for null: where no text is expected, it is None.
    """
    if question.startswith("measured "):
        return _measured(question.removeprefix("measured "), reply)
    return _fitting(question, reply, reply.value)


def _measured(id: str, reply: Reply) -> Reply:
    if (kept := shapes_measured.without_nulls(id, reply.value)) is not reply.value:
        reply = replace(reply, value=kept)
    value = shapes_measured.results(reply.value)
    unfamiliar = shapes_measured.unfamiliar(id, value)
    if unfamiliar != {} and _wrong(shapes_measured.of(id), unfamiliar):
        return _fitting(f"measured {id}", reply, value)
    shapes_measured.have_fitted(id, unfamiliar)
    return reply


def _fitting(question: str, reply: Reply, value: Any) -> Reply:
    if value is None:
        is_wrong = reply.status == "ok" and (question in _NEVER_NULL or question.startswith("measured "))
        return _unfit(reply, "Expected object, got null") if is_wrong else reply
    wrong = _wrong(_shape(question), value)
    if not wrong:
        return reply
    plain = _without_blanks(value)
    if question.startswith("measured "):
        plain = shapes_measured.without_nulls(question.removeprefix("measured "), plain)
    if (plain is None and question not in _NEVER_NULL) or not _wrong(_shape(question), plain):
        return replace(reply, value=plain)
    return _unfit(reply, wrong)


def _unfit(reply: Reply, wrong: str) -> Reply:
    return replace(reply, status="error", value=None, detail=f"the answer has an unexpected form: {wrong}")


def _without_blanks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_blanks(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_blanks(item) for item in value]
    return None if value == "" else value


def all_fitting(replies: Mapping[str, Reply]) -> dict[str, Reply]:
    return {question: fitting(question, reply) for question, reply in replies.items()}


def all_measured_fitting(measured: Mapping[str, Reply]) -> dict[str, Reply]:
    """Those with a name that no measurement has are left out."""
    named = {id: reply for id, reply in measured.items() if shapes_measured.NAMES.fullmatch(id)}
    return {id: fitting(f"measured {id}", reply) for id, reply in named.items()}


def all_experiments_fitting(experiments: Mapping[str, Reply]) -> dict[str, Reply]:
    named = {id: reply for id, reply in experiments.items() if id == "command" or shapes_measured.NAMES.fullmatch(id)}
    return {id: fitting(f"experiment {id}", reply) for id, reply in named.items()}


def prepare() -> None:
    """Lets msgspec look at each shape: it crashes if two threads do so for the first time at once."""
    for shape in (*_EXACT.values(), *_BEGINNINGS.values()):
        _wrong(shape, None)


@functools.cache
def _shape(question: str) -> Any:
    if question in _EXACT:
        return _EXACT[question]
    if question.startswith("measured "):
        return shapes_measured.of(question.removeprefix("measured "))
    return next((shape for beginning, shape in _BEGINNINGS.items() if question.startswith(beginning)), Any)


def _wrong(shape: Any, value: Any) -> str:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as failure:
        return re.sub(r"[`$]", "", str(failure))
    return ""
