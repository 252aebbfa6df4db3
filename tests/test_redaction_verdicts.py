"""The verdict on a redacted snapshot is the one on what the machine said: the same problems, the same status of every check.

Some machines and texts stand for all; `make fuzz` (GPUDOCTOR_FUZZ) takes every one.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import pytest
import yaml
from each import each

from gpudoctor import catalog, doctor, evidence
from gpudoctor.files import snapshot
from gpudoctor.model import Report, Snapshot
from gpudoctor.redaction import redacted
from gpudoctor.report import formats

pytestmark = pytest.mark.slow

PARTS = 4
SHARE = 1 if os.environ.get("GPUDOCTOR_FUZZ") else 40  # of this many machines one is redacted, and of half as many texts
TWICE = 10  # likewise for what is redacted a second time
TEXTS = sorted((Path(__file__).parent / "texts").glob("*.yaml"))


def verdict(report: Report) -> dict[str, Any]:
    return {
        "status": report.status,
        "diagnosis": [
            (entry.problem, entry.confidence, entry.check, entry.gpu, entry.explains, entry.on_host) for entry in report.diagnosis
        ],
        "checks": [(row.id, row.status, row.blocked_by, row.reason) for row in (*report.checks, *report.host)],
    }


def to_paste(written: str) -> list[tuple[str, ...]]:
    """What must stay as it is, whatever else the sweep finds: the ids, and the lines of the fixes."""
    fixes = [(entry["problem"], fix) for entry in json.loads(written)["diagnosis"] for fix in entry["fixes"]]
    return [(problem, fix["command"], fix["verify"], fix["undo"]) for problem, fix in fixes]


def compare(taken: Snapshot, twice: bool = False) -> None:
    checks = doctor.select(catalog.checks(), "full" if taken.measured else "quick")
    done = redacted(taken)
    report = doctor.judge(done.snapshot, checks)
    assert verdict(report) == verdict(doctor.judge(taken, checks))
    written = formats.render("json", report)
    assert to_paste(done.sweep(written)) == to_paste(written)
    if twice or zlib.crc32(written.encode()) % TWICE == 0:
        again = redacted(done.snapshot)
        assert snapshot.dump(again.snapshot) == snapshot.dump(done.snapshot)
        assert again.tokens.counts() == {}


def wanted(case: str, share: int = SHARE) -> bool:
    return zlib.crc32(case.encode()) % share == 0


@pytest.mark.parametrize("part", range(PARTS))
def test_of_machines(part: int) -> None:
    cases = [case for case in machine.cases()[part::PARTS] if wanted(case)]
    assert cases
    for case in cases:
        compare(machine.load(case))


@pytest.mark.parametrize("part", range(PARTS))
def test_of_texts(part: int) -> None:
    paths = [path for path in TEXTS[part::PARTS] if wanted(path.stem, max(SHARE // 2, 1))]
    assert paths
    for path in paths:
        case = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        told = evidence.of_text(case["text"])
        if "machine" in case:
            compare(evidence.added(replace(machine.load(case["machine"]), measured={}), told))
        else:
            compare(evidence.snapshot_of(told))


def test_a_file_named_after_a_module_keeps_its_name() -> None:
    compare(machine.load("user-typing-hides-pythons"), twice=True)


@each(
    ("line", "text"),
    [
        ("#3 0x00007f12ab34cd56 in cudaMalloc@plt () from ./llama", "llama-oom"),
        ("don@box7:~$ journalctl -u nvidia-fabricmanager", "fabric-manager-mismatch-log"),
        ("#SBATCH --job-name=pipeline", "told-numba-kernel-that-cannot-be-compiled"),
        ("#SBATCH --job-name=fused", "found-ninja-only"),
        ("docker run --name validate --gpus all x", "told-operator-validator-finds-no-driver-gke"),
        ('{"user":"via"}', "triton-no-c-compiler"),
        ("ls /home/plan/x", "tensorrt-other-gpu"),
        ("ls /home/magic/x", "couldnt-communicate-another-kernel"),
        ("ls /home/layout/x", "told-ray-names-causes-that-may-be"),
        ("ls /home/resident/x", "told-wsl-refuses-to-keep-resident"),
        ("ls /home/prior/x", "dist-ddp-unused-parameters"),
        ("kim@box:/home/kim$ nvidia-smi", "shown-linux-driver-in-wsl-by-packages"),
        ("ip -br a", "told-nccl-socket-ifname-wrong"),
    ],
)
def test_a_name_that_is_a_word_of_a_message_leaves_the_message(line: str, text: str) -> None:
    case = yaml.load((TEXTS[0].parent / f"{text}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    compare(evidence.snapshot_of(evidence.of_text(f"{line}\n{case['text']}")), twice=True)
