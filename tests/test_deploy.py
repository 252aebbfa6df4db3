"""What people install from deploy/ is valid, and calls gpudoctor as it can be called."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
import pages
import pytest
import yaml
from each import each

from gpudoctor import doctor
from gpudoctor.model import Action, Confidence
from gpudoctor.report import prometheus

DEPLOY = Path(__file__).parent.parent / "deploy"
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
DAEMONSET, ACTION, PLAYBOOK, ALERTS = (
    *("kubernetes/daemonset.yaml", "github/action.yml"),
    *("ansible/gpudoctor.yml", "systemd/alerts.yml"),
)


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def loop() -> str:
    """The program of the DaemonSet."""
    _, daemonset = yaml.safe_load_all(text(DAEMONSET))
    found: str = daemonset["spec"]["template"]["spec"]["containers"][0]["args"][0]
    return found


def scripts() -> Iterator[tuple[str, str]]:
    """The shell and the text of each script, in files of its own or not."""
    yield from (("sh", path.read_text(encoding="utf-8")) for path in SCRIPTS)
    yield "sh", loop()
    yield from (("bash", step["run"]) for step in yaml.safe_load(text(ACTION))["runs"]["steps"])


@each(("shell", "script"), scripts())
def test_a_script_is_clean(shell: str, script: str) -> None:
    program = str(Path(sys.executable).parent / "shellcheck")
    # variables that are options of gpudoctor are several words
    done = subprocess.run([program, "-s", shell, "-e", "SC2086", "-"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def calls() -> Iterator[str]:
    """Every command line of gpudoctor, with its variables as words."""
    every = "\n".join([*(script for _, script in scripts()), text("systemd/gpudoctor.service")])
    every = re.sub(r"^ *#.*$", "", every, flags=re.M)
    for line in re.findall(r'(?:gpudoctor"?|\$GPUDOCTOR"?) ((?:gate|check|report)\b[^;&|)\n]*)', every):
        words = re.sub(r'"?\$\{?(?:options\[@\]|GATE_OPTIONS)\}?"?|<.*|2>.*', "", line)
        yield re.sub(r'"?\$\{?\w+\}?', "word", words).replace('"', "").strip()


def test_every_call_is_one_that_gpudoctor_understands() -> None:
    found = list(calls())
    assert len(found) >= 6, found
    for line in found:
        pages.parse(["gpudoctor", *line.split()])


def test_the_alerts_ask_for_metrics_and_labels_that_exist() -> None:
    report = doctor.judge_at_its_level(machine.load("xid-79-fallen-off-bus"))
    written = prometheus.render(report)
    for group in yaml.safe_load(text(ALERTS))["groups"]:
        for rule in group["rules"]:
            names = re.findall(r"gpudoctor_\w+", rule["expr"])
            assert names, rule
            assert all(re.search(rf"^{name}\b", written, re.M) for name in names), rule["expr"]
            used = {*re.findall(r"(\w+)!?=\"", rule["expr"]), *re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))}
            assert all(f'{label}="' in written for label in used - {"instance"}), used
    values = {*Action, *Confidence, "fail", "warn"}
    assert set(re.findall(r'!?="([^"]+)"', "".join(re.findall(r"expr: (.*)", text(ALERTS))))) <= {
        str(getattr(v, "value", v)) for v in values
    }


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed (apt install prometheus)")
def test_prometheus_accepts_the_alerts() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yml"], cwd=DEPLOY / "systemd", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units() -> None:
    units = [str(DEPLOY / "systemd" / name) for name in ("gpudoctor.service", "gpudoctor.timer")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "gpudoctor" in line and "is not executable" not in line]
    assert said == []


def unknown_fields(value: Any, kind: str, where: str) -> Iterator[str]:
    """The fields of a manifest that the Kubernetes API does not have, or that are missing there."""
    client = pytest.importorskip("kubernetes.client", reason="the package kubernetes is not installed")
    if found := re.fullmatch(r"list\[(.+)\]|dict\(str, (.+)\)", kind):
        below = enumerate(value) if isinstance(value, list) else value.items()
        for name, each_value in below:
            yield from unknown_fields(each_value, found[1] or found[2], f"{where}.{name}")
        return
    model = getattr(client, kind, None)
    if model is None:
        return
    if not isinstance(value, dict):
        yield f"{where}: not a {kind}"
        return
    names = {json_name: name for name, json_name in model.attribute_map.items()}
    for name, below_value in value.items():
        if name in names:
            yield from unknown_fields(below_value, model.openapi_types[names[name]], f"{where}.{name}")
        else:
            yield f"{where}.{name}"
    model(**{names[name]: known for name, known in value.items() if name in names})  # ValueError if a required one is missing


@pytest.mark.slow
def test_kubernetes_knows_every_field() -> None:
    for manifest in yaml.safe_load_all(text(DAEMONSET)):
        assert list(unknown_fields(manifest, f"V1{manifest['kind']}", manifest["kind"])) == []


def test_the_daemonset_selects_its_pods_and_mounts_its_volumes() -> None:
    _, daemonset = yaml.safe_load_all(text(DAEMONSET))
    spec, pod = daemonset["spec"], daemonset["spec"]["template"]
    assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    mounted = {mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}


@each(
    ("written", "code", "said"),
    [
        ("0 \n", 0, ""),
        ("1 gpu-lost: GPU 3: it is lost\n", 1, "gpu-lost: GPU 3: it is lost\n"),
        ("3 unsure: NVML did not answer\n", 2, "unsure: NVML did not answer\n"),
        (None, 2, "does not exist"),
    ],
)
def test_the_plugin_says_what_the_daemonset_wrote(written: str | None, code: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "gate"
    file.unlink(missing_ok=True)
    if written is not None:
        file.write_text(written)
    assert plugin(file) == (code, said) or (written is None and said in plugin(file)[1] and plugin(file)[0] == code)


def test_a_verdict_of_yesterday_is_unknown(tmp_path: Path) -> None:
    file = tmp_path / "gate"
    file.write_text("1 gpu-lost\n")
    os.utime(file, (0, 0))
    code, said = plugin(file)
    assert (code, "30 minutes" in said) == (2, True)


def plugin(file: Path) -> tuple[int, str]:
    script = DEPLOY / "kubernetes/gpudoctor-npd.sh"
    done = subprocess.run(["sh", script], env={**os.environ, "GPUDOCTOR_GATE_FILE": str(file)}, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_the_loop_of_the_daemonset_writes_what_the_plugin_reads(tmp_path: Path) -> None:
    program = tmp_path / "gpudoctor"
    program.write_text("#!/bin/sh\n[ $1 = check ] && kill -TERM $PPID\n[ $1 = gate ] && echo 'gpu-lost: GPU 3' && exit 1\n")
    program.chmod(0o755)
    run = tmp_path / "run"
    script = loop().replace("/run/gpudoctor", str(run))
    done = subprocess.run(["sh", "-c", script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, timeout=20)
    assert done.returncode == 0
    assert plugin(run / "gate") == (1, "gpu-lost: GPU 3\n")


def test_the_plugin_of_node_problem_detector_is_complete() -> None:
    config = json.loads(text("kubernetes/node-problem-detector.json"))
    conditions = {condition["type"] for condition in config["conditions"]}
    for rule in config["rules"]:
        assert rule["condition"] in conditions
        assert Path(rule["path"]).name in {path.name for path in SCRIPTS}


def test_every_module_of_the_playbook_is_of_ansible_core() -> None:
    (play,) = yaml.safe_load(text(PLAYBOOK))
    keywords = {"name", "vars", "register", "changed_when", "failed_when", "when", "loop", "block"}
    tasks = [inner for task in play["tasks"] for inner in (*task.get("block", ()), *([] if "block" in task else [task]))]
    modules = [name for task in tasks for name in task if name not in keywords]
    assert len(modules) == len(tasks)
    assert all(name.startswith("ansible.builtin.") for name in modules)
