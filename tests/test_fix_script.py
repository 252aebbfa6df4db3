"""The script of `gpudoctor fix`: its order, what it leaves to a person, and that a shell takes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import machine
import pytest

from gpudoctor.files import snapshot
from gpudoctor.model import Action, Fix, Problem
from gpudoctor.repair import plan, script
from gpudoctor.repair.phases import Phase, phase
from gpudoctor.repair.plan import Step


def planned(*fixes: Fix) -> list[Step]:
    return plan.of_problem(Problem("it-is-broken", "It is broken", "It is.", Action.INSTALL), fixes)


PHASES = [
    ("nvidia-smi -q -i 0 -d ECC", Phase.READ),
    ("sudo dmesg | grep -iE 'nvrm|xid' | tail -n 20", Phase.READ),
    ("grep -n CUDA_HOME ~/.bashrc /etc/profile.d/*.sh", Phase.READ),
    ("timeout 5 df -h > /dev/null || echo 'a file system does not answer'", Phase.READ),
    ("find / -name 'x*' -delete", Phase.CONFIGURE),
    ("cat a > b", Phase.CONFIGURE),
    ("sudo nvidia-smi -i 0 -pl 360", Phase.CONFIGURE),
    ("sudo nvidia-smi mig -i 0 -cgi 0 -C", Phase.CONFIGURE),
    ("echo x | sudo tee /etc/modprobe.d/uvm.conf", Phase.CONFIGURE),
    ("sudo apt update && sudo apt install nvidia-driver-580", Phase.INSTALL),
    ("uv pip install --python /v/bin/python torch", Phase.INSTALL),
    ("conda install -p /c -c conda-forge pytorch-gpu", Phase.INSTALL),
    ("sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker", Phase.RESTART),
    ("sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm", Phase.RESTART),
    ("CUDA_LAUNCH_BLOCKING=1 python train.py", Phase.WORDS),
    ("sudo systemctl isolate multi-user.target", Phase.WORDS),
    ("sinfo -o '%P %N %G %T'", Phase.READ),
    ("sudo fuser -v /dev/nvidia*; lsmod | grep nvidia", Phase.READ),
    ("export CUDA_VISIBLE_DEVICES=0", Phase.WORDS),
    ("docker run --rm --gpus all IMAGE", Phase.WORDS),
    ("sudo sh NVIDIA-Linux-x86_64-580.*.run -M=open", Phase.WORDS),
    ("wsl.exe --update", Phase.WORDS),
    ("sudo nvidia-smi --gpu-reset -i 0", Phase.RESET),
    ("wsl.exe --shutdown", Phase.RESET),
    ("", Phase.WORDS),
]


@pytest.mark.parametrize(("command", "expected"), PHASES)
def test_what_kind_of_work_a_command_is(command: str, expected: Phase) -> None:
    assert phase(Fix("Do it", command), command) is expected


def test_a_way_that_loses_something_is_left_to_a_person() -> None:
    [step] = planned(Fix("Remove it", "sudo dnf remove x", "destructive"))
    text = script.render([step])
    assert "because something is lost by it" in text
    assert not re.search(r"^\s*sudo dnf remove", text, re.M)


def test_the_reboot_comes_last_and_once() -> None:
    steps = planned(Fix("A", "sudo apt install a && sudo reboot"))
    steps += plan.of_problem(Problem("b", "B", "B.", Action.REBOOT), [Fix("B", "echo b | sudo tee /etc/b; sudo reboot")])
    text = script.render(plan.ordered(steps))
    assert re.findall(r"^#     sudo reboot$", text, re.M) == ["#     sudo reboot"]
    assert text.index("sudo tee /etc/b") < text.index("sudo apt install a") < text.index("#     sudo reboot")
    assert "for steps 1, 2" in text


def test_other_ways_are_comments_and_reading_is_not() -> None:
    steps = planned(Fix("Set it", "sudo sysctl -w a=1"), Fix("Look", "ls /"), Fix("Set it otherwise", "sudo sysctl -w a=2"))
    assert [step.command for step in steps] == ["ls /", "sudo sysctl -w a=1"]
    text = script.render(steps)
    assert "# Another way: Set it otherwise (needs root)\n#     sudo sysctl -w a=2" in text


def run_script(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh"], input=text, text=True, capture_output=True, cwd=tmp_path)


def test_it_stops_at_a_step_that_fails_and_says_what_takes_it_back(tmp_path: Path) -> None:
    steps = planned(Fix("First", "mkdir one && false && mkdir two", undo="rmdir one"))
    steps += plan.of_problem(Problem("b", "B", "B.", Action.INSTALL), [Fix("B", "mkdir three")])
    done = run_script(script.render(steps), tmp_path)
    assert done.returncode == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]
    assert "Stopped in step 1 (exit code 1)." in done.stderr
    assert "What takes it back: rmdir one" in done.stderr


def test_reading_in_vain_does_not_stop_it(tmp_path: Path) -> None:
    done = run_script(script.render(planned(Fix("Look", "grep -n x /nowhere"), Fix("Set", "mkdir one"))), tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "one").is_dir()


def test_its_check_is_run_too(tmp_path: Path) -> None:
    done = run_script(script.render(planned(Fix("Set", "mkdir one", verify="test -d two"))), tmp_path)
    assert (done.returncode, (tmp_path / "one").is_dir()) == (1, True)


def gpudoctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpudoctor", "fix", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80", **environment}, timeout=60)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    file = tmp_path / "machine.json"
    file.write_bytes(snapshot.dump(machine.load("no-driver")))
    return file


def test_of_a_snapshot(saved: Path) -> None:
    done = gpudoctor("--replay", str(saved))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("#!/bin/sh\n")
    assert "nvidia-driver-580-open" in done.stdout


def test_of_one_problem_into_a_file(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "fix.sh"
    done = gpudoctor("no-driver-found", "--replay", str(saved), "-o", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert f"sh {file}" in done.stderr
    assert "Step 1 of 1: Install the driver" in file.read_text()


def test_a_problem_that_is_not_here_has_its_general_fixes(saved: Path) -> None:
    done = gpudoctor("nouveau-loaded", "--replay", str(saved))
    assert done.returncode == 0
    assert "nouveau-loaded was not found here" in done.stdout
    assert "sudo update-initramfs -u" in done.stdout
    assert "dracut" not in done.stdout


def test_an_unknown_problem_has_neighbours() -> None:
    done = gpudoctor("noveau-loaded")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean nouveau-loaded" in done.stderr


def test_nothing_wrong_is_said_in_a_way_that_no_shell_runs(tmp_path: Path) -> None:
    file = tmp_path / "healthy.json"
    file.write_bytes(snapshot.dump(machine.load("h100")))
    done = gpudoctor("--replay", str(file))
    assert done.returncode == 0
    assert re.fullmatch(r"# .*There is nothing to fix\.\n", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--run"], "it needs a terminal"),
        (["--run", "--replay", "x.json"], "it goes without --replay"),
        (["--run", "-o", "x.sh"], "it goes without -o"),
        (["--journal", "x.log"], "goes with --run"),
        (["--replay", "x.json", "--python", "python3"], "goes without --python"),
        (["--replay", "/nowhere.json"], "/nowhere.json"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], words: str) -> None:
    done = gpudoctor(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


BOTH = (Fix("Load it", "sudo modprobe -r nvidia && sudo modprobe nvidia", "disruptive"), Fix("Boot", "sudo reboot"))


def of(problem: str, *fixes: Fix) -> list[Step]:
    return plan.of_problem(Problem(problem, f"Of {problem}", "It is.", Action.INSTALL), fixes)


def test_what_another_step_does_too_is_no_step_of_its_own() -> None:
    both = Fix("Purge and install", "sudo apt purge a && sudo apt install b && sudo reboot")
    [step] = plan.ordered([*of("small", Fix("Install", "sudo apt install b && sudo reboot")), *of("large", both)])
    assert step.command == "sudo apt purge a && sudo apt install b"
    text = script.render([step])
    assert "Of large (large)" in text
    assert "Of small (small)" in text


def test_a_part_that_only_looks_alike_stays() -> None:
    steps = plan.ordered([*of("one", Fix("One", "sudo apt install b")), *of("two", Fix("Two", "sudo apt install a b"))])
    assert len(steps) == 2


def test_where_the_machine_boots_anyway_nothing_is_unloaded_by_force() -> None:
    steps = plan.ordered([*of("upgrade", Fix("Upgrade", "sudo apt install b && sudo reboot")), *of("mismatch", *BOTH)])
    assert [(step.fix.title, step.command) for step in steps] == [("Upgrade", "sudo apt install b"), ("Boot", "")]
    assert [step.fix.title for step in plan.ordered(of("mismatch", *BOTH))] == ["Load it"]


def test_a_check_waits_for_the_steps_that_it_depends_on(tmp_path: Path) -> None:
    check = of("torch", Fix("Install", "mkdir one", verify="false"))
    done = run_script(script.render(plan.ordered([*check, *of("mismatch", BOTH[0])])), tmp_path)
    assert (done.returncode, (tmp_path / "one").is_dir()) == (0, True)
    assert run_script(script.render(of("torch", Fix("Install", "mkdir two", verify="false"))), tmp_path).returncode == 1


def test_it_says_what_a_new_driver_means_until_the_boot() -> None:
    assert "Until the reboot, new programs on the GPU may fail." in script.render(
        of("old", Fix("Upgrade", "sudo apt install b && sudo reboot"))
    )


def test_the_person_is_meant_even_under_sudo(tmp_path: Path) -> None:
    text = script.render(of("group", Fix("Join", 'mkdir "$USER"')))
    subprocess.run(
        ["sh"], input=text, text=True, check=True, cwd=tmp_path, env={**os.environ, "USER": "root", "SUDO_USER": "ada"}
    )
    assert [path.name for path in tmp_path.iterdir()] == ["ada"]


def test_a_variable_that_is_not_set_stops_nothing(tmp_path: Path) -> None:
    assert run_script(script.render(of("docker", Fix("Set", "echo $NEVER_SET_ANYWHERE && mkdir one"))), tmp_path).returncode == 0
