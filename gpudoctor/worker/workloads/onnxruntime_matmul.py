"""ONNX Runtime: a matrix product in a session on this GPU."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple, Union

from gpudoctor.worker.measuring import clock, matrices
from gpudoctor.worker.measuring.bench import Bench, Workload, summary
from gpudoctor.worker.reply import Skip

SIDE = 4096
REPEATS = 5
CUDA = "CUDAExecutionProvider"
IR_VERSION, OPSET, FLOAT = 8, 13, 1  # of ONNX: old enough for any ONNX Runtime since 1.10
Field = Tuple[int, Union[int, bytes, str]]


def run(bench: Bench) -> None:
    """Stores "backend": {"version", "providers" of the session, "refusal"}, and if it uses the GPU "matmul": {"tflops", "spread",
    "milliseconds", "cold_seconds", "wrong_rows"}."""
    import onnxruntime

    if CUDA not in onnxruntime.get_available_providers():
        raise Skip("this build of ONNX Runtime has no CUDA provider", Skip.NOT_INSTALLED)
    if hasattr(onnxruntime, "preload_dlls"):  # loads the libraries of NVIDIA's wheels
        onnxruntime.preload_dlls()
    measure(bench, onnxruntime, CUDA, {"device_id": str(bench.gpu)}, "cuda")


def measure(bench: Bench, onnxruntime: Any, provider: str, options: Dict[str, str], device: str) -> None:
    bench.step("starting the session")
    start = clock.now()
    session = onnxruntime.InferenceSession(model(SIDE), providers=[(provider, options)])
    used = list(session.get_providers())
    refusal = "" if provider in used else "the session has only %s" % ", ".join(used)
    bench.keep("backend", version=onnxruntime.__version__, providers=used, refusal=refusal)
    if refusal:
        return
    number = int(options.get("device_id", 0))
    one, other = matrices.whole_numbers(SIDE)
    binding = session.io_binding()
    for name, matrix in (("one", one), ("other", other)):
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(matrix, device, number))
    binding.bind_output("product", device, number)
    with bench.section("matmul") as values:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        values["cold_seconds"] = round(clock.now() - start, 4)
        found = summary(_seconds(session, binding))
        values.update(tflops=2 * SIDE**3 / found["median"] / 1e12, spread=found["spread"], milliseconds=found["median"] * 1e3)
        values["wrong_rows"] = matrices.wrong_rows(one, other, binding.copy_outputs_to_cpu()[0])


def _seconds(session: Any, binding: Any) -> List[float]:
    seconds = []
    for _ in range(REPEATS + 1):
        start = clock.now()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        seconds.append(clock.now() - start)
    return seconds[1:]


def model(side: int) -> bytes:
    """An ONNX file: product = one · other, square matrices of fp32.

    https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
    """
    dimension = message((1, side))
    tensor = message((1, FLOAT), (2, message((1, dimension), (1, dimension))))
    values = {name: message((1, name), (2, message((1, tensor)))) for name in ("one", "other", "product")}
    node = message((1, "one"), (1, "other"), (2, "product"), (4, "MatMul"))
    graph = message((1, node), (2, "product"), (11, values["one"]), (11, values["other"]), (12, values["product"]))
    return message((1, IR_VERSION), (7, graph), (8, message((1, ""), (2, OPSET))))


def message(*fields: Field) -> bytes:
    """Fields (number, value) as Protocol Buffers write them: whole numbers, and texts or messages with their length."""
    found = b""
    for number, value in fields:
        data = value.encode() if isinstance(value, str) else value
        if isinstance(data, int):
            found += _varint(number << 3) + _varint(data)
        else:
            found += _varint(number << 3 | 2) + _varint(len(data)) + data
    return found


def _varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


WORKLOAD = Workload(run, runtime="onnxruntime", typical_seconds=2, seconds=60)
