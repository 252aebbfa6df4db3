"""`gpudoctor profile --kernel`: source, PTX and SASS beside each other, and what autotuners measured.

tests/kernels has what nvcc, nvdisasm and cuobjdump 13.0 print of a small kernel, with its line information.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpudoctor.checkup import Checkup
from gpudoctor.jobs.tracing import engines, kernel_code, listing, ncu
from gpudoctor.jobs.tracing import tuned as measured
from gpudoctor.jobs.tracing.kernel_code import CACHES, Tools
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot
from gpudoctor.worker.tracing import tuned

RECORDED = Path(__file__).parent / "kernels"
NAME = "_Z5saxpyifPKfPf"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8").replace("/home/me", str(RECORDED))


def test_each_line_has_its_instructions() -> None:
    listed = listing.read(recorded("saxpy.sass"), recorded("saxpy.ptx"), NAME)
    rows = {row["line"]: row for row in listed.rows()}
    assert rows[4] == {
        "file": str(RECORDED / "saxpy.cu"),
        "line": 4,
        "text": "y[i] = a * x[i] + y[i];",
        "ptx": 7,
        "sass": 10,
        "local": 0,
        "global": 3,
        "shared": 0,
        "tensor": 0,
    }
    assert "    fma.rn.f32 %f4, %f2, %f1, %f3" in listed.as_text()
    assert "| FFMA R7, R2, UR6, R7" in listed.as_text()
    assert listing.read(recorded("saxpy.sass"), recorded("saxpy.ptx"), "other").rows() == []
    assert listing.resources(recorded("saxpy.usage")) == {NAME: {"registers": 10, "stack_bytes": 0, "shared_bytes": 0}}


def test_spills_and_tensor_cores_are_counted() -> None:
    sass = "\n\t.section\t.text.k,\n" + "".join(
        f"        /*{number:04x}*/   {words} ;\n"
        for number, words in enumerate(
            [
                "@!P0 LDL R1, [R2]",
                "STL.64 [R1], R2",
                "HMMA.16816.F32 R1, R2",
                "HGMMA.64x64x16.F32 R1",
                "LDS R3, [R4]",
                "NOP",
                "LDC R1",
            ]
        )
    )
    counted = listing.read(sass, "", "k").counted()
    assert counted == {"instructions": 6, "local": 2, "global": 0, "shared": 1, "tensor": 2}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As Triton leaves its cache: two variants of a kernel, and the times that were measured before."""
    for number, warps in enumerate((8, 4)):
        room = tmp_path / CACHES / "triton" / f"HASH{number}"
        room.mkdir(parents=True)
        (room / f"{NAME}.cubin").write_bytes(b"\x7fELF")
        (room / f"{NAME}.ptx").write_text(recorded("saxpy.ptx"))
        about = {"name": NAME, "num_warps": warps, "num_stages": 3, "shared": 512}
        (room / f"{NAME}.json").write_text(json.dumps(about))
    timings = [
        [{"kwargs": {"BLOCK": 256}, "num_warps": 8, "num_stages": 3, "num_ctas": 1, "maxnreg": None}, [0.5, 0.4, 0.6]],
        [{"kwargs": {"BLOCK": 1024}, "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}, [0.25, 0.2, 0.3]],
        [{"kwargs": {"BLOCK": 65536}, "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}, [float("inf")] * 3],
    ]
    file = tmp_path / CACHES / "triton/HASH0/saxpy.autotune.json"
    file.write_text(json.dumps({"key": [4096, "torch.float32"], "configs_timings": timings}))
    outputs = {"nvdisasm": recorded("saxpy.sass"), "cuobjdump": recorded("saxpy.usage")}
    monkeypatch.setattr(Tools, "run", lambda self, name, *options, within=None: outputs[name])
    return tmp_path


def shown(kernel: dict[str, Any], width: int = 120) -> str:
    value = {
        "line": "python train.py",
        "engine": "ncu",
        "engine_why": "",
        "nothing": "",
        "notes": [],
        "ranks": [],
        "kernel": kernel,
    }
    taken = Snapshot(SNAPSHOT_SCHEMA, "0", "2026-11-23T08:00:00Z", {"job-profile": Reply("ok", value)}, level="quick")
    return Checkup(snapshot=taken).render("text")


def test_the_variant_that_ran_is_shown_beside_the_others(folder: Path) -> None:
    found = kernel_code.told("saxpy", {"threads_per_block": 256, "registers": 10}, folder, ("true",), sys.executable, True)
    code = found["code"]
    assert [(one["warps"], one["registers"], one["instructions"]) for one in code["variants"]] == [(8, 10, 20), (4, 10, 20)]
    assert (code["chosen"], code["origin"], code["function"]) == (0, "Triton", NAME)
    configs = found["tuned"][0]["configs"]
    assert [(one["config"]["BLOCK"], one["ms"]) for one in configs] == [(1024, 0.25), (256, 0.5), (65536, None)]
    assert sorted(file.name for file in (folder / "code").iterdir()) == sorted(
        ["listing.txt", "kernel.sass", f"{NAME}.cubin", f"{NAME}.json", f"{NAME}.ptx"]
    )
    assert not (folder / CACHES).exists()
    assert found["measured_before_the_choice"]
    text = " ".join(shown({"wanted": "saxpy", **found}).split())
    assert "BLOCK=1024 num_warps=4 num_stages=3 num_ctas=1 250.00 1.00 ×" in text
    assert "saxpy.cu:4 y[i] = a * x[i] + y[i]; 7 10 3 0 0 0" in text


def test_without_counters_the_choice_of_the_autotuner_is_shown(folder: Path) -> None:
    file = folder / CACHES / "triton/HASH0/saxpy.autotune.json"
    file.write_text(file.read_text().replace("0.5, 0.4, 0.6", "0.1, 0.1, 0.1"))
    code = kernel_code.told("saxpy", {}, folder, ("true",), None, False)["code"]
    assert code["variants"][code["chosen"]]["warps"] == 8


def test_inductor_says_what_a_kernel_was_made_from() -> None:
    text = """\
# kernel path: /tmp/torchinductor_me/hg/chg2.py
# Topologically Sorted Source Nodes: [mul, gelu], Original ATen: [aten.mul, aten.gelu]
# Source node to ATen node mapping:
#   gelu => mul_1
# Graph fragment:
#   %mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%arg0_1, 2), kwargs = {})
triton_poi_fused_gelu_mul_0 = async_compile.triton('triton_poi_fused_gelu_mul_0', 'import triton')
"""
    nodes, graph = listing.of_inductor(text, "triton_poi_fused_gelu_mul_0")
    assert nodes.endswith("Original ATen: [aten.mul, aten.gelu]")
    assert graph.startswith("%mul")
    assert listing.of_inductor(text, "triton_poi_fused_gelu_mul_1") == []


def test_without_a_disassembler_the_ptx_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tools, "run", lambda self, name, *options, within=None: "")
    found = kernel_code.told("saxpy", {}, folder, ("true",), None, False)
    assert "cuobjdump and nvdisasm are not installed" in found["code"]["nothing"]
    assert "Without the machine's code: no SASS" in " ".join(shown({"wanted": "saxpy", **found}).split())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"configs_timings": 5}', '{"configs_timings": [[1, 2]]}', "\0"])
def test_a_cache_of_another_form_has_no_times(folder: Path, text: str) -> None:
    for file in (folder / CACHES).glob("**/*.json"):
        file.write_text(text)
    (folder / "tuned-1.jsonl").write_text(text + "\n")
    assert "tuned" not in kernel_code.told("saxpy", {}, folder, ("true",), None, False)


def test_inductors_autotuner_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Launcher:
        def __init__(self, size: int) -> None:
            self.config = SimpleNamespace(kwargs={"XBLOCK": size}, num_warps=4, num_stages=1)

    class CachingAutotuner:
        fn = SimpleNamespace(__name__="triton_poi_fused_add_0")

        def benchmark_all_configs(self, *args: Any) -> dict[Any, float]:
            return {Launcher(512): 0.02, Launcher(1024): float("inf")}

    module = SimpleNamespace(CachingAutotuner=CachingAutotuner)
    called: list[str] = []
    monkeypatch.setattr(tuned, "_call", called.append)
    tuned.attach(module, {"folder": str(tmp_path)})
    assert len(module.CachingAutotuner().benchmark_all_configs(1)) == 2
    assert called == ["cuProfilerStop", "cuProfilerStart"]
    (row,) = measured.rows(tmp_path, tmp_path / "none", "fused_add")
    assert (row["by"], row["kernel"]) == ("Inductor", "triton_poi_fused_add_0")
    assert row["configs"] == [
        {"config": {"XBLOCK": 512, "num_warps": 4, "num_stages": 1}, "ms": 0.02},
        {"config": {"XBLOCK": 1024, "num_warps": 4, "num_stages": 1}, "ms": None},
    ]


def test_a_report_that_was_kept_is_read() -> None:
    """`ncu --import FILE --page raw --csv`: a line of units, then one for each launch."""
    names = ["sm__warps_active.avg.pct_of_peak_sustained_active", "launch__registers_per_thread"]
    rows = [
        ["ID", "Kernel Name", *names],
        ["", "", "%", "register/thread"],
        ["0", "saxpy", "77.1", "32"],
        ["1", "saxpy", "77.5", "32"],
    ]
    text = "==PROF== Report\n" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)
    assert ncu.of_raw(text) == {"name": "saxpy", "launches": 2, "occupancy_percent": 77.3, "registers": 32.0, "stalls": {}}


def test_nothing_is_said_to_be_missing_but_ncu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu, "path", lambda: "")
    engine = engines.of_kernel("saxpy")
    assert (engine.name, engine.why) == ("the compilers", ncu.MISSING)
