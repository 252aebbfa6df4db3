"""The driver from NVIDIA's .run installer, which no package manager tracks."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.fixes.distribution import IMPORT, UNIMPORT, Distribution, Lines

DOWNLOADS = "https://us.download.nvidia.com/tesla"
UNDO = "sudo nvidia-uninstall"
KEY = "/root/nvidia-module"
MAKE_KEY = (
    "Create a signing key and enrol it (it asks for a password); at the next boot, choose 'Enroll MOK' and enter the password "
    "again"
)
USE_KEY = "After that boot: reinstall the driver, signed with this key; repeat this after each new kernel"
ASKS_FROM = 560  # since this branch it asks which module to install; before, proprietary is the default


def file(host: Distribution, version: str) -> str:
    return f"NVIDIA-Linux-{host.architecture}-{version}.run"


def install(host: Distribution, branch: int) -> Lines:
    """The person who downloads it chooses the release of the branch: https://www.nvidia.com/drivers."""
    return Lines(f"sudo sh {file(host, f'{branch}.*')}{module_option(host, branch)}", UNDO, kind="manual")


def module_option(host: Distribution, branch: int) -> str:
    if branch < ASKS_FROM:
        return " -m=kernel-open" if host.wants_open(branch) else ""
    return " -M=open" if host.wants_open(branch) else " -M=proprietary"


def again(host: Distribution, options: str = "") -> Lines:
    """Reinstalls the installed release."""
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
    """Titles and lines: the installer signs with any key, which must be enrolled in the firmware first."""
    made = (
        "sudo openssl req -new -x509 -newkey rsa:2048 -nodes -days 36500 -subj '/CN=NVIDIA module/' "
        f"-keyout {KEY}.key -outform DER -out {KEY}.der"
    )
    yield (
        MAKE_KEY,
        Lines(f"{made} && sudo mokutil --import {KEY}.der", f"sudo mokutil --delete {KEY}.der", kind="set", reboot=True),
    )
    signing = f" --module-signing-secret-key={KEY}.key --module-signing-public-key={KEY}.der"
    any_release = Lines(f"sudo sh {file(host, '*')}{signing}", kind="manual")
    yield USE_KEY, (again(host, signing) if host.driver else any_release)._replace(undo="", loads=True)


def sign(host: Distribution) -> Lines:
    return Lines(IMPORT, UNIMPORT, kind="set") if host.has("^dkms$") else Lines("")
