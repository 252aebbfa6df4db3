"""`gpudoctor fleet merge`: planted faults are in the right group, and nothing healthy is accused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import html5lib
import msgspec
import pytest
import xmlschema
from each import each
from jsonschema import Draft4Validator, Draft202012Validator
from machine import load
from stand_in import run

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import fleet as planting

from gpudoctor import catalog, doctor
from gpudoctor.cli.fleet import draining
from gpudoctor.files import snapshot
from gpudoctor.fleet import draining as draining_lines
from gpudoctor.fleet import endings, kinds, losing, majority, merging, nodesets, workers
from gpudoctor.fleet.aggregate import aggregated
from gpudoctor.fleet.collected import Collector, Seen
from gpudoctor.fleet.figures import Figures
from gpudoctor.fleet.judging import Judge
from gpudoctor.fleet.model import Fleet, Problem, State
from gpudoctor.fleet.reading import Answers, Reader, kept
from gpudoctor.model import Action, Figure, Reply, Status
from gpudoctor.report import schema

SCHEMAS = Path(__file__).parent / "schemas"
QUICK, NODES = "hgx-h200-x8", 48
OF_ANSWERS = [fault for fault in planting.FAULTS if fault.found[0] != "figure"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, set[str]]]:
    folder = tmp_path_factory.mktemp("fleet") / "day1"
    folder.mkdir()
    return folder, planting.fleet(folder, NODES, QUICK, faults=OF_ANSWERS)


@pytest.fixture(scope="module")
def written(planted: tuple[Path, dict[str, set[str]]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Ending of a file -> what one merge writes to it."""
    folder = tmp_path_factory.mktemp("written")
    names = {ending: folder / f"fleet.{ending}" for ending in ("json", "html", "xml", "sarif", "prom", "txt")}
    lists = ("--good", str(folder / "good"), "--bad", str(folder / "bad"))
    done = run("fleet", "merge", str(planted[0]), *(word for name in names.values() for word in ("-o", str(name))), *lists)
    assert done.exit_code == 1, done.stderr
    return {path.name.removeprefix("fleet."): path.read_text() for path in folder.iterdir()}


@pytest.fixture
def merged(written: dict[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(written["json"])
    return told


def test_each_fault_is_in_its_group_and_nothing_healthy_in_any(
    planted: tuple[Path, dict[str, set[str]]], merged: dict[str, Any]
) -> None:
    assert planting.wrong(merged, planted[1]) == []
    silent = planted[1]["unreachable"]
    assert merged["answered"] == NODES - len(silent)
    assert merged["agree"] == NODES - len(set().union(*planted[1].values()))


def test_lost_gpus_are_counted_and_rank_the_groups(planted: tuple[Path, dict[str, set[str]]], merged: dict[str, Any]) -> None:
    of_node = {node["name"]: node for node in merged["nodes"]}
    assert [of_node[name]["lost"] for name in planted[1]["GPU 3 off the bus"]] == [[3]]
    lost = [group["lost_gpus"] for group in merged["groups"]]
    assert lost == sorted(lost, reverse=True)
    assert merged["lost_gpus"] == sum(lost) == 8 * len(planted[1]["unreachable"]) + 1 + 1 + 2


def test_every_node_is_good_or_bad(planted: tuple[Path, dict[str, set[str]]], merged: dict[str, Any]) -> None:
    good, bad = (set(nodesets.parsed([merged[name]])) for name in ("good", "bad"))
    assert not good & bad
    assert len(good | bad) == NODES
    assert planted[1]["unreachable"] | planted[1]["NVLink down"] <= bad
    assert planted[1]["older driver"] <= good
    drained = set().union(*(nodesets.parsed([drain["nodes"]]) for drain in merged["drains"]))
    assert drained == bad


def test_the_json_is_valid(merged: dict[str, Any]) -> None:
    made = schema.of_fleet()
    assert next(iter(merged)) == "schema"
    Draft202012Validator.check_schema(made)
    Draft202012Validator(made).validate(merged)


def test_the_text_fits_and_names_what_counts(written: dict[str, str]) -> None:
    head, _, rest = written["txt"].partition("To take bad nodes out of service")
    assert max(map(len, head.splitlines())) <= 80
    assert "driver 580.95.05 instead of 580.159.04" in head
    assert "GPU 3: a GPU has fallen off the bus" in head
    assert "state=drain" in rest


def test_a_known_outcome_is_that_of_judging_again(planted: tuple[Path, dict[str, set[str]]]) -> None:
    reader = Reader()
    judge = Judge({"quick": doctor.select(catalog.checks(), "quick")})
    for path in sorted(planted[0].iterdir())[:20]:
        read = reader.file(str(path))
        if isinstance(read, Answers):
            assert judge.report(read) == doctor.judge_at_its_level(read.snapshot), path.name


@each("dies", [False, True])
def test_several_processes_see_what_one_sees(dies: bool, planted: tuple[Path, dict[str, set[str]]]) -> None:
    files = tuple((path.stem, str(path)) for path in sorted(planted[0].iterdir()))[:9]
    caller = os.getpid()

    def see(reader: Reader, collecting: Collector, name: str, path: str) -> Seen:
        if dies and os.getpid() != caller and name == files[5][0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return collecting.seen(name, merging.read(reader, name, path))

    def told(processes: int) -> bytes:
        collecting = merging.collector()
        seen = workers.seen(files, collecting.alike, partial(see, Reader(), collecting), processes)
        found = {node.name: node for node in seen}
        return msgspec.json.encode(aggregated([found[name] for name, _ in files], collecting.alike), enc_hook=str)

    assert told(2) == told(1)


@pytest.fixture
def rack(planted: tuple[Path, dict[str, set[str]]], tmp_path: Path) -> Path:
    """Three nodes, of which the last one is broken."""
    folder, faults = planted
    broken = min(faults["NVLink down"])
    healthy = [path.stem for path in sorted(folder.iterdir()) if path.stem not in set().union(*faults.values())]
    few = tmp_path / "few"
    few.mkdir()
    for place, name in ((1, healthy[0]), (2, healthy[1]), (10, broken)):
        (few / f"rack1-node{place}.json").write_bytes((folder / f"{name}.json").read_bytes())
    return few


def test_redaction_hides_the_nodes_too(rack: Path, tmp_path: Path) -> None:
    page, pages = tmp_path / "fleet.html", tmp_path / "pages"
    done = run("fleet", "merge", str(rack), "--redact", "-o", str(page), "--pages", str(pages))
    assert [path.name for path in pages.iterdir()] == ["node-3.html"]
    ids = set(re.findall("GPU-[0-9a-f-]{36}", (rack / "rack1-node10.json").read_text()))
    assert ids
    for text in (done.stderr, page.read_text(), (pages / "node-3.html").read_text()):
        assert "rack1-node" not in text
        assert not [one for one in ids if one in text]


def test_each_node_that_differs_has_a_page(rack: Path, tmp_path: Path) -> None:
    page, pages = tmp_path / "fleet.html", tmp_path / "the pages"
    run("fleet", "merge", str(rack), "-o", str(page), "--pages", str(pages))
    text = page.read_text()
    assert 'href="the%20pages/rack1-node10.html"' in text
    assert text.index(">rack1-node2<") < text.index(">rack1-node10<")
    assert [path.name for path in pages.iterdir()] == ["rack1-node10.html"]
    assert "NVLink" in (pages / "rack1-node10.html").read_text()


def test_one_bad_file_costs_one_node(tmp_path: Path) -> None:
    taken = snapshot.dump(load(QUICK))
    for name in ("a1", "a2", "a3"):
        (tmp_path / f"{name}.json").write_bytes(taken)
    (tmp_path / "a4.json").write_bytes(taken[: len(taken) // 2])
    (tmp_path / "a5.json").write_bytes(b"[" * 100_000)
    (tmp_path / "a6.json").write_bytes(b'{"schema": "gpudoctor.snapshot/1", "version": 3}')
    os.mkfifo(tmp_path / "a8.json")
    (tmp_path / "$(id)\nx.json").write_bytes(taken)
    done = run("fleet", "merge", str(tmp_path), "-w", "a[1-7]", "--format", "json")
    report = json.loads(done.stdout)
    told = {node["name"]: node["state"] for node in report["nodes"]}
    assert not any(node["lost_gpus"] for node in report["nodes"] if node["state"] == "invalid")
    assert told == {
        **dict.fromkeys(("a1", "a2", "a3"), "answered"),
        **dict.fromkeys(("a4", "a5", "a6", "a8", "$(id)\\nx"), "invalid"),
        "a7": "missing",
    }
    assert "id" not in report["good"] + report["bad"] + str(report["drains"]), "lists that are pasted into a shell"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["merge", "nowhere.json"], "nowhere.json does not exist"),
        (["merge", "empty"], "contains no file of a node"),
        (["merge", "one/x.json", "two/x.json"], "two files are of the node x, as a node is named after its file"),
        (["merge", "one", "-w", "node[1-"], "not a valid set of nodes"),
        (["merge", "one", "-o", "fleet.md"], "a fleet is written as"),
        (["merge", "one", "--drain", "slurm"], "needs"),
        (["check", "--engine", "local", "-w", "node1", "--pages", "pages"], "--pages needs --save"),
        (["check", "--engine", "local"], "no nodes given"),
        (["check", "--engine", "local", "-w", "node[3-1]"], "of nodes: bad range: invalid values in range: 3-1"),
        (["check", "--engine", "local", "-w", "node1", "-x", "node1"], "-x leaves out all nodes"),
        (["check", "--engine", "local", "-g", "nosuchgroup"], "the group 'nosuchgroup' is unknown or empty"),
        (["check", "--engine", "local", "-w", "node[1-999999]"], "more than"),
        (["check", "--engine", "local", "-w", "n[1-99999999]"], "contains more than 100,000 nodes"),
        (["check", "--engine", "local", "-w", "r[1-9999]n[1-9999]"], "contains more than 100,000 nodes"),
        (["check", "--engine", "local", "-w", f"n[1-{'9' * 5000}]"], "contains more than 100,000 nodes"),
        (["check", "--engine", "local", "-w", "node1;reboot"], "not a valid"),
        (["check", "-w", "node1", "--engine-options", "-o 'x"], "is not a list of words: no closing quotation"),
        (["collective", "-w", "node[1-2]", "--engine-options", '"'], "is not a list of words: no closing quotation"),
        (["check", "--engine", "local", "-w", "node1:2222"], "--engine-options '-p 2222'"),
        (["check", "--engine", "local", "-w", "[::1]"], "write an IPv6 address without brackets"),
        (["check", "--engine", "local", "-w", "node1 node2"], "separate nodes with commas"),
    ],
)
def test_bad_input_is_one_line(args: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "one", "two"):
        (tmp_path / folder).mkdir()
    for folder in ("one", "two"):
        (tmp_path / folder / "x.json").write_text("{}")
    done = run("fleet", *args)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()[-1]) < 300


@each(
    ("word", "nodes"),
    [
        ("n[1-100000]", 100_000),
        ("n[1-999999999/10000]", 100_000),
        ("n[001-128],login[1-2]", 128),
        ("n[1-3,7]r[1-4]", 16),
        ("@gpu", 1),
        ("n[3-1]", 1),
    ],
)
def test_a_set_is_counted_before_it_is_made(word: str, nodes: int) -> None:
    assert nodesets._least_work(word) == nodes


def _seen(name: str, gpus: int, status: Status = Status.PASS, product: str = "") -> Seen:
    return Seen(name, State.ANSWERED, status=status, gpu_names=("NVIDIA H100",) * gpus, gpus=gpus, product=product)


def test_nodes_bought_with_fewer_gpus_are_a_kind_of_their_own() -> None:
    whole, half = [_seen(f"n{n}", 8) for n in range(10)], [_seen(f"h{n}", 4) for n in range(5)]
    broken, blind = _seen("n10", 7, Status.FAIL), replace(_seen("n11", 0, product="DGX"), product="")
    found = kinds.of([*whole, *half, broken, blind])
    assert found == ["NVIDIA H100"] * 10 + ["4 × NVIDIA H100"] * 5 + ["NVIDIA H100"] * 2


def test_a_slow_gpu_is_an_outlier_and_noise_is_none() -> None:
    def figures(value: float, last: float = 0) -> Figures:
        values = [*(value + gpu for gpu in range(7)), last or value + 7]
        return Figures.of(Figure("gemm", value, "TFLOP/s", gpu, 700) for gpu, value in enumerate(values))

    sound = [figures(650 + node % 5) for node in range(20)]
    assert majority.of_figures(sound) == ({("gemm", "TFLOP/s"): 655.5}, [])
    _, found = majority.of_figures([*sound[:-1], figures(650, last=480)])
    assert [(place, each.gpus, each.value) for place, each in found] == [(19, (7,), "480 TFLOP/s")]


def test_without_a_majority_nobody_differs() -> None:
    versions = [{"driver": name} for name in ("1", "2", "1", "2")]
    assert list(majority.of_versions(versions, {})) == []
    assert majority.usual(Counter("aab"), 3) == "a"
    assert majority.usual(Counter("aabb"), 4) is None
    assert majority.usual(Counter("a"), 1) is None


def test_answers_in_memory_and_in_files_have_the_same_numbers(tmp_path: Path) -> None:
    taken = load(QUICK)
    (tmp_path / "x.json").write_bytes(snapshot.dump(replace(taken, replies={**taken.replies, "new": Reply("ok", 1)})))
    reader = Reader()
    one, other = reader.file(str(tmp_path / "x.json")), reader.file(str(tmp_path / "x.json"))
    assert isinstance(one, Answers)
    assert isinstance(other, Answers)
    assert one.numbers == other.numbers


def test_every_format_is_valid(planted: tuple[Path, dict[str, set[str]]], written: dict[str, str]) -> None:
    xmlschema.XMLSchema(str(SCHEMAS / "junit-10.xsd")).validate(written["xml"])
    Draft4Validator(json.loads((SCHEMAS / "sarif-2.1.0.json").read_text())).validate(json.loads(written["sarif"]))
    assert f"gpudoctor_fleet_nodes {NODES}.0" in written["prom"]
    assert html5lib.HTMLParser(strict=True).parse(written["html"]) is not None
    silent = min(planted[1]["unreachable"])
    assert silent in nodesets.parsed([written["bad"].strip()])
    assert silent not in nodesets.parsed([written["good"].strip()])


def test_the_page_escapes_what_nodes_say(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    for number in range(3):
        taken = load(QUICK)
        version = evil if number == 2 else "580.159.04"
        nvml = {**taken.replies["nvml"].value, "system": {**taken.replies["nvml"].value["system"], "DriverVersion": version}}
        replies = {**taken.replies, "nvml": Reply("ok", nvml), "environment": Reply("ok", {"CUDA_HOME": version})}
        (tmp_path / f"n{number}.json").write_bytes(snapshot.dump(replace(taken, replies=replies)))
    done = run("fleet", "merge", str(tmp_path), "--format", "html")
    assert evil not in done.stdout
    assert "&lt;script&gt;" in done.stdout


def test_two_days_differ_in_what_was_planted(planted: tuple[Path, dict[str, set[str]]], tmp_path: Path) -> None:
    folder, faults = planted
    names = [name for fault in ("older driver", "NVLink down", "power limit") for name in sorted(faults[fault])]
    old, new = tmp_path / "old", tmp_path / "new"
    for day, change in ((old, False), (new, True)):
        day.mkdir()
        for name in ("sound", *names):
            (sick,) = (folder / f"{name if change and name != 'sound' else sorted(_sound(faults))[0]}.json",)
            (day / f"{name}.json").write_bytes(sick.read_bytes())
    (new / "later.json").write_bytes((new / "sound.json").read_bytes())
    done = run("fleet", "diff", str(old), str(new), "--format", "json")
    told = {(change["kind"], change["what"]): set(change["names"]) for change in json.loads(done.stdout)["changes"]}
    assert done.exit_code == 1
    assert told["worse", "GPU 5: An NVLink is down (nvlink-link-down)"] == faults["NVLink down"]
    low = "GPUs 0–7: A GPU's power limit is below its default (sw-power-cap-low-limit)"
    assert told["worse", low] == faults["power limit"]
    assert told["changed", "driver 580.159.04 → 580.95.05"] == faults["older driver"]
    assert told["changed", "added"] == {"later"}
    assert "sound" not in set().union(*told.values())
    assert run("fleet", "merge", str(old), "-o", str(tmp_path / "old.json"), "-q").exit_code == 0
    assert run("fleet", "diff", str(tmp_path / "old.json"), str(old)).exit_code == 0


def test_fewer_gpus_are_worse_and_a_failure_has_its_sign(tmp_path: Path) -> None:
    for day, machine in (("day1", "h200-x2-full"), ("day2", "h200-full")):
        (tmp_path / day).mkdir()
        (tmp_path / day / "n2.json").write_bytes(
            (Path(__file__).parent / "machines" / machine / "snapshot.json").read_bytes(),
        )
    days = [str(tmp_path / day) for day in ("day1", "day2")]
    worse = run("fleet", "diff", *days, "-v").stdout.partition("Worse\n")[2].partition("\n\n")[0]
    assert "  ✗ n2: GPUs 2 → 1" in worse.splitlines()
    better = run("fleet", "diff", *reversed(days), "-v").stdout.partition("Better\n")[2]
    assert "  · n2: GPUs 1 → 2" in better.splitlines()


def _sound(faults: dict[str, set[str]]) -> set[str]:
    return {f"node{number:04d}" for number in range(1, NODES + 1)} - set().union(*faults.values())


def test_one_script_for_the_nodes_that_need_the_same(planted: tuple[Path, dict[str, set[str]]], tmp_path: Path) -> None:
    folder, faults = planted
    few = tmp_path / "few"
    few.mkdir()
    for name in (*faults["power limit"], *faults["variable"], *faults["older driver"]):
        (few / f"{name}.json").write_bytes((folder / f"{name}.json").read_bytes())
    assert run("fleet", "fix", str(few), "-o", str(tmp_path / "fixes")).exit_code == 0
    first = nodesets.parsed([(tmp_path / "fixes" / "1.nodes").read_text().strip()])
    assert set(first) == faults["power limit"]
    assert sorted(path.name for path in (tmp_path / "fixes").iterdir()) == ["1.nodes", "1.sh", "2.nodes", "2.sh"]
    subprocess.run(["sh", "-n", str(tmp_path / "fixes" / "1.sh")], check=True)


def test_what_is_no_fault_of_a_node_neither_drains_it_nor_loses_its_gpus(tmp_path: Path) -> None:
    day = tmp_path / "day"
    day.mkdir()
    for name, machine in (("n1", "h100"), ("n2", "h200-full"), ("n3", "h200-x2-full"), ("n4", "hang-connect")):
        (day / f"{name}.json").write_bytes((Path(__file__).parent / "machines" / machine / "snapshot.json").read_bytes())
    (day / "p1.json").write_text("Failed to initialize NVML")
    (day / "p2.json").symlink_to("/dev/ptmx")
    (day / "n6.json").write_bytes(kept("n6", *endings.of(255, "ssh: Could not resolve hostname n6: Name or service not known")))
    (day / "n7.json").write_bytes(kept("n7", *endings.of(255, "ssh: connect to host n7 port 22: No route to host")))
    done = run("fleet", "merge", str(day), "-w", "n[1-4,9]", "--format", "json")
    told = json.loads(done.stdout)
    lost = {node["name"]: node["lost_gpus"] for node in told["nodes"] if node["state"] == "answered"}
    assert lost == dict.fromkeys(("n1", "n2", "n3", "n4"), 0)
    assert not any(group["lost_gpus"] for group in told["groups"] if any(item["kind"] == "problem" for item in group["items"]))
    assert [drain["nodes"] for drain in told["drains"]] == ["n7"]
    (day / "ALL.json").write_bytes(snapshot.dump(load("fallen-off-bus")))
    text = run("fleet", "merge", str(day), "-w", "n[1-4,9]").stdout
    assert re.search(r"(?m)^  · p\[1-2\]: the answer cannot be used$", text)
    assert re.search(r"(?m)^  · ALL: scontrol takes this name for every node$", text)
    assert re.search(r"(?m)^  · n9: no file of this node$", text)
    assert re.search(r"(?m)^  · n6: its name is not known here$", text)


def test_nodes_of_which_none_was_compared_do_not_agree(tmp_path: Path) -> None:
    machines = Path(__file__).parent / "machines"
    for name in ("h100", "h200-x2-full"):
        (tmp_path / f"{name}.json").write_bytes((machines / name / "snapshot.json").read_bytes())
    first = run("fleet", "merge", str(tmp_path), "-q").stdout
    assert "2 nodes. Too few are alike to be compared (3 or more)." in first
    for name in ("h100", "h200-x2-full"):
        (tmp_path / f"{name}.json").write_bytes((machines / "no-gpu" / "snapshot.json").read_bytes())
    assert "2 nodes, no NVIDIA GPU\n" in run("fleet", "merge", str(tmp_path)).stdout


def _problem(id: str, area: str, gpu: int | None = None) -> Problem:
    return Problem(id, "A title", "", Status.FAIL, Action.NONE, "a-check", area, gpu)


@each(
    ("problem", "gpus"),
    [
        (_problem("nvlink-link-down", "links", 5), (5,)),
        (_problem("kernel-module-not-loaded", "driver"), (0, 1, 2, 3)),
        (_problem("fewer-gpus-than-expected", "driver"), ()),  # those that are there can be used
        (_problem("nccl-socket-interface-missing", "multi-gpu"), ()),
        (_problem("cuda-visible-devices-hides-all-gpus", "cuda"), ()),
        (_problem("hang-in-kernel", "job", 1), ()),
        (_problem("framework-does-not-know-this-numpy", "python"), ()),
    ],
)
def test_only_gpus_that_cannot_be_used_are_lost(problem: Problem, gpus: tuple[int, ...]) -> None:
    assert losing.lost([problem], (), 4) == gpus


def test_problems_that_lose_no_gpu_exist() -> None:
    known = {problem.id for check in catalog.checks().values() for problem in check.problems}
    assert {*losing.COUNTS, *losing._ELSEWHERE} <= known


def test_draining_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >>{log}\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    drains = (draining_lines.drain(["n1", "n2"], "GPU 3: lost"), draining_lines.drain(["n7"], "unreachable; $(reboot)"))
    fleet = Fleet("1", Status.FAIL, 3, 3, 0, 0, 0, (), (), (), (), "", "n[1-2,7]", drains)
    answers = iter((True, False))
    monkeypatch.setattr("click.confirm", lambda *words, **how: next(answers))
    draining.drain(fleet, "slurm")
    assert log.read_text() == "update nodename=n[1-2] state=drain reason=gpudoctor: GPU 3: lost\n"
    assert drains[1].slurm.endswith("'reason=gpudoctor: unreachable; $(reboot)'")
