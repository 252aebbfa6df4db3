"""`gpudoctor plan`: which release of a package runs on which machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from each import each

from gpudoctor.cli import main
from gpudoctor.cli.installing import TOOLS
from gpudoctor.cli.plan import PACKAGES
from gpudoctor.judging.python import installable
from gpudoctor.judging.python.installable import Place
from gpudoctor.knowledge import wheels
from gpudoctor.lint import dockerfile, linting

H100, V100, TURING, ADA, B200 = (9, 0), (7, 0), (7, 5), (8, 9), (10, 0)
OLDER = "2.14.1"  # the last with builds for CUDA 12
HERE = Path(__file__).parent


def first(package: str, place: Place) -> tuple[str, str]:
    """The release and build that plan offers; ("", why not) of the newest if there is none."""
    found = installable.options(package, place)
    best = next((option for option in found if not option.why_not), None)
    return (best.version, best.build) if best else ("", found[0].why_not)


TRUTHS = yaml.safe_load((HERE / "plans/truths.yaml").read_text())
CELLS = [
    (machine["about"], package, machine["place"], truth)
    for machine in TRUTHS["machines"]
    for package, truth in machine.items()
    if package not in ("about", "place")
]


def place_of(given: dict[str, Any]) -> Place:
    return Place(
        (tuple(given["capability"]),), given["driver"], given["python"], given.get("machine", "x86_64"), tuple(given["glibc"])
    )


@each("cell", CELLS, ids=lambda cell: f"{cell[1]} on {cell[0]}")
def test_what_the_projects_publish(cell: tuple[str, str, dict[str, Any], str]) -> None:
    _, package, given, truth = cell
    version, said = first(package, place_of(given))
    if truth.startswith("no: "):
        assert not version
        assert truth.removeprefix("no: ") in said
    else:
        assert version == truth.split()[0]
        assert said == truth.removeprefix(version).strip() or truth == version


def test_the_truths_are_about_all_packages_and_sourced() -> None:
    assert len(CELLS) >= 60
    assert {package for _, package, _, _ in CELLS} == set(PACKAGES) == set(TRUTHS["sources"]) - {"all"}


@each(
    ["package", "place", "expected"],
    [
        ("torch", Place((H100,), "570.86.15", "3.12"), (OLDER, "cu126")),  # CUDA 13 requires driver 580
        ("torch", Place((V100, H100), "580.95.05", "3.12"), (OLDER, "cu126")),
        ("torch", Place((H100,), "580.95.05", "3.9"), ("2.8.0", "cu128")),
        ("torch", Place((ADA,), "470.256.02", "3.10"), ("2.7.1", "cu118")),
        ("torch", Place(((11, 0),), "580.95.05", "3.12", "aarch64"), ("2.15.0", "cu132")),
        ("torch", Place((V100, B200), "580.95.05", "3.12"), ("2.10.0", "cu128")),  # the last build for both
        (
            "vllm",
            Place((B200,), "580.95.05", "3.12", glibc=(2, 27)),
            ("", "requires torch 2.14.0, which requires glibc 2.28; here is 2.27"),
        ),
        ("sglang", Place((H100,), "570.86.15", "3.12"), ("0.5.10", "cu129")),
        ("onnxruntime", Place((H100,), "570.86.15", "3.12", "aarch64"), ("", "requires driver 580.65.06 or newer")),
    ],
)
def test_what_runs_where(package: str, place: Place, expected: tuple[str, str]) -> None:
    assert first(package, place) == expected


def test_what_does_not_bring_the_cuda_libraries() -> None:
    offered = {
        option.requirement: option.cuda
        for package in ("cupy", "onnxruntime", "torch")
        for option in installable.options(package, Place((H100,), "595.45.04", "3.10"))
    }
    assert (
        offered["cupy-cuda12x[ctk]==14.2.0"] == offered["onnxruntime-gpu[cuda,cudnn]==1.23.2"] == offered["torch==2.14.1"] == ""
    )
    assert offered["cupy-cuda12x==13.6.0"] == offered["onnxruntime-gpu==1.20"] == "12"


def test_a_build_that_is_offered_has_code_for_the_gpu() -> None:
    for capability in (V100, TURING, ADA, H100, B200):
        for option in installable.options("torch", Place((capability,), "580.95.05", "3.12")):
            if not option.why_not:
                architectures = wheels.torch_architectures(option.version, option.build)
                assert architectures
                assert wheels.runs_on(architectures, capability)


V100_HERE = ["--gpu", "Tesla V100-SXM2-32GB", "--driver", "570.86.15", "--python", "3.12"]
INDEX = "https://download.pytorch.org/whl/cu126"


def lines_for(tool: str, package: str) -> str:
    done = CliRunner().invoke(main, ["plan", package, *V100_HERE, "--for", tool])
    assert done.exit_code == 0
    return done.stdout


def test_the_lines_of_each_tool() -> None:
    torch, onnxruntime = (yaml.safe_load(lines_for("conda", package))["dependencies"] for package in ("torch", "onnxruntime"))
    assert torch == ["python=3.12", "pip", {"pip": [f"--index-url {INDEX}", f"torch=={OLDER}"]}]
    assert onnxruntime[-1] == {"pip": ["onnxruntime-gpu[cuda,cudnn]==1.26.0"]}
    assert [line for line in lines_for("uv", "torch").splitlines() if "uv add" in line] == [
        f"# in a project: uv add torch=={OLDER} --index pytorch-cu126={INDEX}"
    ]
    for package in PACKAGES:
        if package != "sglang":  # none runs on Volta
            text = lines_for("dockerfile", package)
            assert not linting.lint("dockerfile", dockerfile.parse(text), text)
    said = json.loads(CliRunner().invoke(main, ["plan", "torch", *V100_HERE, "--format", "json"]).stdout)
    assert list(said["install"]) == list(TOOLS)


def test_the_lines_of_pixi() -> None:
    tomllib = pytest.importorskip("tomllib")
    assert tomllib.loads(lines_for("pixi", "torch")) == {
        "dependencies": {"python": "3.12.*"},
        "pypi-dependencies": {"torch": {"version": f"=={OLDER}", "index": INDEX}},
    }
    found = tomllib.loads(lines_for("pixi", "onnxruntime"))
    assert found["pypi-dependencies"] == {"onnxruntime-gpu": {"version": "==1.26.0", "extras": ["cuda", "cudnn"]}}


def test_no_lines_where_nothing_runs() -> None:
    done = CliRunner().invoke(main, ["plan", "sglang", *V100_HERE, "--for", "dockerfile"])
    assert done.exit_code == 1
    assert "FROM" not in done.stdout
    assert "compute capability 7.5" in done.stdout


def test_the_machine_of_a_snapshot() -> None:
    done = CliRunner().invoke(
        main, ["plan", "torch", "--replay", str(HERE / "machines/h100-measured/snapshot.json"), "--format", "json"]
    )
    said = json.loads(done.stdout)
    assert (done.exit_code, said["place"]["compute_capabilities"]) == (0, ["9.0"])
    assert said["releases"][0]["command"].startswith("pip install torch==")


def test_an_odd_answer_in_a_snapshot_is_no_gpu(tmp_path: Path) -> None:
    said = json.loads((HERE / "machines/h100-measured/snapshot.json").read_text())
    said["replies"]["nvml:gpu0"]["value"]["CudaComputeCapability"] = [[9], 0]
    (tmp_path / "odd.json").write_text(json.dumps(said))
    done = CliRunner().invoke(main, ["plan", "torch", "--replay", str(tmp_path / "odd.json")])
    assert done.exit_code == 2
    assert done.output.startswith("Error: no GPU is known here: name one with --gpu")


@each(
    ["arguments", "expected"],
    [
        (["--gpu", "NVIDIA GB200"], ("aarch64", None, "2.15.0")),
        (["--gpu", "NVIDIA GB200", "--glibc", "2.27"], ("aarch64", "2.27", None)),
        (["--gpu", "NVIDIA H100 80GB HBM3", "--glibc", "2.17"], ("x86_64", "2.17", "2.6.0")),
        (["--gpu", "NVIDIA H100 80GB HBM3", "--machine", "aarch64"], ("aarch64", None, "2.15.0")),
    ],
)
def test_another_place(arguments: list[str], expected: tuple[str, str | None, str | None]) -> None:
    given = [*arguments, "--driver", "580.95.05", "--python", "3.12", "--format", "json"]
    said = json.loads(CliRunner().invoke(main, ["plan", "torch", *given]).stdout)
    best = next((row["version"] for row in said["releases"] if row["runs_here"]), None)
    assert (said["place"]["architecture"], said["place"]["glibc"], best) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpu", "Voodoo 2", "--driver", "580.95.05", "--python", "3.12"], "not in the tables"),
        (["--gpu", "NVIDIA H100 80GB HBM3", "--driver", "new", "--python", "3.12"], "not a driver version"),
        (["--gpu", "NVIDIA H100 80GB HBM3", "--driver", "580.95.05", "--python", "3.12", "--glibc", "new"], "not a version"),
        (["--gpu", "NVIDIA H100 80GB HBM3", "--driver", "580.95.05", "--python", f"3.{'9' * 5000}"], "3.999"),
        (["--gpu", "NVIDIA H100 80GB HBM3", "--driver", f"580.{'9' * 5000}", "--python", "3.12"], "not a driver version"),
    ],
)
def test_wrong_places(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(main, ["plan", "torch", *arguments])
    assert done.exit_code == 2
    assert words in done.output
