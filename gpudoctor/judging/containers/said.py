"""The engine's message when a container did not start, and the values in it that messages and fixes use. Pure."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor.facts.container_start import Start
from gpudoctor.judging.containers.causes import Case
from gpudoctor.knowledge.cuda import cuda_of_branch, shipped_driver
from gpudoctor.knowledge.messages import Message
from gpudoctor.model import Skip

MOST_SAID = 400  # characters of a message
LEAST_BRANCH = 525  # driver branch to name if an image requires something that no table lists
LIMITS = {"4": "the size of core files", "6": "the number of processes", "7": "the number of open files", "8": "locked memory"}
"""The kernel's number of a limit -> what it limits."""


def named(case: Case, message: Message) -> dict[str, str]:
    """The values for placeholders in messages and fixes."""
    found = message.regex.search(case.start.words)
    groups = found.groupdict() if found else {}
    condition = groups.pop("condition", None)
    name = groups.get("name") or next((text for text in groups.values() if text), "NAME")
    return {
        "said": said(case.start),
        "engine": case.start.name,
        "image": case.start.image or "IMAGE",
        "name": name,
        "file": name.rpartition("/")[2],
        "limit": LIMITS.get(groups.get("number") or "", "this limit"),
        "condition": condition.strip(" :") if condition else "another driver",
        "driver": _driver(case),
    }


def _driver(case: Case) -> str:
    try:
        version, branch = case.facts.driver.module_version, case.facts.driver.branch
    except Skip:
        version = branch = None
    if not version or not case.is_here:
        return "the driver on the daemon's host supports less"
    cuda = cuda_of_branch(branch) if branch else None
    return f"driver {version} on this machine supports " + (f"CUDA {cuda[0]}.{cuda[1]}" if cuda else "less")


def evidence(start: Start, values: dict[str, str]) -> dict[str, Any]:
    """name, path and command have the same value, under the name that a fix uses."""
    name = values.get("name", "")
    about: dict[str, Any] = {
        "engine": start.name,
        "image": start.image or "IMAGE",
        "mode": start.mode,
        "engine_said": said(start),
    }
    if name:
        about |= {"name": name, "path": name, "command": name}
    about["file"] = values.get("file", "")
    about["wanted"] = _branch(values.get("condition", ""))
    return about


def _branch(condition: str) -> str:
    """The branch of the oldest sufficient driver: "570" for cuda>=12.8, "535" for driver>=535."""
    if named_driver := re.search(r"driver\s*>=?\s*(\d+)", condition):
        return named_driver[1]
    wanted = wanted_cuda(condition)
    driver = shipped_driver(wanted) if wanted else None
    return driver.split(".")[0] if driver else str(LEAST_BRANCH)


def wanted_cuda(condition: str) -> tuple[int, int] | None:
    found = re.search(r"cuda\s*>=?\s*(\d+)\.(\d+)", condition)
    return (int(found[1]), int(found[2])) if found else None


def said(start: Start) -> str:
    """The message; of a long one the beginning and the end, which usually names the reason."""
    words = start.words
    return words if len(words) <= MOST_SAID else f"{words[: MOST_SAID // 2]} … {words[-MOST_SAID // 2 :]}"
