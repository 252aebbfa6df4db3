"""Shortens a ticket that is too long: parts move to the attachment, and the ticket says how much and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpudoctor.report import markdown
from gpudoctor.report.tickets.sections import Part, Section

_ROOM = 400  # for the sentence about what is left out


def fitted(sections: Sequence[Section], most: int, attachment: str) -> str:
    """The sections, shortened; gpudoctor's own report is left out first. attachment: the command that makes one."""
    parts = {(at, place): part for at, section in enumerate(sections) for place, part in enumerate(section.parts)}
    spared = [place for place, part in parts.items() if part.is_own]
    while (excess := len(text := _written(sections, parts, attachment)) - most) > 0:
        if spared:
            place = spared.pop()
            parts[place] = replace(parts[place], text="", left_out=len(parts[place].text))
        else:
            place = max(parts, key=lambda place: len(parts[place].text))
            parts[place] = _shorter(parts[place], excess + _ROOM)
    return text


def _written(sections: Sequence[Section], parts: dict[tuple[int, int], Part], attachment: str) -> str:
    return "\n".join(
        f"### {section.title}\n\n" + "\n".join(_part(parts[at, place], attachment) for place in range(len(section.parts)))
        for at, section in enumerate(sections)
    )


def _part(part: Part, attachment: str) -> str:
    whole = f"{part.before}{part.text}{part.after}" if part.text else ""
    if not part.left_out:
        return whole
    said = (
        f"{part.left_out:,} characters left out to keep the ticket short: see "
        f"{markdown.code(part.file)} in the attachment from {markdown.code(attachment)}."
    )
    return f"{whole}\n_{said}_\n" if whole else f"_{said}_\n"


def _shorter(part: Part, excess: int) -> Part:
    """Cut at the end of a line, or of a word if a line is very long."""
    most = max(0, len(part.text) - excess)
    ends = (part.text.rfind("\n", most // 2, most), part.text.rfind(" ", 0, most))
    end = next((end for end in ends if end >= 0), most)
    kept = part.text[:end].rstrip()
    return replace(part, text=kept + "\n" * bool(kept), left_out=part.left_out + len(part.text) - len(kept))
