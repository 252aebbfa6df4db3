"""What NCCL reported in a log given as evidence."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies


class NcclLog(Guarded):
    """NCCL's log; empty if no such log was given."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def values(self) -> dict[str, Any]:
        found = self._replies.starting_with("nccl-log").get("nccl-log")
        return dict(found.value) if found and found.status == "ok" else {}

    @property
    def version(self) -> str | None:
        return self.values.get("version")

    @property
    def settings(self) -> dict[str, str]:
        """The variables that NCCL reports to have read."""
        return dict(self.values.get("settings", {}))

    @property
    def connections(self) -> dict[str, int]:
        """`P2P/CUMEM` ... -> the number of channels of all ranks that use it."""
        return dict(self.values.get("connections", {}))

    @property
    def ranks(self) -> int | None:
        return self.values.get("ranks")

    @property
    def nodes(self) -> int | None:
        return self.values.get("nodes")

    @property
    def network(self) -> str | None:
        """Socket, IB or the name of a plugin."""
        return self.values.get("network")

    @property
    def found_no_infiniband(self) -> bool:
        return bool(self.values.get("without_infiniband"))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The machines whose lines the log contains."""
        return tuple(self.values.get("hosts", ()))

    @property
    def versions(self) -> tuple[str, ...]:
        """All releases that the log names."""
        return tuple(self.values.get("versions", ()))

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """The interfaces over which the ranks find each other."""
        return tuple(self.values.get("bootstrap", ()))

    @property
    def direct(self) -> tuple[str, ...]:
        """The hosts whose adapters access the GPUs' memory (GPUDirect RDMA)."""
        return tuple(self.values.get("direct", ()))

    @property
    def staged(self) -> tuple[str, ...]:
        """The hosts that receive into host memory only."""
        return tuple(self.values.get("staged", ()))
