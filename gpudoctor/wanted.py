"""What is examined, and how, whoever asks for it: the command line, a script or another command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.doctor import Checks


@dataclass(frozen=True)
class Request:
    """A container to look into: one of an image, or one that runs. gpus: which of them that of an image gets."""

    image: str | None = None
    container: str | None = None
    engine: str | None = None
    registry: str = ""
    locked: bool = False
    gpus: str = "auto"
    gpu_mode: str = "auto"
    docker_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """level: None is standard, and of a snapshot the one at which it was taken. python: None is the one that runs this.

    inside: a container instead of this machine. gpus: to measure; () is all. force: measure those that others use, start an image
    that cannot run here. timeout: seconds for all questions; measure_timeout: for all measurements, None is as many as the level
    allows. baseline: None is the one saved here.
    """

    level: str | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    python: str | None = None
    inside: Request | None = None
    expect_gpus: int | None = None
    gpus: tuple[int, ...] = ()
    force: bool = False
    timeout: float = 20
    measure_timeout: float | None = None
    baseline: Path | None = None

    @property
    def expected(self) -> dict[str, int]:
        return {} if self.expect_gpus is None else {"gpus": self.expect_gpus}

    def checks(self, level: str | None = None) -> Checks:
        """The checks that are asked for. level: of a snapshot that is there. UserError for a name that is none."""
        from gpudoctor import catalog, doctor

        return doctor.select(catalog.checks(), level or self.level or "standard", self.only, self.skip)
