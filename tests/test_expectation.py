"""Expectations: what a file or a type says is compared with the machine, a bad file is one line, and a written file holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import machine
import pytest
import yaml
from click.testing import CliRunner
from each import each

from gpudoctor import catalog, doctor
from gpudoctor.cli import main
from gpudoctor.errors import UserError
from gpudoctor.files import expectation, snapshot
from gpudoctor.judging import expected
from gpudoctor.knowledge import expectations
from gpudoctor.model import Reply, Snapshot, Status
from gpudoctor.report import schema

HEAD = f"schema: {expectations.SCHEMA}\n"


def result_of(taken: Snapshot, given: dict[str, Any]) -> tuple[Status, str]:
    """Status and words of the check, with this expectation."""
    whole = {"from": "file.yaml", "schema": expectations.SCHEMA, **given} if given else {}
    report = doctor.judge(replace(taken, expectation=whole), doctor.select(catalog.checks(), "quick", ["expectation"]))
    row = next(row for row in report.checks if row.id == "expectation")
    return row.status, row.message


WITH_PARTS: dict[str, Any] = {
    "cpu-topology": {"present": "0-63", "online": "0-63", "offline": "", "cores": 64, "sockets": 2},
    "disks": {"nvme0n1": {"bytes": 2 * 10**12}, "sda": {"bytes": 480 * 10**9}},
    "network-interfaces": {
        "eth0": {"state": "up", "type": "1", "mbit_per_s": 100000, "device": "0000:0a:00.0"},
        "ib0": {"state": "up", "type": "32", "mbit_per_s": 400000, "device": "0000:0b:00.0"},
        "ens9": {"state": "up", "type": "1", "mbit_per_s": -1, "device": "virtio3"},
        "br0": {"state": "up", "type": "1", "mbit_per_s": 100000, "device": ""},
    },
    "infiniband-rates": {"mlx5_0/1": "400 Gb/sec (4X NDR)", "mlx5_1/1": "200 Gb/sec (4X HDR)"},
    "glob:/sys/class/infiniband/*/ports/*/state": [f"/sys/class/infiniband/mlx5_{n}/ports/1/state" for n in (0, 1)],
    **{f"file:/sys/class/infiniband/mlx5_{n}/ports/1/state": "4: ACTIVE\n" for n in (0, 1)},
    **{f"file:/sys/class/infiniband/mlx5_{n}/ports/1/{name}": "x\n" for n in (0, 1) for name in ("phys_state", "link_layer")},
}


def whole_machine() -> Snapshot:
    taken = machine.load("h200-x2")
    return replace(taken, replies={**taken.replies, **{question: Reply("ok", value) for question, value in WITH_PARTS.items()}})


@each(
    ("given", "said"),
    [
        ({"gpus": [{"model": "H200", "count": 2, "memory_gib": 144}]}, ""),
        ({"gpus": [{"model": "NVIDIA H200", "count": 1}]}, ""),
        ({"gpus": [{"model": "H200", "count": 8}]}, "GPUs of model H200: 2 instead of 8"),
        ({"gpus": [{"model": "H100", "count": 2}]}, "GPUs of model H100: 0 and 2 × NVIDIA H200 instead of 2"),
        ({"gpus": [{"model": "200", "count": 2}]}, "GPUs of model 200: 0 and 2 × NVIDIA H200 instead of 2"),
        ({"gpus": [{"model": "H200", "count": 2, "memory_gib": 192}]}, "memory of GPU 0, 1: 140 GiB instead of 192 GiB"),
        ({"nvlinks_per_gpu": 18}, ""),
        ({"nvlinks_per_gpu": 20}, "NVLinks of GPU 0: 18 instead of 20; NVLinks of GPU 1: 18 instead of 20"),
        ({"driver": {"at_least": "580", "below": "581"}}, ""),
        ({"driver": {"at_least": "580.200"}}, "driver: 580.159.04 instead of 580.200 or newer"),
        ({"driver": {"below": "580.159.04"}}, "driver: 580.159.04 instead of a release before 580.159.04"),
        ({"cpus": 64, "cores": 64, "numa_nodes": 1, "memory_gib": 255}, ""),
        ({"cpus": 128}, "processors: 64 instead of 128"),
        ({"cores": 128}, "processor cores: 64 instead of 128"),
        ({"numa_nodes": 9}, "NUMA nodes: 1 instead of 9"),
        ({"memory_gib": 264}, "memory: 252 GiB instead of 264 GiB"),
        ({"disks": {"count": 2}}, ""),
        ({"disks": {"count": 2, "gigabytes": 1920}}, "disks of 1920 GB or more: 1 instead of 2"),
        ({"network": {"count": 3}}, ""),
        ({"network": {"count": 4}}, "network adapters that are up: 3 instead of 4"),
        ({"network": {"count": 2, "gbit_per_s": 400}}, ""),
        (
            {"network": {"count": 3, "gbit_per_s": 400}},
            "network adapters that are up: 2 (eth0 100 Gbit/s) instead of 3 with 400 Gbit/s",
        ),
        ({"infiniband": {"count": 2, "gbit_per_s": 200}}, ""),
        (
            {"infiniband": {"count": 2, "gbit_per_s": 400}},
            "active InfiniBand or RoCE ports: 1 (mlx5_1/1 200 Gbit/s) instead of 2 with 400 Gbit/s",
        ),
        ({"persistence_mode": True}, ""),
        ({"persistence_mode": False}, "persistence mode of GPU 0, 1: on instead of off"),
        ({"mig_per_gpu": {}}, ""),
        (
            {"mig_per_gpu": {"1g.18gb": 7}},
            "MIG instances of GPU 0: none instead of 7 × 1g.18gb; MIG instances of GPU 1: none instead of 7 × 1g.18gb",
        ),
    ],
)
def test_what_differs_is_said_and_what_does_not_is_not(given: dict[str, Any], said: str) -> None:
    status, message = result_of(whole_machine(), given)
    assert message == (
        f"{said}; expected of file.yaml" if said else f"the hardware is as expected of file.yaml ({len(given)} things compared)"
    )
    assert status is (Status.PASS if not said else Status.WARN if said.startswith(("driver", "persist", "MIG")) else Status.FAIL)


def test_what_cannot_be_read_is_no_pass() -> None:
    taken = machine.load("h200-x2")
    assert result_of(taken, {"cpus": 8})[0] is Status.SKIP
    assert result_of(taken, {"cpus": 8, "gpus": [{"model": "H200", "count": 3}]})[0] is Status.FAIL


def test_a_known_type_is_compared_by_itself_only_on_a_host_and_only_by_what_is_certain() -> None:
    taken = machine.load("healthy-aws-p5-with-efa")
    status, message = result_of(taken, {})
    assert (status, message) == (Status.PASS, "the hardware is as expected of p5.48xlarge (2 things compared)")
    by_cloud_init = {
        "file:/sys/class/dmi/id/sys_vendor": Reply("ok", "Microsoft Corporation\n"),
        "file:/sys/class/dmi/id/product_name": Reply("ok", "Virtual Machine\n"),
        "cloud": Reply("ok", {"asset_tag": "", "instance_type": "Standard_ND96isr_H100_v5"}),
    }
    assert "Standard_ND96isr_H100_v5 (2" in result_of(replace(taken, replies={**taken.replies, **by_cloud_init}), {})[1]
    in_job = {**taken.replies, "file:/proc/self/cgroup": Reply("ok", "0::/system.slice/slurmstepd.scope/job_7\n")}
    assert result_of(replace(taken, replies=in_job), {})[0] is Status.SKIP
    assert result_of(machine.load("h100"), {})[0] is Status.SKIP


@each(
    ("text", "said"),
    [
        ("", "no line 'schema:"),
        ("- 1\n", "no line 'schema:"),
        ("{", "is not YAML"),
        ("[" * 100_000, "more than 20 levels in line 1"),
        (HEAD + "name: " + "- " * 50_000, "is not YAML"),
        (HEAD + "a: &a [1, 2]\ngpus: [*a, *a]\n", "an alias in line 3"),
        ("a: &a [*a]\n", ""),
        (b"\xff\xfe\x00".decode("latin1"), ""),
        ("schema: gpudoctor.expectation/9\n", "Invalid enum value"),
        (HEAD + "gpu: 8\n", "unknown field `gpu`"),
        (HEAD + "cpus: many\n", "Expected `int"),
        (HEAD + "cpus: -1\n", ">= 0"),
        (HEAD + "driver: {at_least: newest}\n", "matching regex"),
        (HEAD + "gpus: [{model: '', count: 1}]\n", "length >= 1"),
        (HEAD + "memory_gib: .nan\n", ""),
    ],
)
def test_a_bad_file_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as wrong:
        expectation.named(str(file))
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_an_unknown_name_and_a_missing_file_are_one_line_with_exit_code_2(tmp_path: Path) -> None:
    for name, said in (("p5.48xlrge", "did you mean p5.48xlarge"), (str(tmp_path / "none.yaml"), "No such file")):
        done = CliRunner().invoke(main, ["check", "--replay", "unread.json", "--expect", name])
        assert (done.exit_code, said in done.output, done.output.count("\n")) == (2, True, 1), done.output


def test_what_is_written_fits_its_machine_and_the_published_schema(tmp_path: Path) -> None:
    saved, written = tmp_path / "machine.json", tmp_path / "expected.yaml"
    saved.write_bytes(snapshot.dump(whole_machine()))
    done = CliRunner().invoke(main, ["expect", "write", "--replay", str(saved), "--name", "rack 7", "-o", str(written)])
    assert done.exit_code == 0, done.output
    plain = yaml.safe_load(written.read_text())
    jsonschema.validate(plain, schema.of_expectation())
    assert plain["gpus"] == [{"model": "NVIDIA H200", "count": 2, "memory_gib": 140.0}]
    assert plain["infiniband"] == {"count": 2, "gbit_per_s": 200.0}
    assert plain["mig_per_gpu"] == {}
    named = expectation.named(str(written))
    assert named.pop("from") == "expected.yaml"
    assert result_of(whole_machine(), named)[0] is Status.PASS
    smaller = {**whole_machine().replies, "cpu-topology": Reply("ok", {**WITH_PARTS["cpu-topology"], "online": "0-31"})}
    saved.write_bytes(snapshot.dump(replace(whole_machine(), replies=smaller)))
    done = CliRunner().invoke(
        main, ["check", "--replay", str(saved), "--expect", str(written), "--format", "json", "--only", "expectation"]
    )
    assert [entry["problem"] for entry in json.loads(done.output)["diagnosis"]] == ["host-not-as-expected"]


def test_a_sick_machine_is_not_written(tmp_path: Path) -> None:
    saved = tmp_path / "machine.json"
    saved.write_bytes(snapshot.dump(machine.load("p5-with-seven-gpus")))
    assert CliRunner().invoke(main, ["expect", "write", "--replay", str(saved)]).exit_code == 0  # all that it has is healthy
    saved.write_bytes(snapshot.dump(machine.load("fallen-off-bus")))
    done = CliRunner().invoke(main, ["expect", "write", "--replay", str(saved)])
    assert (done.exit_code, "--force writes it anyway" in done.output) == (2, True)


@each(
    ("words", "begins"), [(("expect", "show", "p5"), "Error: unknown"), (("check", "--expect", "p5"), "Error: --expect: unknown")]
)
def test_an_unknown_type_is_told_with_the_option_that_was_typed(words: tuple[str, ...], begins: str) -> None:
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stderr.startswith(begins)) == (2, True), done.stderr


def test_list_and_show() -> None:
    rows = CliRunner().invoke(main, ["expect", "list", "aws", "h100"]).output
    assert [line.split()[0] for line in rows.splitlines()] == ["p5.4xlarge", "p5.48xlarge"]
    shown = CliRunner().invoke(main, ["expect", "show", "P5.48xlarge"]).output
    assert yaml.safe_load(shown)["cpus"] == 192
    assert "# Source: https://github.com/aws/" in shown
    row = json.loads(CliRunner().invoke(main, ["expect", "show", "dgx-h100", "--format", "json"]).output)[0]
    assert (row["provider"], row["nvlinks_per_gpu"], row["verified"]) == ("nvidia", 18, True)


def test_each_row_of_the_table_is_reached_by_its_name_and_says_something() -> None:
    table = expectations.table()
    assert {key for kind in table.types for key in kind.source} == table.sources.keys()
    names = [kind.name for kind in table.types]
    assert len(names) == len({name.lower() for name in names})
    for kind in table.types:
        assert kind.gpus
        assert expectations.named(kind.name.upper()) is kind
        for product in kind.product:
            assert expectations.by_dmi(kind.vendor, product.rstrip("*")) is kind
    assert not expected.is_called("NVIDIA GH200 480GB", "H200")
