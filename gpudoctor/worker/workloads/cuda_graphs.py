"""Small torch kernels, one by one and replayed as one CUDA graph: the cost of each, and that the results are equal."""

from __future__ import annotations

from typing import Any, Callable, Dict

from gpudoctor.worker.measuring import clock, torch_gpu
from gpudoctor.worker.measuring.bench import Bench, Workload, summary

SIDE = 64
LAYERS = 20
KERNELS = 2 * LAYERS  # a product and a tanh in each layer
REPLAYS = 20  # in a round
ROUNDS = 7
WARM_UP = 3
ALLOWED_ERROR = 1e-4  # a product may be summed in another order


def run(bench: Bench) -> None:
    """eager, graph: {"microseconds_per_kernel", "spread"}. capture: {"kernels", "milliseconds"}.

    result: {"relative_error", "allowed_error", "wrong"}, of a replay on new numbers compared with the same kernels one by one.
    """
    device = torch_gpu.gpu(bench)
    import torch

    inputs, weights = operands(device)
    bench.step("warm-up")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            layers(inputs, weights)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    bench.step("capture")
    began = clock.now()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = layers(inputs, weights)
    graph.replay()
    torch.cuda.synchronize()
    bench.keep("capture", kernels=KERNELS, milliseconds=(clock.now() - began) * 1e3)
    compare(bench, lambda: layers(inputs, weights), graph.replay)
    inputs.copy_(torch.randn_like(inputs))  # a graph reads its inputs when it is replayed
    graph.replay()
    bench.keep("result", **torch_gpu.verdict(result, layers(inputs, weights), ALLOWED_ERROR))


def operands(device: Any) -> Any:
    import torch

    weights = torch.randn(SIDE, SIDE, device=device) / SIDE**0.5
    return torch.randn(SIDE, SIDE, device=device), weights


def layers(inputs: Any, weights: Any) -> Any:
    for _ in range(LAYERS):
        inputs = (inputs @ weights).tanh()
    return inputs


def compare(bench: Bench, eager: Callable[[], Any], replay: Callable[[], Any]) -> None:
    for name, work in (("eager", eager), ("graph", replay)):
        with bench.section(name) as values:
            values.update(per_kernel(work))


def per_kernel(work: Callable[[], Any]) -> Dict[str, float]:
    """{"microseconds_per_kernel", "spread"}, from the first launch to the last result."""
    rounds = []
    for _ in range(ROUNDS):
        torch_gpu.synchronize()
        began = clock.now()
        for _ in range(REPLAYS):
            work()
        torch_gpu.synchronize()
        rounds.append((clock.now() - began) / REPLAYS / KERNELS * 1e6)
    found = summary(rounds)
    return {"microseconds_per_kernel": found["median"], "spread": found["spread"]}


WORKLOAD = Workload(run, runtime="torch", typical_seconds=1.2)
