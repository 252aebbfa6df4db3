"""An upgrade that removed the modules of the kernel that still runs."""

from __future__ import annotations

from gpudoctor.facts import Facts
from gpudoctor.model import Action, Finding, Fix, Problem

GONE = Problem(
    id="running-kernel-replaced",
    title="An upgrade replaced the running kernel and removed its modules",
    why="Some distributions remove the old kernel's modules when they install a new one. Until the reboot no further module can "
    "be loaded, so the driver cannot start.",
    action=Action.REBOOT,
    fixes=(Fix("Reboot into the installed kernel", verify="uname -r; nvidia-smi", on=("host",), reboot=True),),
    references=(
        "https://github.com/saber-nyan/kernel-modules-hook/issues/9",
        "https://wiki.archlinux.org/title/System_maintenance",
    ),
)


def replaced(facts: Facts) -> Finding | None:
    """The running kernel has no folder below /lib/modules, and another kernel has the driver's module. A text shows but some."""
    if facts.texts.alone:
        return None
    kernel = facts.system.kernel
    ready = sorted({module.kernel for module in facts.driver.installed_modules})
    if not ready or not facts.driver.kernels_with_modules or kernel in facts.driver.kernels_with_modules:
        return None
    words = f"kernel {kernel} is running, but /lib/modules has no folder for it; the driver is there for {', '.join(ready)}"
    return GONE.found(words, {"running": kernel, "installed": ready})
