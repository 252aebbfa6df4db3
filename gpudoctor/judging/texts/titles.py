"""Titles for problems that a text describes but does not show: they must not name a state that only an output can show."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.model import Problem

DESCRIBED = {"nccl-p2p-hang-acs-iommu": "Traffic between the GPUs is likely redirected or blocked (ACS, IOMMU)"}


def described(problem: Problem) -> Problem:
    return replace(problem, title=DESCRIBED.get(problem.id, problem.title))
