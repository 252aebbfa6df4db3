"""The Chromium that tests of pages open them in."""

from __future__ import annotations

import importlib.util
import shutil

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
PACKAGES = ("playwright", "axe_playwright_python")


def missing() -> str:
    """What has to be installed for them; "" if nothing."""
    if packages := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        return f"not installed: {', '.join(packages)}"
    return "" if CHROMIUM else "Chromium is not installed (apt install chromium)"
