"""A convolution of a ResNet through cuDNN, with heuristics and with autotuning, verified without cuDNN."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, NamedTuple, Tuple

from gpudoctor.worker.measuring import clock, torch_gpu
from gpudoctor.worker.measuring.bench import Bench, Workload
from gpudoctor.worker.measuring.torch_gpu import ROUNDING
from gpudoctor.worker.reply import Skip

LEAST_CAPABILITY = {"fp16": (5, 3), "fp32": (0, 0)}
DTYPES = {"fp16": "float16", "fp32": "float32"}
# For random numbers, as the largest error of many. Winograd's algorithm and TF32, which cuDNN enables by default, cost more than
# the roundings of a plain sum: https://arxiv.org/abs/1803.10986
ALLOWED_ERROR = 64 * ROUNDING["tf32"]
SMALL = 2 << 30  # with fewer bytes free the batch is smaller


class Shape(NamedTuple):
    """A square convolution with stride 1: number of images, input and output channels, and side length."""

    images: int
    channels: int
    side: int
    kernel: int = 3

    @property
    def operations(self) -> float:
        return 2.0 * self.images * self.side**2 * self.channels**2 * self.kernel**2


SHAPE = Shape(images=64, channels=256, side=28)


def run(bench: Bench) -> None:
    """fp16, fp32, and "... autotuned": {"milliseconds", "tflops", "spread", "first_seconds", "relative_error", ..., "wrong"}.

    cudnn: its versions, and the loaded libraries.
    """
    device = torch_gpu.gpu(bench)
    bench.step("loading cuDNN")
    require_cudnn()
    try:
        measure(bench, device, SHAPE if torch_gpu.free_bytes() > SMALL else SHAPE._replace(images=8))
    finally:
        bench.keep("cudnn", **cudnn())


def require_cudnn() -> None:
    """Raises torch's message if the loaded cuDNN is incompatible."""
    import torch

    if not torch.backends.cudnn.is_available() or not torch.backends.cudnn.version():
        raise Skip("this PyTorch was built without cuDNN", Skip.NOT_INSTALLED)
    if not torch.backends.cudnn.is_acceptable(torch.empty(1, device="cuda")):
        raise Skip("PyTorch does not use its cuDNN on this GPU", Skip.UNSUPPORTED)


def measure(bench: Bench, device: Any, shape: Shape) -> None:
    import torch

    for name, dtype in DTYPES.items():
        if torch_gpu.capability() < LEAST_CAPABILITY[name]:
            continue
        images, weights = operands(getattr(torch, dtype), shape, device)
        work = functools.partial(torch.nn.functional.conv2d, images, weights, padding=shape.kernel // 2)
        exact = convolved(images[:: max(1, shape.images // 3)], weights, shape)
        for title, autotuned in ((name, False), (name + " autotuned", True)):
            with bench.section(title) as values:
                timed, first = in_a_thread(functools.partial(algorithm, work, device, autotuned), device)
                values.update(timed.values(shape.operations), first_seconds=round(first, 4))
            sample = timed.result[:: max(1, shape.images // 3)]
            bench.keep(title, **values, **torch_gpu.verdict(sample.flatten(2), exact, ALLOWED_ERROR))


def operands(dtype: Any, shape: Shape, device: Any) -> Tuple[Any, Any]:
    """Images and weights in channels-last format, which tensor cores need."""
    import torch

    images = torch.randn(shape.images, shape.channels, shape.side, shape.side, device=device, dtype=dtype)
    weights = torch.randn(shape.channels, shape.channels, shape.kernel, shape.kernel, device=device, dtype=dtype)
    weights /= (shape.channels * shape.kernel**2) ** 0.5
    return images.to(memory_format=torch.channels_last), weights.to(memory_format=torch.channels_last)


def in_a_thread(work: Callable[[], Any], device: Any) -> Any:
    """torch caches the algorithm chosen for a shape per thread: in a new thread it chooses again."""
    import concurrent.futures

    import torch

    def on_the_gpu() -> Any:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return work()

    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(on_the_gpu).result()


def algorithm(work: Callable[[], Any], device: Any, autotuned: bool) -> Tuple[torch_gpu.Timed, float]:
    """The times, and the seconds of the first call, in which the algorithm is chosen."""
    import torch

    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = autotuned
    try:
        began = clock.now()
        work()
        torch_gpu.synchronize()
        first = clock.now() - began
        return torch_gpu.timed(work, device), first
    finally:
        torch.backends.cudnn.benchmark = before


def convolved(images: Any, weights: Any, shape: Shape) -> Any:
    """The same in fp64, as a matrix product: (image, channel, pixel)."""
    import torch

    columns = torch.nn.functional.unfold(images.double().contiguous(), shape.kernel, padding=shape.kernel // 2)
    return weights.double().contiguous().flatten(1) @ columns


def cudnn() -> Dict[str, Any]:
    """{"loaded", "compiled_for", "libraries", "allow_tf32"}; versions such as "9.19.0"."""
    import torch

    version = torch.backends.cudnn.version()
    compiled = getattr(getattr(torch._C, "_cudnn", None), "getCompileVersion", lambda: ())()
    return {
        "loaded": version_words(version) if version else "",
        "compiled_for": ".".join(map(str, compiled)),
        "libraries": torch_gpu.loaded("libcudnn"),
        "allow_tf32": torch.backends.cudnn.allow_tf32,
    }


def version_words(number: int) -> str:
    """91900 is 9.19.0, and before cuDNN 9, 8907 was 8.9.7."""
    major = 10000 if number >= 90000 else 1000
    return "%d.%d.%d" % (number // major, number % major // 100, number % 100)


WORKLOAD = Workload(run, runtime="torch", typical_seconds=3)
