"""NCCL's own functions on the communicator that torch has made: what they take without the framework.

API: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, List, Optional

from gpudoctor.worker.measuring import torch_gpu
from gpudoctor.worker.measuring.rank import Rank

LIBRARY = "libnccl.so"
SUM = 0
TYPES = {"float32": 7, "bfloat16": 9}
Call = Callable[[], Any]


class NcclError(Exception):
    """A function of libnccl did not return 0."""


class Nccl:
    """The library that torch has loaded, with its communicator; work is queued on torch's current stream."""

    def __init__(self, rank: Rank, path: str, communicator: int) -> None:
        self.rank = rank
        self.path = path
        self.library = ctypes.CDLL(path)
        self.library.ncclGetErrorString.restype = ctypes.c_char_p
        self.communicator = ctypes.c_void_p(communicator)

    def _calls(self, *calls: Any) -> Call:
        """Queues these functions, as one group if there are several. All arguments are converted only once, here."""
        bound = [(getattr(self.library, name), arguments) for name, *arguments in calls]
        start, end = self.library.ncclGroupStart, self.library.ncclGroupEnd
        function, only = bound[0]

        def one() -> None:
            code = function(*only)
            if code:
                self._fail(code)

        def several() -> None:
            start()
            codes = [function(*arguments) for function, arguments in bound]
            code = end() or max(codes)
            if code:
                self._fail(code)

        return one if len(bound) == 1 else several

    def _fail(self, code: int) -> None:
        raise NcclError("%s (%d)" % (self.library.ncclGetErrorString(code).decode(), code))

    def _place(self, tensor: Any) -> List[Any]:
        """The arguments (count, type) of a tensor."""
        return [ctypes.c_size_t(tensor.numel()), TYPES[str(tensor.dtype).rpartition(".")[2]]]

    @property
    def _end(self) -> List[Any]:
        """The last two arguments of every function."""
        return [self.communicator, ctypes.c_void_p(self.rank.torch.cuda.current_stream().cuda_stream)]

    def all_reduce(self, sent: Any, received: Any) -> Call:
        return self._calls(["ncclAllReduce", *_pointers(sent, received), *self._place(sent), SUM, *self._end])

    def all_gather(self, sent: Any, received: Any) -> Call:
        return self._calls(["ncclAllGather", *_pointers(sent, received), *self._place(sent), *self._end])

    def reduce_scatter(self, sent: Any, received: Any) -> Call:
        return self._calls(["ncclReduceScatter", *_pointers(sent, received), *self._place(received), SUM, *self._end])

    def broadcast(self, sent: Any, received: Any) -> Call:
        return self._calls(["ncclBroadcast", *_pointers(sent, received), *self._place(sent), 0, *self._end])

    def all_to_all(self, sent: Any, received: Any) -> Call:
        there, back = sent.chunk(self.rank.ranks), received.chunk(self.rank.ranks)
        calls = []
        for peer in range(self.rank.ranks):
            calls += self._sent_and_received(there[peer], peer, back[peer], peer)
        return self._calls(*calls)

    def send_recv(self, sent: Any, received: Any) -> Call:
        number, ranks = self.rank.number, self.rank.ranks
        return self._calls(*self._sent_and_received(sent, (number + 1) % ranks, received, (number - 1) % ranks))

    def _sent_and_received(self, sent: Any, to: int, received: Any, source: int) -> List[List[Any]]:
        send = ["ncclSend", *_pointers(sent), *self._place(sent), to, *self._end]
        return [send, ["ncclRecv", *_pointers(received), *self._place(received), source, *self._end]]


def _pointers(*tensors: Any) -> List[ctypes.c_void_p]:
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


def of(rank: Rank) -> Optional[Nccl]:
    """None if torch has linked NCCL into itself, or does not give its communicator away (before torch 2.5)."""
    if rank.device.type != "cuda":
        return None
    paths = torch_gpu.loaded(LIBRARY)
    backend = rank.torch.distributed.distributed_c10d._get_default_group()._get_backend(rank.device)
    pointer = getattr(backend, "_comm_ptr", None)
    communicator = int(pointer()) if pointer and len(paths) == 1 else 0
    return Nccl(rank, paths[0], communicator) if communicator else None


class Torch:
    """The same through torch.distributed."""

    path = ""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.distributed = rank.torch.distributed

    def all_reduce(self, sent: Any, received: Any) -> Call:
        return lambda: self.distributed.all_reduce(received)

    def all_gather(self, sent: Any, received: Any) -> Call:
        return lambda: self.distributed.all_gather_into_tensor(received, sent)

    def reduce_scatter(self, sent: Any, received: Any) -> Call:
        return lambda: self.distributed.reduce_scatter_tensor(received, sent)

    def broadcast(self, sent: Any, received: Any) -> Call:
        return lambda: self.distributed.broadcast(received, 0)

    def all_to_all(self, sent: Any, received: Any) -> Call:
        return lambda: self.distributed.all_to_all_single(received, sent)

    def send_recv(self, sent: Any, received: Any) -> Call:
        number, ranks, operation = self.rank.number, self.rank.ranks, self.distributed.P2POp
        send = operation(self.distributed.isend, sent, (number + 1) % ranks)
        receive = operation(self.distributed.irecv, received, (number - 1) % ranks)
        return lambda: [work.wait() for work in self.distributed.batch_isend_irecv([send, receive])]
