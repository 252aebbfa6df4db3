"""The script of `gpudoctor fix`: its order, what it leaves to a person, and that a shell takes it."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import limited
import machine
import pytest
from each import each

from gpudoctor.files import snapshot
from gpudoctor.model import Action, Fix, Kind, Problem
from gpudoctor.repair import plan, script
from gpudoctor.repair.plan import Step

pytestmark = pytest.mark.slow


def planned(*fixes: Fix) -> list[Step]:
    return plan.of_problem(Problem("it-is-broken", "It is broken", "It is.", Action.INSTALL), fixes)


SET = Fix("Set it", "sudo sysctl -w a=1", kind="set", needs=("root",))
KINDS = [
    (Fix("Look", "nvidia-smi -q", kind="read"), "read"),
    (Fix("Set", "sudo nvidia-smi -pm 1", kind="set"), "set"),
    (Fix("Install", "sudo apt install x", kind="install"), "install"),
    (Fix("Restart", "sudo systemctl restart x", kind="restart"), "restart"),
    (Fix("Reset", "sudo nvidia-smi --gpu-reset", kind="reset"), "reset"),
    (Fix("Run it again", "python train.py", kind="manual"), "manual"),
    (Fix("Put it right", kind="set"), "manual"),
    (Fix("Boot", kind="set", reboot=True), "manual"),
    (Fix("Set and boot", "sudo x", kind="set", reboot=True), "set"),
    (Fix("Set", "sudo x <what>", kind="set"), "manual"),
    (Fix("Set", "export X=1", kind="set", where="shell"), "manual"),
    (Fix("Set", "sudo x", kind="set", where="host"), "manual"),
    (Fix("Remove", "sudo dnf remove x", "destructive", kind="install"), "manual"),
    (Fix("Look", "sudo x --wipe --dry-run", "destructive", kind="read"), "read"),
]


@each(("fix", "expected"), KINDS)
def test_what_gpudoctor_may_do_with_a_fix(fix: Fix, expected: Kind) -> None:
    [step] = planned(fix)
    assert step.kind == expected
    assert step.may_run is (expected not in ("manual", "reset"))


def test_a_way_that_loses_something_is_left_to_a_person() -> None:
    [step] = planned(Fix("Remove it", "sudo dnf remove x", "destructive", kind="install"))
    text = script.render([step])
    assert "because it deletes data or settings" in text
    assert not re.search(r"^\s*sudo dnf remove", text, re.M)


def test_the_reboot_comes_last_and_once() -> None:
    steps = planned(Fix("A", "sudo apt install a", kind="install", reboot=True))
    steps += plan.of_problem(
        Problem("b", "B", "B.", Action.REBOOT), [Fix("B", "echo b | sudo tee /etc/b", kind="set", reboot=True)]
    )
    text = script.render(plan.ordered(steps))
    assert re.findall(r"^#     sudo reboot$", text, re.M) == ["#     sudo reboot"]
    assert text.index("sudo tee /etc/b") < text.index("sudo apt install a") < text.index("#     sudo reboot")
    assert "for steps 1, 2" in text


def test_other_ways_are_comments_and_reading_is_not() -> None:
    steps = planned(SET, Fix("Look", "ls /", kind="read"), replace(SET, title="Set it otherwise", command="sudo sysctl -w a=2"))
    assert [step.command for step in steps] == ["ls /", "sudo sysctl -w a=1"]
    text = script.render(steps)
    assert "# Alternative: Set it otherwise (needs root)\n#     sudo sysctl -w a=2" in text


def run_script(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh"], input=text, text=True, capture_output=True, cwd=tmp_path)


def test_it_stops_at_a_step_that_fails_and_says_what_takes_it_back(tmp_path: Path) -> None:
    steps = planned(Fix("First", "mkdir one && false && mkdir two", undo="rmdir one", kind="set"))
    steps += plan.of_problem(Problem("b", "B", "B.", Action.INSTALL), [Fix("B", "mkdir three", kind="set")])
    done = run_script(script.render(steps), tmp_path)
    assert done.returncode == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]
    assert "Stopped in step 1 (exit code 1)." in done.stderr
    assert "Undo: rmdir one" in done.stderr


def test_reading_in_vain_does_not_stop_it(tmp_path: Path) -> None:
    done = run_script(
        script.render(planned(Fix("Look", "grep -n x /nowhere", kind="read"), Fix("Set", "mkdir one", kind="set"))), tmp_path
    )
    assert done.returncode == 0
    assert (tmp_path / "one").is_dir()


def test_its_check_is_run_too(tmp_path: Path) -> None:
    done = run_script(script.render(planned(Fix("Set", "mkdir one", verify="test -d two", kind="set"))), tmp_path)
    assert (done.returncode, (tmp_path / "one").is_dir()) == (1, True)


def gpudoctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return limited.gpudoctor("fix", *arguments, env={**os.environ, "COLUMNS": "80", **environment})


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


@each(
    ("arguments", "words"),
    [
        (["--run"], "needs a terminal"),
        (["--run", "--replay", "x.json"], "--replay cannot be used with it"),
        (["--run", "-o", "x.sh"], "-o cannot be used with it"),
        (["--journal", "x.log"], "--journal requires --run"),
        (["--replay", "x.json", "--python", "python3"], "--python cannot be used with it"),
        (["--replay", "/nowhere.json"], "/nowhere.json"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], words: str) -> None:
    done = gpudoctor(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


UPGRADE = Fix("Upgrade", "sudo apt install b", kind="install", reboot=True)
LOAD = Fix("Load it", "sudo modprobe -r nvidia && sudo modprobe nvidia", "disruptive", kind="restart")
BOTH = (LOAD, Fix("Boot", reboot=True))


def of(problem: str, *fixes: Fix) -> list[Step]:
    return plan.of_problem(Problem(problem, f"Of {problem}", "It is.", Action.INSTALL), fixes)


def test_what_another_step_does_too_is_no_step_of_its_own() -> None:
    both = Fix("Purge and install", "sudo apt purge a && sudo apt install b", kind="install", reboot=True)
    [step] = plan.ordered([*of("small", Fix("Install", "sudo apt install b", kind="install", reboot=True)), *of("large", both)])
    assert step.command == "sudo apt purge a && sudo apt install b"
    text = script.render([step])
    assert "Of large (large)" in text
    assert "Of small (small)" in text


def test_a_part_that_only_looks_alike_stays() -> None:
    steps = plan.ordered(
        [
            *of("one", Fix("One", "sudo apt install b", kind="install")),
            *of("two", Fix("Two", "sudo apt install a b", kind="install")),
        ]
    )
    assert len(steps) == 2


def test_where_the_machine_boots_anyway_nothing_is_unloaded_by_force() -> None:
    steps = plan.ordered([*of("upgrade", UPGRADE), *of("mismatch", *BOTH)])
    assert [(step.fix.title, step.command) for step in steps] == [("Upgrade", "sudo apt install b"), ("Boot", "")]
    assert [step.fix.title for step in plan.ordered(of("mismatch", *BOTH))] == ["Load it"]


def test_a_check_waits_for_the_steps_that_it_depends_on(tmp_path: Path) -> None:
    check = of("torch", Fix("Install", "mkdir one", verify="false", kind="install"))
    done = run_script(script.render(plan.ordered([*check, *of("mismatch", BOTH[0])])), tmp_path)
    assert (done.returncode, (tmp_path / "one").is_dir()) == (0, True)
    assert (
        run_script(script.render(of("torch", Fix("Install", "mkdir two", verify="false", kind="install"))), tmp_path).returncode
        == 1
    )


def test_it_says_what_a_new_driver_means_until_the_boot() -> None:
    assert "Until the reboot, new programs on the GPU may fail." in script.render(of("old", UPGRADE))


def test_the_person_is_meant_even_under_sudo(tmp_path: Path) -> None:
    text = script.render(of("group", Fix("Join", 'mkdir "$USER"', kind="set")))
    subprocess.run(
        ["sh"], input=text, text=True, check=True, cwd=tmp_path, env={**os.environ, "USER": "root", "SUDO_USER": "ada"}
    )
    assert [path.name for path in tmp_path.iterdir()] == ["ada"]


def test_a_variable_that_is_not_set_stops_nothing(tmp_path: Path) -> None:
    assert (
        run_script(
            script.render(of("docker", Fix("Set", "echo $NEVER_SET_ANYWHERE && mkdir one", kind="set"))), tmp_path
        ).returncode
        == 0
    )
