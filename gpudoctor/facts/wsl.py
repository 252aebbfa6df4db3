"""The Windows Subsystem for Linux: what Windows provides, and parts of a Linux driver that interfere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.libraries import Libraries
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip, Unavailable

# Packages that install a Linux driver; a CUDA toolkit or the container toolkit does not.
# https://docs.nvidia.com/cuda/wsl-user-guide/index.html
DRIVER_PACKAGE = re.compile(
    r"""
    (lib)?nvidia-(
        driver | utils | compute | dkms | kernel | headless | smi | gl | decode | encode | ml\d | ptxjitcompiler | persistenced
    )\b.*
    | nvidia(-open|-lts)?(-\d+)?
    | libcuda1
    | cuda | cuda-\d+-\d+ | cuda-drivers.*
    | (xserver-xorg-video|xorg-x11-drv)-nvidia.*
    | (dkms|kmod|akmod)-nvidia.*
    """,
    re.VERBOSE,
)
NVIDIA_NAMES = ("nv", "libcuda", "libnvidia", "libnv")  # nv_dispi.inf_amd64_..., nvlti...; nvidia-smi
DRIVER_LIBRARIES = ("libcuda", "libnvidia-ml")
OTHERS = {"compat", "stubs", "wheel", "conda", "wsl", "container"}  # other sources of these libraries


class Wsl(Guarded):
    """Facts of WSL; each raises Unavailable (not applicable) outside WSL."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def is_wsl(self) -> bool:
        return bool(self._replies.value("wsl")["is_wsl"])

    def _require(self) -> None:
        if not self.is_wsl:
            raise Unavailable("this is not the Windows Subsystem for Linux", Skip.NOT_APPLICABLE)

    @cached_property
    def _marks(self) -> Mapping[str, bool]:
        self._require()
        return dict(self._replies.value("wsl")["marks"])

    @property
    def has_dxg(self) -> bool:
        """/dev/dxg, the paravirtual GPU."""
        return self._marks["/dev/dxg"]

    @cached_property
    def library_directory(self) -> dict[str, str]:
        """Name -> "file" or "link" in /usr/lib/wsl/lib; empty if the folder does not exist."""
        self._require()
        entries: dict[str, dict[str, Any]] = self._replies.optional("wsl-libraries") or {}
        return {name: entry["kind"] for name, entry in entries.items()}

    @cached_property
    def driver_store(self) -> tuple[str, ...]:
        """The folders of the Windows driver store, such as nv_dispi.inf_amd64_0123456789abcdef."""
        self._require()
        paths: list[str] = self._replies.value("glob:/usr/lib/wsl/drivers/*")
        return tuple(path.rpartition("/")[2] for path in paths)

    @cached_property
    def has_no_windows_driver(self) -> bool:
        """Windows provides nothing from NVIDIA: no library, and in the driver store only folders of other vendors."""
        try:
            lent = (*self.library_directory, *self.driver_store)
        except Unavailable:  # no evidence for it
            return False
        return bool(self.driver_store) and not any(name.startswith(NVIDIA_NAMES) for name in lent)

    @cached_property
    def configuration(self) -> str | None:
        """/etc/wsl.conf."""
        self._require()
        return self._replies.file("/etc/wsl.conf")

    @cached_property
    def kernel_config_dxgkrnl(self) -> bool | None:
        """Whether the kernel was built with the paravirtual GPU; None if it does not publish its configuration."""
        self._require()
        lines: str | None = self._replies.optional("kernel-config")
        return None if lines is None else bool(re.search(r"(?m)^CONFIG_DXGKRNL=[ym]", lines))

    @cached_property
    def linux_driver_packages(self) -> tuple[str, ...]:
        """Installed packages of a Linux driver, which do not belong in WSL."""
        self._require()
        names = (package.name for package in Driver(self._replies).packages if package.state == "installed")
        return tuple(sorted({name for name in names if DRIVER_PACKAGE.fullmatch(name)}))

    @cached_property
    def linux_libraries(self) -> tuple[str, ...]:
        """Paths of libcuda and libnvidia-ml that do not come from Windows and hide those that do."""
        self._require()
        libraries = [library for name in DRIVER_LIBRARIES for library in Libraries(self._replies).named(name)]
        paths = {library.path for library in libraries if not OTHERS.intersection((library.via, library.owner))}
        return tuple(sorted(paths))
