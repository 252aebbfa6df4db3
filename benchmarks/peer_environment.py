"""What an environment of the comparison is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from peer_machine import Machine
from peer_packages import Package

H100_MACHINE = Machine()


@dataclass(frozen=True)
class Environment:
    """wrong: in words; empty for a healthy one. causes: gpudoctor's ids of what is wrong. words: a regular expression for the
    same in any tool's own words. also: one more command of env-doctor. kind: check, text (for explain), dockerfile,
    docker-compose, or question (which `also` answers)."""

    name: str
    wrong: str
    causes: tuple[str, ...] = ()
    words: str = "(?!)"
    machine: Machine = H100_MACHINE
    packages: tuple[Package, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    kind: str = "check"
