"""The meaning of a machine's raw replies: one lazily parsed, typed topic per module, read by the checks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, TypeVar

from gpudoctor.facts.adapters import Adapter, adapters
from gpudoctor.facts.command import Command, command_of
from gpudoctor.facts.container import Container
from gpudoctor.facts.cuda import Cuda
from gpudoctor.facts.devices import Devices
from gpudoctor.facts.driver import Driver
from gpudoctor.facts.engines import Engines
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.guarded import guarded
from gpudoctor.facts.inventory import Inventory
from gpudoctor.facts.job import Job
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.libraries import Libraries
from gpudoctor.facts.limits import Limits
from gpudoctor.facts.measured import Measured
from gpudoctor.facts.nccl_log import NcclLog
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import Pci
from gpudoctor.facts.python import Python
from gpudoctor.facts.replies import Replies
from gpudoctor.facts.services import Services
from gpudoctor.facts.shown import Shown
from gpudoctor.facts.sockets import Sockets
from gpudoctor.facts.system import System
from gpudoctor.facts.texts import Texts
from gpudoctor.facts.toolchain import Toolchain
from gpudoctor.facts.wsl import Wsl
from gpudoctor.model import Finding, Problem, Skip, Snapshot

Made = TypeVar("Made")


class Facts:
    """The facts of one machine. A topic or field whose probe failed raises Unavailable, which makes the check a SKIP.

    problems: every problem by its id, for checks whose evidence names a problem of another check. found: findings of the checks
    judged so far; a check that reads them lists those checks in `after`. unasked: as in Replies.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        problems: Callable[[], Mapping[str, Problem]] = dict,
        unasked: Callable[[str], None] = lambda question: None,
    ) -> None:
        self._problems = problems
        self.found: dict[str, tuple[Finding, ...]] = {}
        self.taken = snapshot.taken  # UTC, ISO 8601
        self.expected = snapshot.expected
        self.expectation = snapshot.expectation
        self.counters_before = snapshot.counters
        self.replies = Replies(snapshot.replies, unasked)
        self.measured = Measured(snapshot.measured)
        self.experiments = snapshot.experiments
        self.baseline = snapshot.baseline
        self._host = snapshot.host
        self._made: dict[Hashable, tuple[Any, ...] | Callable[[], Skip]] = {}

    def once(self, make: Callable[[Facts], Iterable[Made]]) -> tuple[Made, ...]:
        """The result of `make` for these facts, computed at the first call. If it raised Skip, each call raises it again.

        An answer of an unexpected form raises Unavailable.

        This way the judge, the summary and the report use the same `figures` of a check.
        """
        if make not in self._made:
            try:
                self._made[make] = tuple(guarded(make)(self))
            except Skip as skip:  # whose traceback would keep these facts until a collection of garbage
                self._made[make] = partial(type(skip), skip.reason, skip.kind)
        made = self._made[make]
        if isinstance(made, tuple):
            return made
        raise made()

    @cached_property
    def problems(self) -> Mapping[str, Problem]:
        return self._problems()

    @cached_property
    def host(self) -> Facts:
        """The facts of the host of a container that was examined from outside; otherwise Skip."""
        if not self._host:
            raise Skip("no container was examined from its host")
        return Facts(Snapshot("", "", self.taken, self._host))

    @cached_property
    def system(self) -> System:
        return System(self.replies)

    @cached_property
    def inventory(self) -> Inventory:
        return Inventory(self.replies)

    @cached_property
    def sockets(self) -> Sockets:
        return Sockets(self.replies)

    @cached_property
    def driver(self) -> Driver:
        return Driver(self.replies)

    @cached_property
    def pci(self) -> Pci:
        return Pci(self.replies)

    @cached_property
    def devices(self) -> Devices:
        return Devices(self.replies)

    @cached_property
    def adapters(self) -> tuple[Adapter, ...]:
        """The network adapters for RDMA."""
        return adapters(self.replies)

    @cached_property
    def kernel_log(self) -> KernelLog:
        return KernelLog(self.replies)

    @cached_property
    def nvml(self) -> Nvml:
        return Nvml(self.replies)

    @cached_property
    def cuda(self) -> Cuda:
        return Cuda(self.replies)

    @cached_property
    def environment(self) -> Environment:
        return Environment(self.replies)

    @cached_property
    def python(self) -> Python:
        return Python(self.replies)

    @cached_property
    def libraries(self) -> Libraries:
        return Libraries(self.replies)

    @cached_property
    def toolchain(self) -> Toolchain:
        return Toolchain(self.replies)

    @cached_property
    def limits(self) -> Limits:
        return Limits(self.replies)

    @cached_property
    def container(self) -> Container:
        return Container(self.replies)

    @cached_property
    def wsl(self) -> Wsl:
        return Wsl(self.replies)

    @cached_property
    def engines(self) -> Engines:
        return Engines(self.replies)

    @cached_property
    def job(self) -> Job:
        return Job(self.replies)

    @cached_property
    def services(self) -> Services:
        return Services(self.replies)

    @cached_property
    def nccl_log(self) -> NcclLog:
        return NcclLog(self.replies)

    @cached_property
    def shown(self) -> Shown:
        return Shown(self.replies)

    @cached_property
    def texts(self) -> Texts:
        return Texts(self.replies)

    @cached_property
    def command(self) -> Command:
        """Skip if no command was run."""
        return command_of(self.replies)
