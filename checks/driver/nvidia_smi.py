"""The command nvidia-smi is on PATH, works, and returns in time.

What it means
Users and scripts run nvidia-smi to see whether a GPU works. It is part of the driver's utilities, which are a separate package;
the GPU may work without it.

How it is judged
If NVML works, the check runs nvidia-smi -L. It looks at whether the command is found, at its exit code, and at whether it returns
within six seconds.

Known exceptions
If NVML does not work, that is the diagnosis. Under WSL the command is in /usr/lib/wsl/lib, which Windows puts on PATH.

References
https://github.com/microsoft/WSL/issues/9166
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import install_on, look
from gpudoctor.fixes.engines import again
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

INSTALL = "Install the driver's utilities of the module's release"
NOT_FOUND = Problem(
    id="nvidia-smi-command-not-found",
    title="nvidia-smi is not installed or not on PATH",
    why="The driver's utilities are not installed, or are in a folder that is not on PATH. Scripts that call nvidia-smi assume "
    "that this machine has no GPU.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        *install_on(
            INSTALL,
            recipe="libraries",
            verify="nvidia-smi -L",
            debian="sudo apt install nvidia-utils-<branch> || sudo apt install nvidia-smi",
            rhel="sudo dnf install nvidia-driver-cuda",
            suse="sudo zypper install nvidia-compute-utils-G06",
            arch="sudo pacman -S nvidia-utils",
            undos={"suse": "sudo zypper remove nvidia-compute-utils-G06"},
        ),
        Fix(
            INSTALL,
            "find / -xdev -name nvidia-smi -perm -u+x 2>/dev/null",
            verify="nvidia-smi -L",
            on=("other",),
            recipe="libraries",
            kind="read",
        ),
    ),
    references=("https://github.com/microsoft/WSL/issues/9166",),
)

OFF_PATH = Problem(
    id="nvidia-smi-not-on-wsl-path",
    title="nvidia-smi is in WSL's library folder, which is not on PATH",
    why="Windows provides it in /usr/lib/wsl/lib. Never install driver packages here to get it: their libraries hide those of "
    "Windows.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Add the folder to PATH",
            "echo 'export PATH=$PATH:/usr/lib/wsl/lib' >> ~/.profile && . ~/.profile",
            verify="nvidia-smi -L",
            kind="set",
        ),
    ),
    references=("https://github.com/microsoft/WSL/issues/9166",),
)

IN_CONTAINER = Problem(
    id="nvidia-smi-not-in-container",
    title="nvidia-smi is not available in this container",
    why="The container toolkit adds it with the capability 'utility'. A device that is passed in by hand comes without it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        *again(
            "If you need it: recreate the container with the capability 'utility'",
            "run --rm <all_gpus> -e NVIDIA_DRIVER_CAPABILITIES=compute,utility <image> nvidia-smi",
            kubectl="set env deployment/<chosen_name> NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        ),
    ),
)

FAILS = Problem(
    id="nvidia-smi-fails",
    title="nvidia-smi fails, although the driver's library works",
    why="The command is from another release than the driver, or loads another libnvidia-ml than other programs do.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(look("Show which command and library are used", "type -a nvidia-smi; ldd $(command -v nvidia-smi); nvidia-smi -L"),),
)

HANGS = Problem(
    id="nvidia-smi-hangs",
    title="nvidia-smi hangs, although the driver's library answers",
    why="A query that only nvidia-smi makes hangs in the driver, or a process is stuck there.",
    action=Action.REBOOT,
    fixes=(
        look("Find where it hangs", "timeout 20 strace -f nvidia-smi -L 2>&1 | tail; ps -eo pid,stat,comm | awk '$2 ~ /D/'"),
        Fix("Reboot", verify="nvidia-smi -L", on=("host",), reboot=True),
    ),
)

QUICK_SECONDS = 2  # if NVML takes longer to start, that alone explains a slow nvidia-smi


def judge(facts: Facts) -> Iterator[Finding]:
    answer = facts.driver.nvidia_smi
    if answer is None:
        if facts.nvml.init_code != 0:
            raise Skip("nvidia-smi was not found, and NVML does not start either")
        problem = IN_CONTAINER if facts.container.engine else NOT_FOUND
        yield problem.found("NVML works, but the command nvidia-smi was not found")
    elif facts.system.wsl and "nvidia-smi" not in facts.toolchain.programs:
        yield OFF_PATH.found("/usr/lib/wsl/lib is not on PATH", {"PATH": facts.environment.get("PATH")})
    elif answer.timed_out:
        if facts.nvml.init_seconds > QUICK_SECONDS:
            raise Skip(f"nvidia-smi timed out; NVML itself took {facts.nvml.init_seconds:.1f} s", Skip.NO_ANSWER)
        yield HANGS.found(f"nvidia-smi -L: {answer.error or 'no answer'}; NVML started in {facts.nvml.init_seconds:.1f} s")
    elif answer.code != 0 and facts.nvml.count:
        words = (answer.out or answer.error).strip().splitlines() or ["nothing"]
        yield FAILS.found(f"nvidia-smi -L exits with code {answer.code} and prints: {words[0]}", {"code": answer.code})


def summary(facts: Facts) -> str:
    answer = facts.driver.nvidia_smi
    return f"nvidia-smi answers in {answer.seconds:.1f} s" if answer else "no nvidia-smi"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NOT_FOUND, OFF_PATH, IN_CONTAINER, FAILS, HANGS),
    needs=("gpu-count",),
)
