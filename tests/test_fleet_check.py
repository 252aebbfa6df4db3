"""`gpudoctor fleet check`: what becomes of each node, by local processes, a stand-in of srun, and a real sshd."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from each import each
from fake_cluster import Cluster
from forked import Forked
from process import command_lines
from stand_in import environment, run
from waiting import until

from gpudoctor import catalog, doctor
from gpudoctor.fleet import conversation, endings, engine
from gpudoctor.fleet.how import Counts
from gpudoctor.fleet.model import State

CHEAP = ("--only", "open-files", "--timeout", "20")


def states(*args: str) -> dict[str, tuple[str, str]]:
    done = run("fleet", "check", *args, *CHEAP, "--format", "json")
    assert done.exit_code in (0, 1, 3), done.stderr
    return {node["name"]: (node["state"], node["detail"]) for node in json.loads(done.stdout)["nodes"]}


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(Path(__file__).with_name("srun.sh"), tmp_path / "bin" / "srun")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


@pytest.mark.slow
def test_what_became_of_each_node_is_told_apart(srun: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LEAVE_SECONDS", 0.3)
    monkeypatch.setattr(conversation, "MOST_BYTES", 3 << 20)
    nodes = "ok1,busy1,down1,bare1,hangs1,line1,lines1,twice1,hostile1"
    found = states("-w", nodes, "--engine", "slurm", "--fanout", "4")
    assert {name: state for name, (state, _) in found.items()} == {
        "ok1": "no-gpu",
        "busy1": "busy",
        "down1": "unreachable",
        "bare1": "failed",
        "hangs1": "no-gpu",
        "line1": "flooded",
        "lines1": "flooded",
        "twice1": "no-gpu",
        "hostile1": "invalid",
    }
    assert "Requested nodes are busy" in found["busy1"][1]
    until(lambda: not command_lines("sleep 613"))


def test_a_silent_node_has_its_own_time_limit(srun: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.cli.fleet.check._BEYOND", -19.5)
    assert states("-w", "silent1", "--engine", "slurm")["silent1"] == ("timed-out", "its shell did not start")


def test_a_node_without_python_answers_by_its_shell() -> None:
    found = states("-w", "n1", "--engine", "local", "--python", "/nowhere/python")
    assert found["n1"][0] == "no-python"


def test_an_interrupted_run_reports_what_it_has_and_leaves_nothing(srun: None, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpudoctor", "fleet", "check", "-w", "silent[1-2],busy1", "--engine", "slurm", *CHEAP]
    kept = tmp_path / "kept"
    with Forked([*command, "--save", str(kept)], stdout=subprocess.PIPE, text=True, env=environment()) as running:
        until(lambda: (kept / "busy1.json").exists())
        running.send_signal(signal.SIGINT)
        told, _ = running.communicate()
    assert running.returncode == 130
    assert "silent[1-2] (2 nodes)\n    interrupted before it answered" in told
    assert "· busy1: the scheduler gave no access" in told
    assert "nodename=" not in told
    until(lambda: not command_lines("sleep 613"))


@pytest.mark.slow
def test_answers_are_kept_and_merge_to_the_same(tmp_path: Path) -> None:
    day = tmp_path / "day1"
    done = run("fleet", "check", "-w", "n[1-2]", "--engine", "local", "--save", str(day), *CHEAP, "-q")
    assert done.exit_code == 1
    assert sorted(path.name for path in day.iterdir()) == ["n1.json", "n2.json"]
    again = run("fleet", "merge", str(day), "-q")
    assert "2 nodes. Too few are alike to be compared" in done.stdout
    assert again.stdout.splitlines()[0] == done.stdout.splitlines()[0]


def test_what_was_answered_before_the_end_is_kept() -> None:
    ended: list[tuple[Any, ...]] = []
    checks = doctor.select(catalog.checks(), "quick")
    node = engine._Node(
        "n1", conversation.Asked(checks, "quick"), lambda *told: ended.append(told), Counts(1), lambda doing: None
    )
    worker = Worker()
    node.ev_start(worker)
    talk = node._talk.marker
    node.ev_read(worker, "n1", "stdout", f'{talk}{{"python": "/usr/bin/python3"}}'.encode())
    assert worker.written.startswith(b"job\n")
    for value in ("first", "second"):
        reply = json.dumps({"status": "ok", "value": value, "detail": "", "seconds": 0})
        node.ev_read(worker, "n1", "stdout", f'{talk}{{"question": "file:/proc/version", "reply": {reply}}}'.encode())
    node.ev_close(worker, True)
    ((name, answers, state, detail),) = ended
    assert (name, state, detail) == ("n1", State.PARTIAL, "time limit reached while collecting")
    assert answers.replies["file:/proc/version"].value == "first"


class Worker:
    """Stands in for ClusterShell's."""

    SNAME_STDOUT = "stdout"

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def test_progress_counts_to_a_thousand() -> None:
    counts = Counts(1000, running=64, done=312, silent=3)
    assert counts.words() == "312 of 1,000 nodes done, 3 without an answer, 64 running"


@each(
    ("code", "said", "state", "detail"),
    [
        (255, "ssh: connect to host n1 port 22: No route to host", State.UNREACHABLE, "No route to host"),
        (255, "ssh: connect to host n1 port 22: Connection refused", State.REFUSED, "Connection refused"),
        (255, "@@@@\nHost key verification failed.", State.HOST_KEY, "Host key verification failed."),
        (255, "me@n1: Permission denied (publickey).", State.REFUSED, "Permission denied (publickey)."),
        (255, "ssh: Could not resolve hostname n1: Name or service not known", State.UNREACHABLE, ""),
        (255, "", State.UNREACHABLE, ""),
        (1, "srun: error: Unable to allocate resources: Requested nodes are busy", State.BUSY, ""),
        (127, "bash: sh: command not found", State.FAILED, "bash: sh: command not found"),
        (0, "", State.FAILED, "no output"),
    ],
)
def test_errors_of_ssh_and_srun(code: int, said: str, state: State, detail: str) -> None:
    found, words = endings.of(code, said)
    assert found is state
    assert detail in words
    assert "n1" not in words or detail


# A real sshd


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[str]:
    """Options for ssh with which node1 to node8 are this machine, behind one sshd."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not program or not shutil.which("ssh-keygen"):
        pytest.skip("openssh-server is not installed")
    if os.geteuid():
        pytest.skip("a login of another process needs root")
    folder, port = tmp_path / "ssh", _port()
    folder.mkdir(mode=0o700)
    for name in ("host", "other", "user", "stranger"):
        _key(folder / name)
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    host, other = ((folder / f"{name}.pub").read_text().split()[1] for name in ("host", "other"))
    names = [f"node{number}" for number in range(1, 9)]
    keys = [f"{name} ssh-ed25519 {host}" for name in names] + [f"changed1 ssh-ed25519 {other}"]
    (folder / "known_hosts").write_text("\n".join([*keys, f"stranger1 ssh-ed25519 {host}"]) + "\n")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\n"
        "UsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nPidFile none\n"
    )
    (folder / "config").write_text(
        "".join(f"Host {name}\n  HostKeyAlias {name}\n" for name in (*names, "changed1", "new1", "stranger1"))
        + f"Host closed1\n  Port {_port()}\nHost stranger1\n  IdentityFile {folder}/stranger\n"
        f"Host * !stranger1\n  IdentityFile {folder}/user\n"
        f"Host *\n  HostName 127.0.0.1\n  Port {port}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    with subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL) as server:
        until(lambda: _listens(port))
        yield f"-F {folder}/config"
        server.terminate()


@pytest.mark.slow
def test_nodes_behind_a_real_sshd(sshd: str) -> None:
    found = states("-w", "node[1-2],changed1,new1,stranger1,closed1", "--engine-options", sshd)
    told: dict[str, Any] = {name: state for name, (state, _) in found.items()}
    assert told == {
        "node1": "no-gpu",
        "node2": "no-gpu",
        "changed1": "host-key",
        "new1": "host-key",
        "stranger1": "refused",
        "closed1": "refused",
    }
    until(lambda: not [line for line in command_lines("SSH_CONNECTION=127.0.0.1").values() if "sh -c" in line])


# Kubernetes


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    nodes = {"gpu1": 8, "gpu2-notready": 8, "gpu3-pending": 8, "cpu1": 0}
    with Cluster(nodes) as server:
        (tmp_path / "kubeconfig").write_text(server.config)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        monkeypatch.setattr("gpudoctor.fleet.jobs.POLL_SECONDS", 0.05)
        yield server
        server.shutdown()


@pytest.mark.slow
def test_one_job_for_each_node_of_a_cluster(cluster: Cluster) -> None:
    found = states("--engine", "kubernetes", "-x", "gpu3-pending")
    assert found["gpu1"][0] == "no-gpu"
    assert found["gpu2-notready"] == ("unreachable", "not ready: Kubelet stopped posting node status.")
    assert "cpu1" not in found
    assert not cluster.jobs
    assert not cluster.inputs
    job = cluster.created[0]
    spec = job["spec"]["template"]["spec"]
    assert job["spec"]["ttlSecondsAfterFinished"] == 600
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["containers"][0]["command"][3] == "/host"


def test_a_pod_that_does_not_start(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.cli.fleet.check._BEYOND", -19.5)
    found = states("--engine", "kubernetes", "-w", "gpu3-pending")
    assert found["gpu3-pending"] == ("timed-out", "ImagePullBackOff: Back-off pulling image")
    assert not cluster.jobs


def test_what_became_of_each_job_is_told_apart(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.nodes = {"c-deleted": 8}
    assert states("--engine", "kubernetes") == {"c-deleted": ("interrupted", "its Job was deleted")}
    monkeypatch.setattr("gpudoctor.cli.fleet.check._BEYOND", -18.0)
    names = ("a-unschedulable", "b-quota", "d-evicted", "e-pending", "f-unplaced", "g-full")
    cluster.nodes = dict.fromkeys(names, 8)
    done = run("fleet", "check", "--engine", "kubernetes", *CHEAP, "--format", "json")
    report = json.loads(done.stdout)
    assert {node["name"][2:]: (node["state"], node["detail"]) for node in report["nodes"]} == {
        "unschedulable": ("busy", "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
        "quota": (
            "busy",
            'the pod was not created: Error creating: pods "x" is forbidden: exceeded quota: team, '
            "requested: pods=1, used: pods=9, limited: pods=9",
        ),
        "evicted": ("busy", "Evicted: The node was low on resource: memory."),
        "pending": ("timed-out", "ImagePullBackOff: Back-off pulling image"),
        "unplaced": ("busy", "the pod was not scheduled"),
        "full": ("busy", "OutOfcpu: Node didn't have enough resource: cpu"),
    }
    assert report["drains"] == [], "none of this is a fault of a node"
    assert not cluster.jobs
    assert not cluster.inputs


@pytest.mark.parametrize(
    ("refused", "said", "left"),
    [
        ({"GET nodes": (403, "nodes is forbidden")}, "refused a request: 403 nodes is forbidden", 0),
        ({"GET nodes": (401, "Unauthorized")}, "401 Unauthorized; does kubectl get nodes work? A token may have expired", 0),
        ({"POST configmaps": (403, "configmaps is forbidden")}, "403 configmaps is forbidden", 0),
        (
            {"GET pods": (401, "Unauthorized"), "DELETE jobs": (401, "Unauthorized")},
            "delete job,configmap -l gpudoctor.io/run=",
            1,
        ),
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing(
    refused: dict[str, tuple[int, str]], said: str, left: int, cluster: Cluster
) -> None:
    cluster.refused = refused
    done = run("fleet", "check", "--engine", "kubernetes", *CHEAP, "-w", "gpu1")
    assert done.exit_code == 3
    assert said in done.stderr
    assert len(cluster.jobs) == left
    assert not [line for line in done.stderr.splitlines() if "Traceback" in line]


def test_what_others_answered_survives_a_token_that_expires(cluster: Cluster) -> None:
    cluster.refused = {"GET pods": (401, "Unauthorized")}
    found = states("--engine", "kubernetes", "-w", "gpu2-notready,gpu1")
    assert found["gpu2-notready"][0] == "unreachable"
    assert found["gpu1"][0] == "interrupted"
    assert not cluster.jobs


def test_a_pod_without_python_is_asked_by_its_shell(cluster: Cluster) -> None:
    found = states("--engine", "kubernetes", "-w", "gpu1", "--view", "pod", "--python", "/nowhere/python")
    assert found["gpu1"][0] == "no-python"
    first, second = cluster.created
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "8"}}


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--namespace", "closed"], 3, "jobs.batch is forbidden"),
        (["--context", "nosuch"], 2, "no Kubernetes cluster is configured"),
        (["-w", "gpu9"], 3, ""),
    ],
)
def test_a_cluster_that_refuses(cluster: Cluster, args: list[str], code: int, said: str) -> None:
    done = run("fleet", "check", "--engine", "kubernetes", *CHEAP, *args)
    assert done.exit_code == code, done.stderr
    assert said in done.stderr
    assert not cluster.jobs
