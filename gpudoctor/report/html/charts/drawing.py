"""How a chart is drawn: pygal places it, the page's CSS colours it, and each mark says what it is when pointed at."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import pygal
from markupsafe import Markup
from pygal.style import Style

from gpudoctor.plain import plain

# pygal's finder lets its plugins be imported, of which there are none here; Python warns of its old kind at every import.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "PluginImportFixer"]

WIDTH, HEIGHT = 440, 250
LETTER = 11  # pixels, at most
_SIDE = 70  # pixels of the axis at the left
_FONT = 18  # as large as the page's CSS makes it on a phone
_NUMBER = re.compile(r"-?\d+\.\d+")
_STYLE = Style(
    label_font_size=_FONT, major_label_font_size=_FONT, value_font_size=_FONT, value_label_font_size=_FONT, title_font_size=_FONT
)
_LOOK = {
    "css": [],
    "js": [],
    "style": _STYLE,
    "no_prefix": True,
    "disable_xml_declaration": True,
    "show_legend": False,
    "width": WIDTH,
    "height": HEIGHT,
    "margin": 6,
    "margin_right": 12,
    "spacing": 6,
    "truncate_label": -1,
}


@dataclass(frozen=True)
class Cell:
    """kind: what the page's CSS gives it: a status, or "level-0" to "level-6" of a heat map."""

    text: str
    kind: str = ""
    about: str = ""


@dataclass(frozen=True)
class Table:
    """The numbers; the first cell of a row names it."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Key:
    """What a mark of the chart means. kind: the class of the mark."""

    kind: str
    text: str


@dataclass(frozen=True)
class Chart:
    """A picture with a table of its numbers, or only the table if svg is empty."""

    id: str
    title: str
    about: str
    svg: str = ""
    table: Table | None = None
    keys: tuple[Key, ...] = ()
    wide: bool = False


class _Bars(pygal.Bar):  # type: ignore[misc]
    _series_margin = 0.1  # between the groups


class _LyingBars(pygal.HorizontalBar):  # type: ignore[misc]
    _series_margin = 0.1


def bars(**options: Any) -> Any:
    return _Bars(**{**_LOOK, **options})


def lying_bars(**options: Any) -> Any:
    return _LyingBars(**{**_LOOK, **options})


def is_lying(labels: Sequence[str]) -> bool:
    """Whether the labels of bars find no room below them, and stand at the left."""
    return max(map(len, labels)) * LETTER > (WIDTH - _SIDE) / len(labels)


def lines(**options: Any) -> Any:
    return pygal.XY(**{**_LOOK, "show_dots": False, "show_x_guides": True, "y_labels_major": [], **options})


def mark(value: Any, says: str, kind: str, **options: Any) -> dict[str, Any]:
    """A value with the words for whoever points at it, and the class that colours it."""
    return {"value": value, "formatter": lambda _: says, "node": {"class": f"mark {kind}"}, **options}


def ticks(labels: Mapping[float, str]) -> list[dict[str, Any]]:
    """Of an axis: value -> label."""
    return [{"value": value, "label": label} for value, label in labels.items()]


def drawn(chart: Any, title: str, kinds: Sequence[str] = ()) -> Markup:
    """kinds: the class of each series. The styles, scripts and ids that pygal adds are removed."""
    root = chart.render_tree()
    root.attrib.pop("id", None)
    root.attrib.update(
        {"role": "img", "aria-label": plain(title), "class": "chart lying" if isinstance(chart, _LyingBars) else "chart"}
    )
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("defs", ElementTree.Comment) or "tooltip-overlay" in child.get("class", ""):
                parent.remove(child)
        _say(parent)
        for name, value in parent.attrib.items():
            parent.attrib[name] = _NUMBER.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), value)
    _named(root, kinds)
    root.find("title").text = title
    for node in root.iter():
        node.text = plain(node.text) if node.text else node.text
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _say(node: Any) -> None:
    """Text that pygal stores for its script becomes a title, which browsers show and read out."""
    for child in [child for child in node if child.tag == "desc"]:
        if child.get("class") == "value":
            ElementTree.SubElement(node, "title").text = child.text
        node.remove(child)


def _named(root: Any, kinds: Sequence[str]) -> None:
    for node in root.iter("g"):
        number = re.search(r"\bserie-(\d+)", node.get("class", ""))
        if number and int(number[1]) < len(kinds):
            node.set("class", f"series {kinds[int(number[1])]}")
