"""The driver from NVIDIA's .run installer, which no package manager knows of."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.fixes.distribution import Distribution, Lines

DOWNLOADS = "https://us.download.nvidia.com/tesla"
UNDO = "sudo nvidia-uninstall"
KEY = "/root/nvidia-module"
MAKE_KEY = (
    "Make a key of your own and enrol it (it asks for a password); at the next boot choose 'Enroll MOK' and give that again"
)
USE_KEY = "After that boot: install the driver again, signed with this key; likewise after each new kernel"
ASKS_FROM = 560  # which of the two modules; before, the proprietary one unless told


def file(host: Distribution, version: str) -> str:
    return f"NVIDIA-Linux-{host.architecture}-{version}.run"


def install(host: Distribution, branch: int) -> Lines:
    """Which release of the branch is for the person who downloads it: https://www.nvidia.com/drivers."""
    return Lines(f"sudo sh {file(host, f'{branch}.*')}{module_option(host, branch)}", UNDO, kind="manual")


def module_option(host: Distribution, branch: int) -> str:
    if branch < ASKS_FROM:
        return " -m=kernel-open" if host.wants_open(branch) else ""
    return " -M=open" if host.wants_open(branch) else " -M=proprietary"


def again(host: Distribution, options: str = "") -> Lines:
    """The release that is installed, once more."""
    if not host.driver:
        return Lines("")
    name = file(host, host.driver)
    return Lines(f"curl -fLO {DOWNLOADS}/{host.driver}/{name} && sudo sh {name}{options}", UNDO)


def module(host: Distribution) -> Lines:
    if host.has("^dkms$"):
        return Lines("sudo dkms autoinstall", loads=True)
    return again(host, " -K")._replace(loads=True)


def reinstall(host: Distribution) -> Lines:
    return again(host)


def libraries(host: Distribution) -> Lines:
    return again(host, " --no-kernel-module")


def fabric_manager(host: Distribution) -> Lines:
    return Lines("")


def toolkit(host: Distribution, release: str) -> Lines:
    return Lines("")


def with_own_key(host: Distribution) -> Iterator[tuple[str, Lines]]:
    """Titles and lines: the installer signs with any key, and the firmware must know that one before."""
    made = (
        "sudo openssl req -new -x509 -newkey rsa:2048 -nodes -days 36500 -subj '/CN=NVIDIA module/' "
        f"-keyout {KEY}.key -outform DER -out {KEY}.der"
    )
    yield MAKE_KEY, Lines(f"{made} && sudo mokutil --import {KEY}.der", kind="set", reboot=True)
    signing = f" --module-signing-secret-key={KEY}.key --module-signing-public-key={KEY}.der"
    any_release = Lines(f"sudo sh {file(host, '*')}{signing}", kind="manual")
    yield USE_KEY, (again(host, signing) if host.driver else any_release)._replace(undo="", loads=True)


def sign(host: Distribution) -> Lines:
    return Lines("sudo mokutil --import /var/lib/dkms/mok.pub" if host.has("^dkms$") else "", kind="set")
