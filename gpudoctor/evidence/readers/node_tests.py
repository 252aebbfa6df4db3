"""Results of other programs that test GPU machines: `dcgmi diag -j` of DCGM 3 and 4, and result files of SuperBench."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_DCGM = re.compile(r'"DCGM (?:GPU )?Diagnostic"\s*:')
_SUPERBENCH = re.compile(r'^\s*\{.*"[\w./-]+/return_code(?::\d+)?"\s*:')
_MOST = 2000  # results


def dcgm(text: str) -> dict[str, Reply] | None:
    """`node-tests`: one record per result. The first line may begin in the middle of the object."""
    begins = _DCGM.search(text)
    if not begins:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode("{" + text[begins.start() :])
    except (ValueError, RecursionError):
        return None
    whole = next((found[name] for name in ("DCGM Diagnostic", "DCGM GPU Diagnostic") if name in found), None)
    if not isinstance(whole, dict) or not isinstance(whole.get("test_categories"), list):
        return None
    about = found.get("metadata") if isinstance(found.get("metadata"), dict) else {}
    return {"node-tests": Reply("ok", {"tool": "DCGM", "version": _version(about), "results": list(_results(whole))[:_MOST]})}


def _version(about: dict[str, Any]) -> str:
    found = about.get("version") or about.get("DCGM Version")
    return found if isinstance(found, str) else ""


def _results(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for category in _records(whole.get("test_categories")):
        for test in _records(category.get("tests")):
            for result in _records(test.get("results")):
                yield {
                    "test": str(test.get("name") or ""),
                    "category": str(category.get("category") or ""),
                    "status": str(result.get("status") or "").lower(),
                    "gpu": _gpu(result),
                    "words": _words(result),
                }


def _records(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _gpu(result: dict[str, Any]) -> int | None:
    """DCGM 4 names an entity of a group; DCGM 3 has ids of GPUs as text."""
    if "entity_id" in result and result.get("entity_group") != "GPU":
        return None
    found = result.get("entity_id", result.get("gpu_id", result.get("gpu_ids")))
    text = str(found if found is not None else "")
    return int(text) if re.fullmatch(r"\d{1,3}", text) else None


def _words(result: dict[str, Any]) -> list[str]:
    """DCGM 4 lists its warnings as objects, DCGM 3 writes one text."""
    warnings = result.get("warnings")
    if isinstance(warnings, str):
        return [warnings]
    if not isinstance(warnings, list):
        return []
    texts = [item.get("warning", "") if isinstance(item, dict) else item for item in warnings]
    return [text for text in texts if isinstance(text, str) and text]


def superbench(text: str) -> dict[str, Reply] | None:
    """Each line is a node; a benchmark whose return code is not 0 failed. Names of nodes are left out."""
    results: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines()):
        try:
            node = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for name, code in node.items() if isinstance(node, dict) else ():
            benchmark, _, rest = name.rpartition("/")
            if rest.split(":")[0] == "return_code" and isinstance(code, int | float):
                status = "pass" if code == 0 else "fail"
                words = [f"return code {code:g} on node {number + 1}"] if code else []
                results.append({"test": benchmark, "category": "", "status": status, "gpu": None, "words": words})
    return {"node-tests": Reply("ok", {"tool": "SuperBench", "version": "", "results": results[:_MOST]})} if results else None


READERS = (
    Reader("dcgmi diag -j", ('"DCGM Diagnostic"', '"DCGM GPU Diagnostic"'), _DCGM, dcgm),
    Reader("results of SuperBench", ("/return_code",), _SUPERBENCH, superbench, re.compile(r"^(?!\s*\{)")),
)
