"""torch accepts the settings of its memory allocator.

What it means
torch parses PYTORCH_CUDA_ALLOC_CONF at its first use of a GPU. An option that this release does not know, or a value of another
form, raises an error there: no program can use a GPU.

How it is judged
Reads PYTORCH_CUDA_ALLOC_CONF and, since torch 2.9, PYTORCH_ALLOC_CONF. Fails for an option without a value, one that is newer
than this torch, a name that differs from a known one by a few letters, and a switch that is neither True nor False.

Known exceptions
Other names that are not known here may belong to a newer torch, and are not judged.

References
https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip

NOTES = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
VARIABLES = {"PYTORCH_CUDA_ALLOC_CONF": "0", "PYTORCH_ALLOC_CONF": "2.9"}
# Option -> the first torch with it; "0" where that is long ago or not known.
OPTIONS = {
    "backend": "2.0",
    "expandable_segments": "2.1",
    "garbage_collection_threshold": "0",
    "max_non_split_rounding_mb": "0",
    "max_split_size_mb": "0",
    "pinned_num_register_threads": "0",
    "pinned_use_background_threads": "0",
    "pinned_use_cuda_host_register": "0",
    "release_lock_on_cudamalloc": "0",
    "roundup_power2_divisions": "0",
}
SWITCHES = ("expandable_segments", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register")
CLOSE = 0.8

REFUSED = Problem(
    id="torch-refuses-allocator-settings",
    title="torch refuses the settings in PYTORCH_CUDA_ALLOC_CONF",
    why="torch parses the variable at the first use of a GPU and raises an error, so no program of this environment can use one.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "In this shell: unset it, then restart the program",
            "unset <variable>",
            verify="<python> -c 'import torch; torch.zeros(1, device=\"cuda\")'",
            where="shell",
        ),
        look("Find the line that sets it, and correct it", "grep -sn <variable> ~/.bashrc ~/.profile /etc/environment"),
    ),
    references=(NOTES,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    torch = facts.python.package("torch")
    if torch is None:
        raise Skip("torch is not installed", Skip.NOT_INSTALLED)
    release = Version(Version(torch.version).base_version)  # a build of NVIDIA such as 2.1.0a0 has what 2.1 has
    for variable, since in VARIABLES.items():
        value = facts.environment.get(variable) or ""
        faults = [fault for option in options(value) if (fault := fault_of(option, release))] if release >= Version(since) else []
        if faults:
            yield REFUSED.found(f"{variable}={value}: {'; '.join(faults)}", {"variable": variable, "value": value})


def options(value: str) -> list[str]:
    """`name:value` of each; spaces mean nothing, and a list in brackets is one value."""
    plain = re.sub(r"\[[^\]]*\]", "[]", value.replace(" ", ""))
    return [option for option in plain.split(",") if option]


def fault_of(option: str, release: Version) -> str:
    name, colon, value = option.partition(":")
    if not colon:
        return f"{option} is not of the form name:value"
    if name not in OPTIONS:
        close = difflib.get_close_matches(name, OPTIONS, 1, CLOSE)
        return f"{name} is unknown; the nearest option is {close[0]}" if close else ""
    if release < Version(OPTIONS[name]):
        return f"torch {release} does not know {name}, which {OPTIONS[name]} introduced"
    return f"{name} must be True or False, not {value}" if name in SWITCHES and value not in ("True", "False") else ""


def summary(facts: Facts) -> str:
    known = [name for name in VARIABLES if facts.environment.get(name)]
    return f"{', '.join(known)} can be parsed" if known else "no settings of torch's allocator"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(REFUSED,),
    tags=("memory", "pytorch"),
)
