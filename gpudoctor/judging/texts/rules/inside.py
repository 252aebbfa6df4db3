"""What a container, an exported image or a service of a text lacks that its host or shell has: variables, libraries, rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import is_lxc, passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

NOT_PASSED_ON = Problem(
    id="service-without-library-path",
    title="The notebook or service lacks the shell's LD_LIBRARY_PATH",
    why="A service starts with its unit's environment. What ~/.bashrc exports reaches programs of a shell, and not those that "
    "JupyterHub's spawner or systemd starts, so they do not find the libraries of CUDA.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "In jupyterhub_config.py: give LD_LIBRARY_PATH the shell's value in c.Spawner.environment, then restart the hub",
            "echo \"c.Spawner.environment = {'LD_LIBRARY_PATH': '$LD_LIBRARY_PATH'}\"",
            kind="read",
        ),
        Fix(
            "Make the folder known to the loader, for all programs",
            "echo <folder> | sudo tee /etc/ld.so.conf.d/cuda.conf && sudo ldconfig",
            verify="ldconfig -p | grep libcudart",
            undo="sudo rm /etc/ld.so.conf.d/cuda.conf && sudo ldconfig",
            kind="set",
            needs=("root",),
        ),
        Fix("In a unit of systemd: add Environment=LD_LIBRARY_PATH= with that value to its [Service] part"),
    ),
    references=("https://github.com/jupyterhub/jupyterhub/issues/2927",),
)
EXPORTED = Problem(
    id="image-without-its-environment",
    title="The image lost its environment variables when it was exported",
    why="docker export writes only the files. The variables NVIDIA_VISIBLE_DEVICES and NVIDIA_DRIVER_CAPABILITIES of the image "
    "are gone, and enroot's hook adds a GPU only to images that have them.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Set them for the job",
            "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility srun --gres=gpu:1 --container-image=<image> "
            "nvidia-smi -L",
            kind="manual",
        ),
        Fix("Import the image with enroot import, which keeps its settings, instead of docker export", "", kind="manual"),
    ),
    references=("https://github.com/NVIDIA/pyxis/issues/96",),
)
NESTED = Problem(
    id="docker-nested-in-lxc",
    title="Docker in an LXC container may not write device rules",
    why="In an unprivileged LXC or LXD container root is not the host's root, so the toolkit cannot change cgroups. The outer "
    "container already allows the GPU's devices, so the toolkit does not have to.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "In the LXC container: let the toolkit write no device rules, then restart Docker",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place && sudo systemctl restart docker",
            verify="docker run --rm --gpus all ubuntu nvidia-smi",
            risk="disruptive",
            kind="restart",
            needs=("root",),
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/290",),
)
PROBLEMS = (NOT_PASSED_ON, EXPORTED, NESTED)

_LIBRARY_PATH = re.compile(r"\bLD_LIBRARY_PATH\b[^\n]*\n\s*(?P<value>/\S+|None|''|\"\")")
_MISSES = re.compile(
    r"""
    cannot\ open\ shared\ object\ file
    | Could\ not\ load\ dynamic\ library
    | Cannot\ dlopen
    | \bNo\ GPU\b
    | ^\[\]$
    """,
    re.MULTILINE | re.VERBOSE,
)
_OF_SERVER = re.compile(r"(?i)jupyter|spawner|notebook|systemctl|\.service\b|gunicorn|supervisor|cron")


def library_path_not_passed(facts: Facts) -> Iterator[Finding]:
    """The shell has LD_LIBRARY_PATH, and a notebook's kernel or a service, which misses a library, does not."""
    text = "\n".join(passages(facts))
    values = [match["value"] for match in _LIBRARY_PATH.finditer(text)]
    full = [value for value in values if value.startswith("/")]
    if full and len(full) < len(values) and _MISSES.search(text) and _OF_SERVER.search(text):
        words = f"LD_LIBRARY_PATH is {full[0]} in the shell, and not set where the library is missing"
        evidence = {"shell": full[0], "folder": full[0].split(":")[0]}
        yield NOT_PASSED_ON.found(words, evidence, confidence=Confidence.LIKELY)


_EXPORT = re.compile(r"\bdocker export\b")
_ENROOT = re.compile(r"--container-image|\benroot (?:start|create|import)\b")
_NO_SMI = re.compile(
    r"""
    nvidia-smi:\ (?:command\ )?not\ found
    | couldn't\ find\ libnvidia-ml
    | execve\(\):\ nvidia-smi
    """,
    re.VERBOSE,
)


def exported_image(facts: Facts) -> Iterator[Finding]:
    """enroot starts an image that docker export wrote, and gives it no driver."""
    text = "\n".join(passages(facts))
    if _EXPORT.search(text) and _ENROOT.search(text) and _NO_SMI.search(text) and "NVIDIA_VISIBLE_DEVICES" not in text:
        words = "the image was written by docker export, which keeps no variables, and enroot added no GPU to it"
        yield EXPORTED.found(words, confidence=Confidence.LIKELY)


_LDCONFIG = re.compile(r"(?m)^\s*ldconfig\s*=\s*[\"'](?P<path>/[^\"']*)[\"']")
_NOT_CACHED = re.compile(
    r"""
    couldn't\ find\ libnvidia-ml
    | libcuda\.so\.1:\ cannot\ open
    | libnvidia-ml\.so\.1:\ cannot\ open
    """,
    re.VERBOSE,
)
_OF_HOST = "The toolkit runs the container's ldconfig, which does not add the driver's libraries"
_AT_HOST = Fix(
    "On the host: let the toolkit run the host's ldconfig (the @ means the host), then start the container again",
    "sudo nvidia-ctk config --in-place --set nvidia-container-cli.ldconfig=@/sbin/ldconfig",
    verify="grep ldconfig /etc/nvidia-container-runtime/config.toml",
    where="host",
    kind="set",
    needs=("root",),
)


def ldconfig_of_container(facts: Facts) -> Iterator[Finding]:
    """The setting ldconfig has no @, and libraries of the driver are missing in the container."""
    text = "\n".join(passages(facts))
    setting = _LDCONFIG.search(text)
    if setting and _NOT_CACHED.search(text):
        words = f"ldconfig = \"{setting['path']}\" names the container's program, and its cache lacks the driver's libraries"
        problem = replace(facts.problems["container-cli-ldconfig-fails"], title=_OF_HOST, fixes=(_AT_HOST,))
        yield problem.found(words, {"ldconfig": setting["path"]}, confidence=Confidence.LIKELY)


_RULES_REFUSED = re.compile(
    r"""
    nvidia-container-cli:[^\n]*(?:failed\ to\ add\ device\ rules|devices\.allow)
      [^\n]*(?:operation\ not\ permitted|permission\ denied)
    """,
    re.VERBOSE,
)
_IN_LXC = re.compile(
    r"""
    \bsystemd-detect-virt\b[^\n]*\n\s*lxc\b
    | \b(?:in|inside)\b[^.\n]{0,40}\b(?:lxc|lxd|incus)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def nested_in_lxc(facts: Facts) -> Iterator[Finding]:
    """Docker runs in an LXC container, which may not write the rules of a cgroup."""
    text = "\n".join(passages(facts))
    if _RULES_REFUSED.search(text) and (_IN_LXC.search(text) or is_lxc(facts)):
        yield NESTED.found("the toolkit may not add device rules inside of an LXC container", confidence=Confidence.LIKELY)


RULES = (library_path_not_passed, exported_image, ldconfig_of_container, nested_in_lxc)
