"""`gpudoctor plan`: which release of a package runs on which machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from each import each

from gpudoctor.cli import main
from gpudoctor.judging.python import installable
from gpudoctor.judging.python.installable import Place
from gpudoctor.knowledge import wheels

H100, V100, PASCAL, TURING, ADA, B200 = (9, 0), (7, 0), (6, 1), (7, 5), (8, 9), (10, 0)
NEWEST = "2.14.1"
HERE = Path(__file__).parent


def first(package: str, place: Place) -> tuple[str, str]:
    """The release and build that plan offers; ("", why not) of the newest if there is none."""
    found = installable.options(package, place)
    best = next((option for option in found if not option.why_not), None)
    return (best.version, best.build) if best else ("", found[0].why_not)


@each(
    ["package", "place", "expected"],
    [
        ("torch", Place((H100,), "580.95.05", "3.12"), (NEWEST, "cu130")),
        ("torch", Place((H100,), "570.86.15", "3.12"), (NEWEST, "cu126")),  # CUDA 13 requires driver 580
        ("torch", Place((H100,), "535.129.03", "3.12"), (NEWEST, "cu126")),  # by minor-version compatibility
        ("torch", Place((V100,), "580.95.05", "3.12"), (NEWEST, "cu126")),  # later builds have no code for Volta
        ("torch", Place((PASCAL,), "580.95.05", "3.12"), (NEWEST, "cu126")),
        ("torch", Place((V100, H100), "580.95.05", "3.12"), (NEWEST, "cu126")),
        ("torch", Place((H100,), "580.95.05", "3.9"), ("2.8.0", "cu128")),
        ("torch", Place((H100,), "580.95.05", "3.12", glibc=(2, 17)), ("2.6.0", "cu124")),
        ("torch", Place((B200,), "570.86.15", "3.12"), ("2.11.0", "cu128")),
        ("torch", Place((ADA,), "470.256.02", "3.10"), ("2.7.1", "cu118")),
        ("vllm", Place((H100,), "580.95.05", "3.12"), ("0.33.0", "cu130")),
        ("vllm", Place((H100,), "580.95.05", "3.10"), ("", "requires Python <3.15,>=3.11")),
        (
            "vllm",
            Place((V100,), "580.95.05", "3.12"),
            ("", "is built with CUDA 13.0, which no longer supports compute capability 7.0"),
        ),
        ("sglang", Place((H100,), "570.86.15", "3.12"), ("", "requires driver 580.65.06 or newer")),
        ("jax", Place((H100,), "580.95.05", "3.12"), ("0.10.2", "CUDA 13")),
        ("jax", Place((H100,), "550.54.15", "3.12"), ("0.10.2", "CUDA 12")),
        ("jax", Place((H100,), "470.256.02", "3.12"), ("", "requires driver 580 or newer")),
        ("cupy", Place((PASCAL,), "580.95.05", "3.12"), ("14.2.0", "CUDA 12")),
        ("cupy", Place((TURING,), "580.95.05", "3.12"), ("14.2.0", "CUDA 13")),
        ("tensorflow", Place((H100,), "535.129.03", "3.9"), ("2.20.0", "CUDA 12")),
        ("onnxruntime", Place((H100,), "570.86.15", "3.12"), ("1.26.0", "CUDA 12")),
    ],
)
def test_what_runs_where(package: str, place: Place, expected: tuple[str, str]) -> None:
    assert first(package, place) == expected


def test_a_build_that_is_offered_has_code_for_the_gpu() -> None:
    for capability in (V100, TURING, ADA, H100, B200):
        for option in installable.options("torch", Place((capability,), "580.95.05", "3.12")):
            if not option.why_not:
                architectures = wheels.torch_architectures(option.version, option.build)
                assert architectures
                assert wheels.runs_on(architectures, capability)


def test_the_machine_of_a_snapshot() -> None:
    done = CliRunner().invoke(
        main, ["plan", "torch", "--replay", str(HERE / "machines/h100-measured/snapshot.json"), "--format", "json"]
    )
    said = json.loads(done.stdout)
    assert (done.exit_code, said["place"]["compute_capabilities"]) == (0, ["9.0"])
    assert said["releases"][0]["command"].startswith("pip install torch==")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpu", "Voodoo 2", "--driver", "580.95.05", "--python", "3.12"], "not in the tables"),
        (["--gpu", "NVIDIA H100 80GB HBM3", "--driver", "new", "--python", "3.12"], "not a driver version"),
    ],
)
def test_wrong_places(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(main, ["plan", "torch", *arguments])
    assert done.exit_code == 2
    assert words in done.output
