"""One process of a torchrun session, as the measurements of several GPUs see it."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

PROCESSOR_BYTES = 64 << 20  # taken to be free where the ranks have no GPU


class Rank(NamedTuple):
    """One process of the session. bench: where results go, of rank 0 alone. own: this rank's results until now."""

    torch: Any
    number: int
    ranks: int
    gpu: int
    device: Any
    bench: Any
    everybody: Any
    own: Dict[str, Any]

    def keep(self, **values: Any) -> None:
        """Hands over results of this very rank."""
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
        """The "MIN" or "MAX" of what all ranks say."""
        number = self.torch.tensor([value], dtype=self.torch.int64, device=self.device)
        self.torch.distributed.all_reduce(number, op=getattr(self.torch.distributed.ReduceOp, operation))
        return int(number.item())
