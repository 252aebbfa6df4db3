"""Arrays handed from one framework to another without a copy: torch, CuPy and Numba, by DLPack or __cuda_array_interface__."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from typing import Any, Callable, Dict, List, NamedTuple

from gpudoctor.worker.measuring import square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload
from gpudoctor.worker.reply import Skip

ELEMENTS = 1 << 16
PARTNERS = {"CuPy": "cupy", "Numba": "numba.cuda"}


class Side(NamedTuple):
    """A framework. make: an array 0, 1, ... on the GPU. take: one of another framework. pointer: its address on the GPU.
    values: of an array, on the host. double: all elements, in place."""

    make: Callable[[], Any]
    take: Callable[[Any], Any]
    pointer: Callable[[Any], int]
    values: Callable[[Any], List[float]]
    double: Callable[[Any], Any]


def run(bench: Bench) -> None:
    """For each way, such as "torch to CuPy": {"shared": whether it is the same memory, "wrong_elements"}, or {"error"}.

    wrong_elements: of what the receiver reads, and of what the giver reads after the receiver has doubled all elements.
    """
    torch = square.cuda_torch()
    there = {name: module for name, module in PARTNERS.items() if importlib.util.find_spec(module.partition(".")[0])}
    if not there:
        raise Skip("neither CuPy nor Numba is installed", Skip.NOT_INSTALLED)
    bench.step("context")
    torch.cuda.set_device(bench.gpu)
    sides = {"torch": of_torch(torch)}
    for name, module in there.items():
        bench.step("importing " + name)
        try:
            sides[name] = OF[name](importlib.import_module(module), bench.gpu)
        except Exception as failure:  # which the checks of that framework explain
            bench.keep(name, skipped="%s: %s" % (type(failure).__name__, failure))
    for (giver, one), (receiver, other) in itertools.permutations(sides.items(), 2):
        with bench.section("%s to %s" % (giver, receiver)) as values:
            values.update(exchanged(one, other, torch.cuda.synchronize))


def exchanged(giver: Side, receiver: Side, synchronize: Callable[[], Any]) -> Dict[str, Any]:
    try:
        array = giver.make()
        synchronize()
        taken = receiver.take(array)
        wrong = wrong_elements(receiver.values(taken), 1)
        shared = giver.pointer(array) == receiver.pointer(taken)
        receiver.double(taken)
        synchronize()
        return {"shared": shared, "wrong_elements": wrong + (wrong_elements(giver.values(array), 2) if shared else 0)}
    except Exception as failure:
        return {"error": "%s: %s" % (type(failure).__name__, failure)}


def wrong_elements(values: List[float], factor: int) -> int:
    return sum(value != factor * number for number, value in enumerate(values)) + abs(ELEMENTS - len(values))


def of_torch(torch: Any) -> Side:
    def take(array: Any) -> Any:
        return torch.from_dlpack(array) if hasattr(array, "__dlpack__") else torch.as_tensor(array, device="cuda")

    return Side(
        lambda: torch.arange(ELEMENTS, dtype=torch.float32, device="cuda"),
        take,
        lambda tensor: int(tensor.data_ptr()),
        lambda tensor: list(tensor.tolist()),
        lambda tensor: tensor.mul_(2),
    )


def of_cupy(cupy: Any, gpu: int) -> Side:
    cupy.cuda.Device(gpu).use()

    def take(array: Any) -> Any:
        return cupy.from_dlpack(array) if hasattr(array, "__dlpack__") else cupy.asarray(array)

    return Side(
        lambda: cupy.arange(ELEMENTS, dtype=cupy.float32),
        take,
        lambda array: int(array.data.ptr),
        lambda array: list(cupy.asnumpy(array).tolist()),
        lambda array: cupy.multiply(array, 2, out=array),
    )


def of_numba(cuda: Any, gpu: int) -> Side:
    import numpy

    cuda.select_device(gpu)
    numbers = numpy.arange(ELEMENTS, dtype=numpy.float32)
    return Side(
        lambda: cuda.to_device(numbers),
        cuda.as_cuda_array,
        lambda array: int(array.__cuda_array_interface__["data"][0]),
        lambda array: list(array.copy_to_host().tolist()),
        lambda array: array.copy_to_device(array.copy_to_host() * 2),
    )


OF: Dict[str, Callable[[Any, int], Side]] = {"CuPy": of_cupy, "Numba": of_numba}
WORKLOAD = Workload(run, runtime="torch", scope=ONCE, seconds=60, typical_seconds=3)
