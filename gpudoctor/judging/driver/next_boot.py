"""The release of the driver's module that the next boot would load."""

from __future__ import annotations

import re

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known


def on_disk(facts: Facts) -> str | None:
    """The version of the running kernel's module on disk; None if unknown."""
    return known(lambda: facts.driver.modinfo.get("version"))


def waits_for_boot(facts: Facts) -> bool:
    """Whether the running kernel would load a module of the libraries' release."""
    return on_disk(facts) in facts.driver.library_versions and on_disk(facts) != facts.driver.module_version


def is_same_on_disk(facts: Facts) -> bool:
    """Whether the running kernel would load the currently loaded release again."""
    return facts.container.engine is None and on_disk(facts) == facts.driver.module_version


def stays(facts: Facts) -> bool:
    """Whether a reboot would not change the release."""
    return is_same_on_disk(facts) and next_kernel(facts) is None


def next_kernel(facts: Facts) -> str | None:
    """A newer installed kernel, unless its module is known to have the loaded release."""
    running = facts.system.kernel
    newer = [module.kernel for module in facts.driver.installed_modules if _numbers(module.kernel) > _numbers(running)]
    newest = max(newer, key=_numbers, default=None)
    return None if newest is None or facts.driver.module_version in _built_for(facts, newest) else newest


def _built_for(facts: Facts, kernel: str) -> set[str]:
    """The releases that DKMS built for a kernel."""
    return known(
        lambda: {entry.version for entry in facts.driver.dkms if entry.kernel == kernel and entry.module.startswith("nvidia")},
        set(),
    )


def _numbers(kernel: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", kernel)]
