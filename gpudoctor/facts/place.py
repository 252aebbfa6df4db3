"""What a machine is, as far as its fixes depend on it: virtual or physical, and whether a controller (BMC) watches its boards."""

from __future__ import annotations

import re

from gpudoctor.facts.known import known
from gpudoctor.facts.replies import Replies

# SMBIOS 3.7, table 17: portable, laptop, notebook, handheld, all in one, sub-notebook, tablet, convertible, detachable, mini PC.
PERSONAL_CHASSIS = ("8", "9", "10", "11", "13", "14", "30", "31", "32", "35")
# Boards of desktops carry the chipset in their name. Boards of workstations (Pro WS, WRX80) have a BMC.
PERSONAL = re.compile(
    r"""
    \b(?:
        (?: A[356]2 | B[3-8][56] | H[3-8][17] | X[3-8]7 | Z[3-9][79] ) 0 [EMI]?
        | ROG | TUF | AORUS | OptiPlex | XPS | Inspiron | Alienware | ThinkPad | ThinkCentre | IdeaPad | Legion | OMEN | Pavilion
        | EliteDesk | EliteBook | ZBook
    )\b
    """,
    re.VERBOSE,
)
_DMI = "/sys/class/dmi/id/"


def tags(replies: Replies, hypervisor: str | None) -> tuple[str, ...]:
    """vm; or physical, also if nothing is known, and bmc unless it is a laptop or a desktop."""
    if hypervisor:
        return ("vm",)
    chassis = known(lambda: replies.file(_DMI + "chassis_type")) or ""
    product = known(lambda: replies.file(_DMI + "product_name")) or ""
    is_personal = chassis.strip() in PERSONAL_CHASSIS or bool(PERSONAL.search(product))
    return ("physical",) if is_personal else ("physical", "bmc")
