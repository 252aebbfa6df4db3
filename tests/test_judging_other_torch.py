"""Another PyTorch with all that is compiled against it."""

from __future__ import annotations

from dataclasses import replace

import machine
import pytest

from gpudoctor import catalog
from gpudoctor.facts import Facts
from gpudoctor.judging.python import other_torch
from gpudoctor.model import Finding, Fix, Reply

PIP = "<python> -m pip"
INDEX = "https://download.pytorch.org/whl"


def having(*packages: tuple[str, str]) -> Facts:
    taken = machine.load("torch-cu128")
    found = [{"name": name, "version": version, "location": "/x"} for name, version in packages]
    return Facts(replace(taken, replies={**taken.replies, "packages": Reply("ok", found)}))


def command(release: str, variant: str, *packages: tuple[str, str]) -> str:
    return other_torch.install(having(*packages), Fix("Install it"), release, variant).command


def test_what_comes_from_the_same_index_comes_along() -> None:
    made = command("2.9.1", "cu128", ("torch", "2.9.1"), ("torchaudio", "2.9.1"), ("xformers", "0.0.33"))
    removed = f"{PIP} uninstall -y torch torchaudio xformers"
    assert made == f"{removed} && {PIP} install torch==2.9.1 torchaudio xformers --index-url {INDEX}/cu128"


def test_what_is_not_installed_is_not_brought() -> None:
    assert "torchvision" not in command("2.9.1", "cu128", ("torch", "2.9.1"))


def test_vllm_gets_its_build_for_cuda_12() -> None:
    made = command("2.11.0", "cu129", ("torch", "2.11.0"), ("torchvision", "0.26.0"), ("vllm", "0.20.0"))
    assert f"{PIP} uninstall -y vllm torch torchvision" in made
    assert "vllm==0.20.0+cu129 torch==2.11.0 torchvision" in made
    assert f"--extra-index-url https://wheels.vllm.ai/0.20.0/cu129 --extra-index-url {INDEX}/cu129" in made


def test_a_vllm_whose_usual_build_fits_comes_from_pypi() -> None:
    made = command("2.9.1", "cu128", ("torch", "2.9.1+cpu"), ("vllm", "0.12.0"))
    assert "vllm==0.12.0 torch==2.9.1" in made
    assert "wheels.vllm.ai" not in made


@pytest.mark.parametrize(("driver", "expected"), [("570.195.03", "cu129"), ("535.104.05", "cu129"), ("470.256.02", None)])
def test_a_driver_that_is_too_old_has_no_vllm(driver: str, expected: str | None) -> None:
    assert other_torch.variant_of_vllm(driver) == expected


def test_what_was_compiled_here_is_built_anew_and_said() -> None:
    fix = other_torch.install(
        having(("torch", "2.9.1"), ("flash_attn", "2.8.3+cu12torch2.9")), Fix("Install it"), "2.8.0", "cu128"
    )
    assert fix.command.endswith(f"{other_torch.BUILD} flash-attn==2.8.3")
    assert fix.title == "Install it; flash-attn is rebuilt for it, which requires nvcc and takes time"


def test_sglang_has_kernels_of_its_own() -> None:
    made = command("2.11.0", "cu126", ("torch", "2.11.0"), ("sglang-kernel", "0.4.4"))
    assert made.endswith("--no-deps sglang-kernel==0.4.4 --index-url https://docs.sglang.ai/whl/cu129")


def found(check: str, case: str, **changed: object) -> list[Finding]:
    """What a check says of a machine whose replies are partly others."""
    taken = machine.load(case)
    replies = {question: Reply("ok", value) for question, value in changed.items()}
    facts = Facts(replace(taken, replies={**taken.replies, **replies}))
    return list(catalog.checks()[check].judge(facts))


def packages(case: str, *others: tuple[str, str]) -> list[dict[str, object]]:
    known = machine.load(case).replies["packages"].value
    return [*known, *({"name": name, "version": version, "location": "/x", "requires": []} for name, version in others)]


def test_vllm_on_a_driver_that_is_too_old_for_it() -> None:
    case = "cu130-wheel-on-driver-570"
    [finding] = found("driver-cuda-support", case, packages=packages(case, ("vllm", "0.20.0")))
    assert "vllm==0.20.0" in finding.problem.fixes[-1].command
    assert "/whl/cu129" in finding.problem.fixes[-1].command


def test_without_nvml_the_loaded_module_says_which_build_fits() -> None:
    case = "driver-library-version-mismatch"
    version_py = "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
    torch = {"location": "/x", "version_py": version_py, "libraries": []}
    others = [{"name": "torch", "version": "2.11.0+cpu", "location": "/x", "requires": []}]
    [finding] = found("torch", case, packages=others, torch=torch)
    assert finding.evidence["index"] == f"{INDEX}/cu130"


def test_only_the_folder_itself_leaves_the_path() -> None:
    case = "stub-libcuda-library-path"
    before = machine.load(case).replies["environment"].value
    kept = "/data/stubs-of-mine/lib:/opt/compatible/lib"
    environment = {**before, "LD_LIBRARY_PATH": f"{before['LD_LIBRARY_PATH']}:{kept}"}
    [finding] = found("cuda-library", case, environment=environment)
    assert finding.evidence["library_path"].endswith(kept)
    assert "/stubs:" not in f"{finding.evidence['library_path']}:"
