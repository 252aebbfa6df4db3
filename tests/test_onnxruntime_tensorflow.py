"""Products of ONNX Runtime, on the CPU where it is installed, and of a TensorFlow that NumPy stands in for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpudoctor.model import Skip
from gpudoctor.worker.measuring.bench import Bench, read
from gpudoctor.worker.workloads import onnxruntime_matmul, tensorflow_matmul


def test_messages_of_protocol_buffers() -> None:
    assert onnxruntime_matmul.message((1, 300), (2, "ab")) == b"\x08\xac\x02\x12\x02ab"


def test_a_session_and_one_that_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(onnxruntime_matmul, "SIDE", 128)
    file = str(tmp_path / "results")
    onnxruntime_matmul.measure(Bench(file, [0]), onnxruntime, "CPUExecutionProvider", {}, "cpu")
    values = read(file).values
    assert values["matmul"]["wrong_rows"] == 0
    assert values["backend"]["refusal"] == ""
    with pytest.warns(UserWarning, match="not in available provider names"):
        onnxruntime_matmul.measure(Bench(file, [0]), onnxruntime, "CUDAExecutionProvider", {"device_id": "0"}, "cuda")
    assert read(file).values["backend"]["refusal"] == "the session has only CPUExecutionProvider"
    with pytest.raises(Skip, match="no CUDA provider"):
        onnxruntime_matmul.run(Bench(file, [0]))


class Tensor:
    device = "/GPU:0"

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def numpy(self) -> Any:
        return self.numbers

    def __getitem__(self, place: Any) -> Tensor:
        return Tensor(self.numbers[place])


def tensorflow(gpus: int = 1, cuda: bool = True, error: float = 0) -> Any:
    def matmul(one: Tensor, other: Tensor) -> Tensor:
        product = one.numbers @ other.numbers
        product[3, 5] += error
        return Tensor(product)

    return SimpleNamespace(
        __version__="2.21.0",
        test=SimpleNamespace(is_built_with_cuda=lambda: cuda),
        config=SimpleNamespace(list_physical_devices=lambda kind: ["GPU:0"] * gpus),
        constant=Tensor,
        linalg=SimpleNamespace(matmul=matmul),
        device=lambda name: contextlib.nullcontext(),
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("numpy")
    monkeypatch.setattr(tensorflow_matmul, "SIDE", 64)
    for name in ("TF_FORCE_GPU_ALLOW_GROWTH", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")

    def measured(module: Any) -> dict[str, Any]:
        monkeypatch.setitem(__import__("sys").modules, "tensorflow", module)
        tensorflow_matmul.run(Bench(str(tmp_path / "results"), [0]))
        return read(str(tmp_path / "results")).values

    return measured


def test_tensorflow(run: Any) -> None:
    values = run(tensorflow())
    assert values["backend"] == {"version": "2.21.0", "devices": 1, "refusal": ""}
    assert (values["matmul"]["wrong_rows"], values["matmul"]["on"]) == (0, ["/GPU:0"])
    assert run(tensorflow(error=1))["matmul"]["wrong_rows"] == 1


def test_tensorflow_without_a_gpu(run: Any) -> None:
    assert run(tensorflow(gpus=0))["backend"]["refusal"] == "TensorFlow lists no GPU"
    with pytest.raises(Skip, match="CPU only"):
        run(tensorflow(cuda=False))
