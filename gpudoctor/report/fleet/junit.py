"""A fleet as JUnit XML: a kind of machines is a suite, a node is a test case."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from gpudoctor.fleet.model import TITLES, Fleet, Node, State
from gpudoctor.model import Status
from gpudoctor.report.junit import text


def render(fleet: Fleet) -> str:
    root = Element("testsuites", _counts("gpudoctor.fleet", fleet.nodes))
    for kind in fleet.kinds:
        nodes = [node for node in fleet.nodes if node.kind == kind.name]
        suite = SubElement(root, "testsuite", _counts(kind.name, nodes))
        for node in nodes:
            _case(suite, kind.name, node)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _counts(name: str, nodes: tuple[Node, ...] | list[Node]) -> dict[str, str]:
    silent = sum(not node.state.has_answered for node in nodes)
    failed = sum(node.is_bad for node in nodes) - silent
    return {"name": text(name), "tests": str(len(nodes)), "failures": str(failed), "errors": str(silent), "time": "0"}


def _case(suite: Element, kind: str, node: Node) -> None:
    case = SubElement(suite, "testcase", classname=text(kind), name=text(node.name), time="0")
    told = text("\n".join(said(node)))
    if not node.state.has_answered:
        SubElement(case, "error", message=text(about(node)), type=node.state.value).text = told
    elif node.is_bad:
        first = next((problem.id for problem in node.problems if problem.status is Status.FAIL), node.state.value)
        SubElement(case, "failure", message=text(about(node)), type=text(first)).text = told
    elif told:
        SubElement(case, "system-out").text = told


def about(node: Node) -> str:
    return said(node)[0] if said(node) else ""


def said(node: Node) -> list[str]:
    """What was found on a node, a line each."""
    lines = [TITLES[node.state] + (f": {node.detail}" if node.detail else "")] if node.state is not State.ANSWERED else []
    lines += [f"{problem.title}: {problem.message}" for problem in node.problems]
    return lines + [f"{each.what}: {each.value}, usually {each.usual}" for each in node.differences if each.kind != "setting"]
