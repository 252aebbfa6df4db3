"""Decodes an Xid 144 to 150: its unit, sub-code and error status, and what NVIDIA's table recommends for them."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts.kernel_log import Xid
from gpudoctor.facts.xids import GpuXids
from gpudoctor.knowledge.nvlink5 import LinkError
from gpudoctor.model import Finding

CODES = range(144, 151)
# "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 ...": drivers before R575 print one word, in brackets
LINE = re.compile(r"^(\w+)\s+(?:Nonf|F)atal\s.*\((0x[0-9a-f]{8}) (0x[0-9a-f]{8})\b", re.IGNORECASE)
SUBCODE_SHIFT, SUBCODE_BITS = 20, 0x3F
NOTHING = "IGNORE"


def told(finding: Finding, gpu: GpuXids) -> Finding:
    """The finding, with what NVIDIA's table recommends for the first error that it contains."""
    for xid in gpu.all:
        row = decoded(xid) if xid.code in CODES else None
        words = knowledge.xid_action(row.investigate) if row and row.investigate != NOTHING else None
        if row and words:
            number = f"{row.unit} {row.subcode}" + (f", status {row.status:#x}" if row.status else "")
            message = f"{finding.message}; NVIDIA's table on {number}: {words[0].lower()}{words[1:].rstrip('.')}"
            return replace(finding, message=message, evidence={**finding.evidence, "subcode": row.subcode, "unit": row.unit})
    return finding


def decoded(xid: Xid) -> LinkError | None:
    line = LINE.search(xid.text)
    if not line:
        return None
    information, status = int(line[2], 16), int(line[3], 16)
    return knowledge.nvlink5_error(xid.code, line[1], information >> SUBCODE_SHIFT & SUBCODE_BITS, status)
