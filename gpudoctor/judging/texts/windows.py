"""A Windows that is too old to share its GPU, as a text shows it."""

from __future__ import annotations

import re

from gpudoctor.fixes.common import shut_down_wsl
from gpudoctor.model import Fix

FIRST_BUILD = 19044  # Windows 10 21H2
WINDOWS = re.compile(r"(?i)\b(?:Microsoft Windows \[)?Version:?\s+10\.0\.(\d{5})\b")

OLD_WINDOWS = "This Windows is too old to share its GPU with WSL"
WHY_OLD_WINDOWS = (
    "Windows shares GPUs with WSL 2 from Windows 10 21H2 (build 19044) and in Windows 11. An older one has no /dev/dxg in WSL, "
    "whatever driver is installed."
)
WAYS_OF_WINDOWS = (
    Fix("In Windows: update to Windows 10 21H2 (build 19044), Windows 11 or newer (winver shows the build)"),
    shut_down_wsl("Update WSL and its kernel from Windows", verify="ls -l /dev/dxg", before="wsl.exe --update"),
    shut_down_wsl("In Windows: install the newest driver from https://www.nvidia.com/Download, then shut WSL down"),
)
