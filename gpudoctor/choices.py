"""Values chosen by name: types for type checkers, tuples for the command line, keys for tables of functions."""

from __future__ import annotations

from typing import Literal, get_args

Level = Literal["quick", "standard", "full"]
Format = Literal["text", "html", "markdown", "json", "junit", "sarif", "prometheus", "otlp"]
Project = Literal["github", "pytorch", "vllm", "nccl", "cupy", "toolkit", "driver"]

LEVELS: tuple[Level, ...] = get_args(Level)
# The depth of checks: those of `gpudoctor burn` work for minutes, and belong to no level that a user names. For an
# acceptance, the benchmarks of level standard come first.
BURN = "burn"
ACCEPTANCE = "acceptance"
DEPTHS = (*LEVELS, BURN, ACCEPTANCE)
FORMATS: tuple[Format, ...] = get_args(Format)
PROJECTS: tuple[Project, ...] = get_args(Project)
GPU_MODES = ("auto", "cdi", "runtime", "gpus", "none")
