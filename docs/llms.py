"""llms.txt: what a language model reads first. A list of the pages, made from the navigation. https://llmstxt.org"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HEAD = """\
# gpudoctor

> Finds out what is wrong with a machine with NVIDIA GPUs, a container, a Python environment or a running job, and what to type to
> fix it. Commands: check, fix, why, explain, hang, watch, profile, plan, diff, report. Only fix --run changes a machine.

`gpudoctor mcp` serves check, explain, replay, diff, list and fix to an MCP client (`pip install '.[mcp]'` in a checkout).
"""


def text(nav: Iterable[Any], folder: Path, site: str = "") -> str:
    """nav: of mkdocs.yml. site: the address that the links begin with."""
    return "\n".join([HEAD, "## Pages", "", *_pages(nav, folder, site), ""])


def _pages(nav: Iterable[Any], folder: Path, site: str) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, dict):
            for title, path in entry.items():
                yield f"- [{title}]({site}{_address(path)})"
        else:
            title, about = _beginning((folder / entry).read_text(encoding="utf-8"))
            yield f"- [{title}]({site}{_address(entry)}): {about}"


def _address(path: str) -> str:
    return re.sub(r"\.md$", ".html", path)


def _beginning(page: str) -> tuple[str, str]:
    """The heading and the first sentence of a page."""
    heading = re.search(r"^# (.+)$", page, re.M)
    title = heading[1] if heading else ""
    below = page[heading.end() :] if heading else page
    paragraph = next((part for part in below.split("\n\n") if re.match(r"\s*(?!```)[A-Za-z`*]", part)), "")
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))
    return title, re.split(r"(?<=[.!?:])\s", plain, maxsplit=1)[0].rstrip(":")
