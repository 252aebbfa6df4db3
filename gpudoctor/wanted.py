"""What to examine, and how: for the command line, a script or another command."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor.choices import ACCEPTANCE, BURN

if TYPE_CHECKING:
    from gpudoctor.doctor import Checks
    from gpudoctor.model import Snapshot


@dataclass(frozen=True)
class Request:
    """A container to examine: a new one from an image, or a running one. gpus: the GPUs that a new one gets."""

    image: str | None = None
    container: str | None = None
    engine: str | None = None
    registry: str = ""
    locked: bool = False
    gpus: str = "auto"
    gpu_mode: str = "auto"
    docker_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Burning:
    """A long load. loads: of "power", "memory", "pcie", "links". is_acceptance: the benchmarks come first.

    together: seconds of each workload on all GPUs at once; None for the usual share of the time.
    """

    seconds: float
    loads: tuple[str, ...]
    is_acceptance: bool = False
    together: dict[str, float] | None = None

    LINKS_SHARE = 0.2  # of the time, if there is other work: copies between the GPUs, then sums with matrix products
    OVERHEAD_SECONDS = 120.0  # imports and preparations
    TOGETHER = ("burn-links", "burn-collectives")

    def not_needed(self) -> tuple[str, ...]:
        """The checks that are not needed for these loads."""
        of_links = set(self.loads) == {"links"}
        return (() if "links" in self.loads else ("burn-links", "burn-collectives")) + (
            ("burn", "burn-steadiness") if of_links else ()
        )

    def options(self, gpus: int) -> dict[str, dict[str, Any]]:
        """Workload -> what it is asked to do on this many GPUs."""
        each = [load for load in self.loads if load != "links"]
        links = (self.LINKS_SHARE if each else 1.0) * self.seconds if "links" in self.loads and gpus > 1 else 0.0
        together = dict.fromkeys(self.TOGETHER, links / 2) if self.together is None else self.together
        seconds = {"burn": self.seconds - sum(together.values()), **together}
        return {name: {"seconds": each} for name, each in seconds.items()} | {"burn": {"seconds": seconds["burn"], "loads": each}}


@dataclass(frozen=True)
class Wanted:
    """What to examine and how.

    level: None means standard, or for a snapshot the level at which it was taken. python: None means the user's (see
    pythons.py). inside: a container instead of this machine. gpus: GPUs to measure; () is all. force: also measure GPUs that are
    in use, and start an image that cannot run here. timeout: seconds for all questions; measure_timeout: for all measurements,
    None means the limit of the level; experiment_timeout: for all experiments, which can be left out. burning: a long load
    instead of the benchmarks. baseline: None means the one saved here. expect: the file or the known type with what the machine
    should have; expected_before: what an earlier run was given. serials: ask for serial numbers, too. earlier: the snapshot of a
    load that is resumed. ignored: as in a snapshot. whole: also ask what the selected checks do not need.
    """

    level: str | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    python: str | None = None
    inside: Request | None = None
    expect_gpus: int | None = None
    expect: str | None = None
    expected_before: dict[str, Any] = field(default_factory=dict)
    serials: bool = False
    earlier: Snapshot | None = None
    gpus: tuple[int, ...] = ()
    force: bool = False
    timeout: float = 20
    measure_timeout: float | None = None
    experiments: bool = True
    experiment_timeout: float = 60
    burning: Burning | None = None
    baseline: Path | None = None
    ignored: dict[str, dict[str, str]] = field(default_factory=dict)
    whole: bool = True

    @property
    def depth(self) -> str:
        """The level of a snapshot of this; "" if its checks decide."""
        return (ACCEPTANCE if self.burning.is_acceptance else BURN) if self.burning else ""

    @property
    def expected(self) -> dict[str, int]:
        return {} if self.expect_gpus is None else {"gpus": self.expect_gpus}

    def expectation(self) -> dict[str, Any]:
        """As a snapshot keeps it; empty if none is given. UserError, in one line, for a file or name that is none."""
        from gpudoctor.files import expectation

        return expectation.named(self.expect) if self.expect else self.expected_before

    def checks(self, level: str | None = None) -> Checks:
        """The requested checks. level: the level of an existing snapshot. UserError for an unknown name."""
        from gpudoctor import catalog, doctor

        if self.only and self._are_ids():
            needed = catalog.with_needs(self.only)
            return {id: check for id, check in needed.items() if id not in self.skip}
        if self.burning:
            level = ACCEPTANCE if self.burning.is_acceptance else BURN
            return doctor.select(catalog.checks(), level, self.only, (*self.skip, *self.burning.not_needed()))
        return doctor.select(catalog.checks(), level or self.level or "standard", self.only, self.skip)

    def must_name_checks(self) -> None:
        """UserError for an unknown name."""
        if (self.only or self.skip) and not self._are_ids():
            self.checks()

    def _are_ids(self) -> bool:
        """Whether only ids of gpudoctor's own checks are named: then no others have to be loaded."""
        from gpudoctor import catalog

        return not self.burning and {*self.only, *self.skip} <= {*catalog.ids()}
