"""A text is one machine: however it was copied, its outputs decide, and exclude the causes that they contradict."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from each import each

from gpudoctor import catalog, doctor, evidence
from gpudoctor.evidence.readers.package_sessions import patterns
from gpudoctor.judging.texts import rules
from gpudoctor.model import Diagnosis, Report, Status

TEXTS = Path(__file__).parent / "texts"
SHOWN = sorted(TEXTS.glob("shown-*.yaml"))

COPIES: dict[str, Callable[[str], str]] = {
    "Windows newlines": lambda text: text.replace("\n", "\r\n"),
    "a quoted mail": lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
    "no-break spaces of a forum": lambda text: text.replace("  ", "\u00a0 "),
    "colours": lambda text: "".join(f"\x1b[0m{line}\x1b[0m\n" for line in text.splitlines()),
    "a fence around it": lambda text: f"Hello, this is what I see:\n\n```console\n{text}```\n\nThanks!\n",
}


def case(name: str) -> dict[str, object]:
    return dict(yaml.load((TEXTS / name).read_text(encoding="utf-8"), yaml.CSafeLoader))


def judged(text: str) -> Report:
    return doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick"))


def problems(text: str) -> list[str]:
    return [entry.problem for entry in judged(text).diagnosis]


def first(text: str) -> Diagnosis:
    return judged(text).diagnosis[0]


@pytest.mark.slow
@pytest.mark.parametrize("copy", COPIES)
def test_how_a_text_was_copied_does_not_matter(copy: str) -> None:
    """Each text in one of the forms; `make fuzz` (GPUDOCTOR_FUZZ) takes all in every one."""
    among = SHOWN if os.environ.get("GPUDOCTOR_FUZZ") else SHOWN[list(COPIES).index(copy) :: len(COPIES)]
    cases = {path.name: case(path.name) for path in among}
    told = {name: problems(COPIES[copy](str(each["text"]))) for name, each in cases.items()}
    assert told == {name: each["problems"] for name, each in cases.items()}


def test_order_of_columns_does_not_matter() -> None:
    one = "index, power.limit [W], power.default_limit [W], name\n0, 150.00 W, 450.00 W, NVIDIA GeForce RTX 4090\n"
    other = "name, power.default_limit [W], index, power.limit [W]\nNVIDIA GeForce RTX 4090, 450.00 W, 0, 150.00 W\n"
    assert problems(one) == problems(other) == ["sw-power-cap-low-limit"]


BLIND = '$ python -c "import torch; print(torch.__version__, torch.cuda.is_available())"\n'
LISTED = "$ nvidia-smi --query-gpu=index,driver_version,name --format=csv,noheader\n0, 560.35.03, NVIDIA L4\n"


def test_facts_exclude_causes_and_are_named() -> None:
    alone, beside = first(BLIND + "2.5.1+cu124 False\n"), first(BLIND + "2.5.1+cu124 False\n" + LISTED)
    assert {"no-driver-found", "driver-too-old-for-runtime"} <= set(alone.evidence["could_be"])
    assert not {"no-driver-found", "driver-too-old-for-runtime", "no-nvidia-gpu"} & set(beside.evidence["could_be"])
    assert "nvidia-smi lists 1 GPU with driver 560.35.03" in beside.evidence["excluded_by"]


def test_only_an_unsure_message_gives_way_to_another_cause() -> None:
    """The listing can be the host's, and the message a container's."""
    said = "Failed to initialize NVML: Driver/library version mismatch\n"
    assert problems(LISTED + "\nIn the container:\n" + said) == ["driver-library-version-mismatch"]


def test_a_filtered_list_does_not_say_what_it_leaves_out() -> None:
    listed = "$ pip list | grep {}\njax 0.4.30\njaxlib 0.4.30\n>>> import jax\n>>> jax.devices()\n[CpuDevice(id=0)]\n"
    assert problems(listed.format("jax")) == ["jax-cpu-only"]
    assert problems(listed.format("jaxlib")) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("pip list | grep -i -E 'torch|nvidia'", ["torch", "nvidia"]),
        ("pip freeze | grep -i -e torch -e cuda", ["torch", "cuda"]),
        ("dpkg -l|grep ^ii|grep nvidia", ["ii", "grep", "nvidia"]),
        ("pip list", []),
    ],
)
def test_words_of_grep(command: str, words: list[str]) -> None:
    assert patterns(command) == words


def test_nothing_recognised_is_not_a_pass() -> None:
    assert judged("the weather is fine\n").status is Status.SKIP
    assert judged("| NVIDIA-SMI has nothing to say\n").status is Status.SKIP
    assert judged("Mem: 503Gi 41Gi 300Gi 1.0Gi 161Gi 456Gi\n").status is Status.PASS


def test_a_part_inside_of_a_whole_output_is_not_read_twice() -> None:
    """The sections of `nvidia-smi -q` belong to its GPUs; alone they are those of the only GPU."""
    section = "    Applications Clocks\n        Graphics                          : 345 MHz\n"
    section += "    Default Applications Clocks\n        Graphics                          : 1740 MHz\n"
    whole = "==NVSMI LOG==\nAttached GPUs : 2\nGPU 00000000:3B:00.0\n" + section.replace("345", "1740")
    whole += "GPU 00000000:D8:00.0\n" + section
    assert problems("The clocks:\n" + section) == ["application-clocks-lowered"]
    assert [entry.gpu for entry in judged(whole).diagnosis] == [1]


NOUVEAU = "01:00.0 VGA compatible controller: NVIDIA Corporation GA104 (rev a1)\n\tKernel driver in use: nouveau\n"


@pytest.mark.parametrize(
    ("shown", "tool", "other"),
    [
        ("$ uname -r\n6.8.0-45-generic\n", "update-initramfs", "dracut"),
        ("$ uname -r\n5.14.0-427.el9_4.x86_64\n", "dracut", "update-initramfs"),
        ("$ pacman -Q nvidia-utils\nnvidia-utils 550.78-1\n", "mkinitcpio", "update-initramfs"),
    ],
)
def test_fixes_are_for_the_distribution_that_a_text_shows(shown: str, tool: str, other: str) -> None:
    commands = " ".join(fix.command for fix in first(f"{shown}$ lspci -k\n{NOUVEAU}").fixes)
    assert tool in commands
    assert other not in commands


@each("prompt", ["~ ❯ ", "~/src main ❯ ", "➜  ~ ", "➜  app git:(main) ✗ ", "me@box ~/x> ", "$ ", ""])
def test_a_command_is_read_after_any_prompt(prompt: str) -> None:
    outputs = (("uname -r", "6.9.1-arch1-1"), ("pacman -Q linux", "linux 6.9.3.arch1-1"), ("lsmod | grep nvidia", ""))
    text = "".join(f"{prompt}{command}\n{output}\n" for command, output in outputs)
    assert problems(text) == ["running-kernel-replaced"]


def test_a_reboot_is_advised_only_where_it_helps() -> None:
    loaded = "$ cat /proc/driver/nvidia/version\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31\n"
    newer, same = (f"$ modinfo -F version nvidia\n{release}\n" for release in ("550.107.02", "550.90.07"))
    library = "$ dpkg -l | grep nvidia-driver\nii  nvidia-driver-550  550.107.02-0ubuntu1  amd64  driver\n"
    assert problems(loaded + newer) == ["driver-library-version-mismatch"]
    assert problems(loaded + newer + "I rebooted twice.\n") == ["driver-modules-of-two-releases"]
    assert problems(loaded + same + library) == ["driver-upgrade-incomplete"]
    assert problems(loaded + same) == []


FAILS_THEN_WORKS = """\
$ nvidia-smi
NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.
{words}
$ nvidia-smi -L
{end}
"""
WORKS = "GPU 0: NVIDIA L4 (UUID: GPU-0a1b2c3d-0001-0002-0003-000000000004)"


def test_a_failure_is_over_only_if_the_same_command_succeeds_at_the_end() -> None:
    def of(words: str = "", end: str = WORKS, text: str = FAILS_THEN_WORKS) -> bool:
        return problems(text.format(words=words, end=end)) == []

    assert of("Loaded it again:")
    assert not of(end="No devices found.")
    assert not of("It works for an hour, then it fails again")
    assert not of(text=FAILS_THEN_WORKS.replace("$ nvidia-smi\n", "root@0a1b2c3d4e5f:/# nvidia-smi\n", 1))


def test_every_module_of_rules_is_asked() -> None:
    files = {path.stem for path in Path(rules.__file__).parent.glob("*.py")}
    assert {*rules.IN_ORDER.split()} == files - {"__init__", "said"}
