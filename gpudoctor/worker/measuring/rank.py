"""One process of a torchrun session, for measurements on several GPUs."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

PROCESSOR_BYTES = 64 << 20  # assumed free if the ranks have no GPU


class Rank(NamedTuple):
    """One process of the session. bench: where results go, only in rank 0. own: this rank's results so far."""

    torch: Any
    number: int
    ranks: int
    gpu: int
    device: Any
    bench: Any
    everybody: Any
    own: Dict[str, Any]

    def keep(self, **values: Any) -> None:
        """Stores results of this rank only."""
        self.own.update(values)
        self.everybody.keep("rank %d" % self.number, gpu=self.gpu, **self.own)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def barrier(self) -> None:
        if self.device.type == "cuda":
            self.torch.distributed.barrier(device_ids=[self.gpu])
        else:
            self.torch.distributed.barrier()
        self.synchronize()

    def free_bytes(self) -> int:
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()
            return int(self.torch.cuda.mem_get_info(self.device)[0])
        return PROCESSOR_BYTES

    def agreed(self, value: int, operation: str) -> int:
        """The "MIN" or "MAX" of the values of all ranks."""
        number = self.torch.tensor([value], dtype=self.torch.int64, device=self.device)
        self.torch.distributed.all_reduce(number, op=getattr(self.torch.distributed.ReduceOp, operation))
        return int(number.item())
