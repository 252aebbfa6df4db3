"""Why a container does not start: real messages of engines, judged by themselves and on hosts, and the text for people."""

from __future__ import annotations

import functools
import subprocess
from dataclasses import replace

import machine
import pytest
from each import each

from gpudoctor import catalog, start_failures
from gpudoctor.collect import collect
from gpudoctor.facts import Facts
from gpudoctor.facts.container_start import start_of
from gpudoctor.interpreter import this_interpreter
from gpudoctor.judging.containers import failed_start
from gpudoctor.knowledge import messages
from gpudoctor.knowledge.messages import Message
from gpudoctor.model import Confidence, Diagnosis, Finding, Reply, Snapshot, Status
from gpudoctor.start_failures import Start

IMAGE = "gpudoctor-test:bookworm"
SAMPLES = [(sample, row) for row in messages.messages(failed_start.CHECK_ID) for sample in row.samples]
DAEMON = "docker: Error response from daemon: "
DOCKER_28 = (
    f"{DAEMON}failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: "
)
END = "\n\nRun 'docker run --help' for more information\n"


def start(message: str, engine: str = "docker", version: str = "28.5.2", mode: str = "gpus") -> Start:
    return Start(engine, version, "an/image:1", mode, ("--gpus", "all") if mode == "gpus" else (), message, 125)


def judged(one: Start, replies: dict[str, Reply] | None = None) -> Finding:
    """The finding on a host of which nothing is known, or on one with these replies."""
    reply = Reply("ok", {**vars(one), "arguments": list(one.arguments)})
    known = machine.load("docker-host").replies if replies is None else replies
    taken = Snapshot("", "", "", {**known, "container-start": reply})
    (finding,) = catalog.checks()["container-start"].judge(Facts(taken))
    return finding


@each(("sample", "row"), SAMPLES)
def test_what_a_message_says_by_itself(sample: str, row: Message) -> None:
    """Of the host nothing is known: the daemon is on another machine."""
    one = start(sample + END)
    finding = judged(one, {})
    assert failed_start.recognised(one.words) is row
    assert finding.problem.id == row.problem
    assert finding.problem.status is Status.FAIL
    assert finding.confidence is not Confidence.UNKNOWN
    assert "docker: " not in finding.message


@pytest.mark.parametrize("code", [1, 125, 126, 127])
@pytest.mark.parametrize(
    ("sample", "row"), [entry for entry in SAMPLES if "load library" in entry[0] or "not found in" in entry[0]]
)
def test_the_exit_code_says_nothing(sample: str, row: Message, code: int) -> None:
    one = Start("docker", "28.5.2", "an/image:1", "gpus", (), sample, code)
    assert judged(one, {}).problem.id == row.problem


def test_a_fault_of_the_command_is_no_fault_of_the_host() -> None:
    """On a host whose GPU setup is broken, too, what is not about the GPU is named as what it is."""
    report = start_failures.judge(machine.load("start-command-not-found-toolkit-missing"))
    entry = start_failures.diagnosis(report)
    assert entry is not None
    assert entry.problem == "container-command-not-found"
    assert "This is not related to the GPU:" in start_failures.text(report)


def test_unknown_words_are_quoted_and_nothing_is_guessed() -> None:
    finding = judged(start(DAEMON + "the moon is in the wrong house" + END))
    assert finding.problem.id == "container-start-unexplained"
    assert finding.message == "the moon is in the wrong house"
    assert finding.confidence is Confidence.UNKNOWN
    assert "container-toolkit-missing" in finding.evidence["ruled_out"]


def test_an_engine_that_says_nothing() -> None:
    assert judged(start("")).message == "the engine printed no message"


def test_podmans_ways_out_are_podmans() -> None:
    finding = judged(start("Error: nosuch:1: image not known\n", "podman", "4.3.1", "podman"), {})
    assert [fix.command for fix in finding.problem.fixes] == ["podman image ls", "podman login <registry>"]


def test_the_version_decides_between_an_old_engine_and_one_that_is_switched_off() -> None:
    message = DAEMON + 'could not select device driver "cdi" with capabilities: []'
    assert judged(start(message, version="20.10.24+dfsg1", mode="cdi")).problem.id == "engine-too-old-for-cdi"


def test_words_leave_out_who_passed_them_on() -> None:
    one = start(next(sample for sample, row in SAMPLES if row.id == "engine-driver-not-loaded") + END)
    assert one.words == "nvidia-container-cli: initialization error: nvml error: driver not loaded"


def test_a_reply_is_read_back_as_it_was() -> None:
    one = start("words")
    assert start_of({**vars(one), "arguments": list(one.arguments), "gpus": "all", "container": ""}) == one


def explained(case: str) -> tuple[Diagnosis, str]:
    report = start_failures.judge(machine.load(case))
    entry = start_failures.diagnosis(report)
    assert entry is not None
    return entry, start_failures.text(report)


@each("case", [case for case in machine.cases() if case.startswith("start-")])
def test_the_chain_gives_one_broken_link(case: str) -> None:
    """The same as the whole suite finds, in lines that fit a terminal."""
    entry, text = explained(case)
    assert entry.problem in machine.describe(case)["problems"]
    assert entry.status is Status.FAIL
    pasted = {line for fix in entry.fixes for line in (*fix.command.splitlines(), *fix.verify.splitlines())}
    for line in text.splitlines():
        assert len(line) <= 80 or line.strip() in pasted or len(line.split()) <= 2, line
    assert entry.title in " ".join(text.split())
    assert "said: ." not in text


@each(
    ("case", "fine", "broken"),
    [
        ("start-no-gpu", "", "driver"),
        ("start-daemon-elsewhere", "", "context"),
        ("start-snap", "driver, context", "daemon, daemon.json"),
        ("start-toolkit-missing", "driver, context, daemon, daemon.json", "runtime"),
        ("start-hook-refused-in-cdi-mode", "driver, context, daemon, daemon.json, runtime", "hook"),
        ("start-podman-cdi-spec-too-new", "driver", "CDI"),
        ("start-cdi-spec-stale", "driver, context, daemon, daemon.json, runtime, hook", "CDI"),
        (
            "start-requires-cuda",
            "driver, context, daemon, daemon.json, runtime, hook, cgroups, SELinux, user namespaces",
            "NVIDIA_REQUIRE_CUDA of the image",
        ),
    ],
)
def test_the_way_is_told_in_the_order_of_the_chain(case: str, fine: str, broken: str) -> None:
    _, text = explained(case)
    told = " ".join(text.split())
    assert f"Broken: {broken} " in told
    assert (f"OK: {fine} Broken" in told) if fine else ("OK:" not in told)


def test_what_cannot_be_seen_is_not_called_fine() -> None:
    taken = machine.load("start-requires-cuda")
    remote = {
        **taken.replies,
        **{name: machine.load("start-daemon-elsewhere").replies[name] for name in ("environment", "docker")},
    }
    text = start_failures.text(start_failures.judge(replace(taken, replies=remote)))
    told = " ".join(text.split())
    assert "Not checked: the Docker daemon is on another machine (DOCKER_HOST=ssh://)" in told
    assert "Fine" not in told
    assert "Broken: NVIDIA_REQUIRE_CUDA" in told
    assert "the driver on the daemon's host supports less" in told


def test_text_for_a_person() -> None:
    _, text = explained("start-toolkit-newer-than-daemon")
    assert text == TEXT


TEXT = """\
Docker 28.5.2 did not start nvidia/cuda:13.0.1-base-ubuntu24.04. Its message:
  could not select device driver "" with capabilities: [[gpu]]

OK: driver, context, daemon, daemon.json
Broken: runtime
  Docker was started before NVIDIA's container toolkit was installed
  Seen: the hook was installed after dockerd started
  Likely, but not confirmed.
  The engine's message means: The Docker daemon found no GPU support when it
  started
  Why: The daemon looks for the toolkit's hook only when it starts. Until it is
  restarted, --gpus fails.

Fix: Restart Docker and its containers (interrupts running work, needs root)
    sudo systemctl restart docker

Check that it worked:
    docker run --rm --gpus all ubuntu nvidia-smi

More: gpudoctor explain toolkit-newer-than-daemon
"""


def test_problems_that_a_start_can_have_are_declared() -> None:
    declared = catalog.found_by(catalog.checks()["container-start"])
    assert {problem.id: problem for problem in declared} == failed_start.problems()
    assert {row.problem for _, row in SAMPLES} <= set(failed_start.problems())


@functools.cache
def this_machine() -> Snapshot:
    return collect(this_interpreter(), start_failures.SECONDS, {}, lambda names: None)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        (("--gpus", "all", IMAGE, "true"), {"no-nvidia-gpu", "container-toolkit-missing"}),
        (("--runtime", "nvidia", IMAGE, "true"), {"no-nvidia-gpu", "container-toolkit-missing"}),
        (("--device", "nvidia.com/gpu=all", IMAGE, "true"), {"engine-too-old-for-cdi", "no-nvidia-gpu", "cdi-spec-missing"}),
        ((IMAGE, "no-such-program"), {"container-command-not-found"}),
        ((IMAGE, "/etc"), {"container-command-not-executable"}),
        (("--cpuset-cpus", "4095", IMAGE, "true"), {"container-option-refused"}),
        (("--mount", "type=bind,src=/no/such/folder,dst=/x", IMAGE, "true"), {"container-mount-source-missing"}),
        (("--pull", "never", "no-such-image-of-gpudoctor:1", "true"), {"container-image-missing"}),
    ],
)
def test_a_real_engine_says_it(arguments: tuple[str, ...], problems: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_failures, "collect", lambda *asked: this_machine())
    version = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True
    ).stdout.strip()
    done = subprocess.run(["docker", "run", "--rm", "--network=none", *arguments], capture_output=True, text=True)
    assert done.returncode
    mode = {"--gpus": "gpus", "--runtime": "runtime", "--device": "cdi"}.get(arguments[0], "none")
    report = start_failures.explain(Start("docker", version, IMAGE, mode, arguments[:2], done.stderr, done.returncode))
    entry = start_failures.diagnosis(report)
    assert entry is not None, done.stderr
    assert entry.problem in problems, done.stderr
    assert f"Docker {version}" in start_failures.text(report)
