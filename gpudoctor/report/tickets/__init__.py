"""Tickets: the sections of a project's issue form, filled in as far as possible and short enough to post."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpudoctor.choices import Project
from gpudoctor.model import Report, Snapshot
from gpudoctor.report.tickets import fitting, forms, sections
from gpudoctor.report.tickets.sections import DIAGNOSIS, Section

MOST_CHARACTERS = 60_000  # GitHub takes 65,536


@dataclass(frozen=True)
class Form:
    """quotes: the tools whose output it includes. about: where the project's form is.

    rest: the field of the form for everything else; "" if the form is one text.
    """

    sections: Callable[[Report, Snapshot | None], tuple[Section, ...]]
    quotes: tuple[str, ...]
    about: str
    rest: str = ""


FORMS: dict[Project, Form] = {
    "github": Form(forms.github, ("nvidia-smi",), "any project"),
    "pytorch": Form(
        forms.pytorch, ("torch",), "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml", forms.DESCRIBE
    ),
    "vllm": Form(
        forms.vllm,
        ("vllm", "torch"),
        "https://github.com/vllm-project/vllm/issues/new?template=400-bug-report.yml",
        forms.DESCRIBE,
    ),
    "nccl": Form(
        forms.nccl,
        ("nvidia-smi", "topology", "infiniband"),
        "https://github.com/NVIDIA/nccl/issues/new?template=ISSUE.yaml",
        "Error Message & Behavior",
    ),
    "cupy": Form(forms.cupy, ("cupy",), "https://github.com/cupy/cupy/issues/new?template=bug.yml", "Additional Information"),
    "toolkit": Form(
        forms.toolkit, ("nvidia-smi",), "https://github.com/NVIDIA/nvidia-container-toolkit/issues/new?template=bug_report.md"
    ),
    "driver": Form(
        forms.driver,
        ("nvidia-smi",),
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/new?template=10_functional_bug.yml",
        "More Info",
    ),
}


def render(
    project: Project,
    report: Report,
    taken: Snapshot | None,
    made: str = "",
    attachment: str = "gpudoctor report --bundle report.tar.gz",
) -> str:
    """Markdown of at most MOST_CHARACTERS. taken: None for a saved report, which contains no output of other tools.

    made: what gives this ticket, where that is more than --for. attachment: what makes a bundle, where the rest of it is.
    """
    form = FORMS[project]
    first = _where_to_paste(form) if form.rest else ""
    parts = (*form.sections(report, taken), sections.made_by(report, made or f"gpudoctor report --for {project}"))
    return first + fitting.fitted(parts, MOST_CHARACTERS - len(first), attachment)


def _where_to_paste(form: Form) -> str:
    return (
        f"<!-- {form.about}: paste each section into the field of that name, and everything from "
        f'"{DIAGNOSIS}" on into "{form.rest}". -->\n\n'
    )
