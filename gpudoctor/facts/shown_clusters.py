"""What a text shows of clusters, containers and the networks between nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any


class ShownClusters:
    @abstractmethod
    def _value(self, name: str, otherwise: Any) -> Any: ...

    @cached_property
    def slurm(self) -> Mapping[str, Any]:
        """node and slurm.conf: type of GPUs -> number. gres.conf: device files. constrains: ConstrainDevices of cgroup.conf."""
        return dict(self._value("shown-slurm", {}))

    @cached_property
    def offered(self) -> Mapping[str, int]:
        """Name of a resource -> how many of it a Kubernetes node offers."""
        return dict(self._value("shown-offered", {}))

    @cached_property
    def allocated(self) -> Mapping[str, int]:
        """Name of a resource -> how many of it the pods of a Kubernetes node have requested."""
        return dict(self._value("shown-allocated", {}))

    @cached_property
    def wanted(self) -> Mapping[str, int]:
        """Name of a resource -> how many of it a pod requests."""
        return dict(self._value("shown-wanted", {}))

    @cached_property
    def pods(self) -> Mapping[str, str]:
        """NVIDIA's pods -> their status, from kubectl get pods."""
        return dict(self._value("shown-pods", {}))

    @cached_property
    def container(self) -> Mapping[str, Any]:
        """docker inspect: requested (GPUs), nodes (of GPUs), runtime."""
        return dict(self._value("shown-container", {}))

    @cached_property
    def compose_asks(self) -> bool | None:
        """Whether a compose file asks for a GPU; None without such a file."""
        asks: bool | None = self._value("shown-compose", {}).get("asks")
        return asks

    @cached_property
    def lxc(self) -> Mapping[str, list[str]]:
        """allowed: major numbers; mounted: nodes that need a rule; passed: nodes that bring their rule."""
        return dict(self._value("shown-lxc", {}))

    @cached_property
    def lxd(self) -> Mapping[str, Any]:
        """gpu: whether a GPU is among the devices; runtime: nvidia.runtime; tool and name, as in the command."""
        return dict(self._value("shown-lxd", {}))

    @cached_property
    def cdi_releases(self) -> tuple[str, ...]:
        """The releases of the driver's libraries that a search in CDI files printed."""
        return tuple(self._value("shown-cdi-releases", ()))

    @cached_property
    def gids(self) -> Mapping[str, Mapping[str, str]]:
        """RDMA adapter -> index -> GID and kind."""
        return dict(self._value("shown-gids", {}))

    @cached_property
    def addresses(self) -> Mapping[str, str]:
        """Interface that is up -> its IPv4 address and prefix."""
        return dict(self._value("shown-addresses", {}))

    @cached_property
    def rdma_netdevs(self) -> Mapping[str, str]:
        """RDMA adapter -> network interface."""
        return dict(self._value("shown-rdma-netdevs", {}))

    @cached_property
    def hosts(self) -> Mapping[str, str]:
        """Name of a host -> its address, from /etc/hosts and getent."""
        return dict(self._value("shown-hosts", {}))

    @cached_property
    def mtus(self) -> Mapping[str, Mapping[str, int]]:
        """Interface -> host -> MTU."""
        return dict(self._value("shown-mtus", {}))

    @cached_property
    def port_rates(self) -> Mapping[str, list[Any]]:
        """RDMA port -> rate in gigabits per second, type of its adapter, state."""
        return dict(self._value("shown-rates", {}))

    @cached_property
    def nccl_files(self) -> Mapping[str, int]:
        """NCCL's files in /dev/shm -> bytes."""
        return dict(self._value("shown-nccl-files", {}))
