"""The target's Python and its packages, read without importing them."""

from __future__ import annotations

import re
from functools import cache, cached_property
from typing import Any

from packaging.requirements import Requirement

from gpudoctor.facts import shared
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.known import known
from gpudoctor.facts.packages import (
    CondaPackage,
    Differing,
    Package,
    assigned,
    by_name,
    canonicalize_name,
    differing,
    requirement,
)
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Unavailable

HASHES = "package-hashes:"


class Python(Guarded):
    """The examined interpreter; facts of a framework that is not installed raise Unavailable(not installed)."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def _interpreter(self) -> dict[str, Any]:
        return dict(self._replies.value("interpreter"))

    def _told(self, name: str) -> Any:
        if name not in self._interpreter:
            raise Unavailable(f"{name} of this Python is unknown")
        return self._interpreter[name]

    @property
    def executable(self) -> str:
        return str(self._told("executable"))

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(self._told("version"))

    @property
    def implementation(self) -> str:
        return str(self._told("implementation"))

    @property
    def prefix(self) -> str:
        return str(self._told("prefix"))

    @property
    def base_prefix(self) -> str:
        return str(self._told("base_prefix"))

    @property
    def is_virtual(self) -> bool:
        return self.prefix != self.base_prefix

    @property
    def conda_prefix(self) -> str | None:
        """The conda environment of this Python or, for a venv, of the Python that made it."""
        prefix: str | None = self._told("conda_prefix")
        return prefix or None

    @property
    def is_conda(self) -> bool:
        """Packages come from conda; False in a venv made from a conda Python."""
        return self.conda_prefix is not None and not self.is_virtual

    @cached_property
    def working_folder(self) -> dict[str, Any]:
        """folder, and hides: what is imported from it in place of others, each with module, file, hidden ("": Python's own)."""
        return dict(self._replies.value("working-folder"))

    @property
    def is_externally_managed(self) -> bool:
        """pip refuses to install outside a venv: https://peps.python.org/pep-0668/"""
        return bool(self._told("externally_managed")) and not self.is_virtual

    @property
    def venv_settings(self) -> tuple[str, ...]:
        """The names of the settings in pyvenv.cfg; uv and virtualenv add their own."""
        return tuple(self._interpreter.get("venv_settings", ()))

    @property
    def project_files(self) -> tuple[str, ...]:
        """The lock files next to the environment, of the tools that manage it: uv.lock, poetry.lock ..."""
        return tuple(self._interpreter.get("project_files", ()))

    @property
    def has_ctypes(self) -> bool:
        return bool(self._told("has_ctypes"))

    @property
    def has_headers(self) -> bool:
        """Python.h is where Triton and torch.utils.cpp_extension look for it."""
        return bool(self._told("python_h"))

    @property
    def include_directory(self) -> str:
        return str(self._told("include"))

    @property
    def import_path(self) -> tuple[str, ...]:
        """The folders of sys.path."""
        return tuple(self._told("path"))

    @property
    def user_site(self) -> str | None:
        """The user's site-packages, if this Python uses it."""
        return str(self._told("user_site")) if self._told("user_site_enabled") else None

    @property
    def libc(self) -> tuple[int, int] | None:
        """The version of glibc; None for another C library, for which there are no CUDA wheels."""
        name, version = (*self._told("libc"), "", "")[:2]
        match = re.match(r"(\d+)\.(\d+)", version)
        return (int(match[1]), int(match[2])) if name == "glibc" and match else None

    @property
    def marker_environment(self) -> dict[str, str]:
        """The values for evaluating requirement markers: those of the target, not of the running Python."""
        return dict(self._told("markers"))

    @cached_property
    def packages(self) -> dict[str, tuple[Package, ...]]:
        """Normalised name -> every copy found, in the order of sys.path."""
        return shared.once(self._replies.value("packages"), by_name)

    @cached_property
    def differing_files(self) -> tuple[Differing, ...]:
        """Files of GPU packages that are missing, truncated, of another size, or of other content than RECORD says."""
        hashed = self._replies.starting_with(HASHES).values()
        contents = [reply.value for reply in hashed if reply.status == "ok"]
        return differing(self._replies.value("package-files")) + differing(contents)

    @property
    def compared_files(self) -> tuple[int, int]:
        """How many GPU packages, and files of them, were compared with RECORD."""
        found = self._replies.value("package-files")
        return len(found), sum(record["checked"] for record in found)

    @property
    def hashed_bytes(self) -> int:
        """How much of their content was compared; 0 below level full."""
        return sum(reply.value["bytes"] for reply in self._replies.starting_with(HASHES).values() if reply.status == "ok")

    def package(self, name: str) -> Package | None:
        """The copy that is imported."""
        copies = self.packages.get(name) or self.packages.get(canonicalize_name(name))
        return copies[0] if copies else None

    def lacks(self, name: str) -> bool:
        """Whether a package is not installed; Unavailable if a text shows only a part of the list."""
        filters = self._replies.starting_with("packages-shown")
        is_whole = not filters or self._replies.starting_with("packages-listed")
        asked = (word for reply in filters.values() for word in reply.value or ())
        if self.package(name) is None and not is_whole and not any(word in canonicalize_name(name) for word in asked):
            raise Unavailable(f"the text shows only some packages, and {name} is not among those it asks for")
        return self.package(name) is None

    def requirements(self, package: Package) -> tuple[Requirement, ...]:
        """What a package requires in this Python, without extras; invalid lines (old eggs) are left out."""
        return _needed(package.requires, tuple({**self.marker_environment, "extra": ""}.items()))

    @cached_property
    def conda_packages(self) -> dict[str, CondaPackage]:
        """The GPU-related packages; empty if this is not a conda environment."""
        return {record["name"]: CondaPackage(**record) for record in self._replies.optional("conda") or ()}

    @property
    def _torch_without_files(self) -> Package | None:
        """The metadata of a torch whose files are missing."""
        return self.package("torch") if self._replies.get("torch").status == "missing" else None

    @cached_property
    def torch_version(self) -> str | None:
        if metadata := self._torch_without_files:
            return metadata.version
        stated = assigned(self._replies.value("torch")["version_py"], "__version__")
        package = known(lambda: self.package("torch")) if stated == "" else None  # a text can show only what it was built with
        return package.version if package else stated or None

    @cached_property
    def torch_cuda(self) -> str | None:
        """The CUDA version that torch was built with, such as "12.8"; None for a build without CUDA."""
        if metadata := self._torch_without_files:
            return cuda_of_local_version(metadata.version)
        return assigned(self._replies.value("torch")["version_py"], "cuda")

    @property
    def bitsandbytes_libraries(self) -> tuple[str, ...]:
        """For example libbitsandbytes_cpu.so and libbitsandbytes_cuda126.so."""
        return tuple(self._replies.value("bitsandbytes"))

    @cached_property
    def bitsandbytes_cuda(self) -> frozenset[tuple[int, int]]:
        """The CUDA versions that bitsandbytes has a library for."""
        digits = re.findall(r"libbitsandbytes_cuda(\d\d)(\d)", " ".join(self.bitsandbytes_libraries))
        return frozenset((int(major), int(minor)) for major, minor in digits)

    @cached_property
    def onnxruntime_package(self) -> str | None:
        """The package whose files are present, which is the one installed last: onnxruntime or onnxruntime-gpu."""
        return assigned(self._replies.value("onnxruntime")["build_info"], "package_name")

    @cached_property
    def onnxruntime_cuda(self) -> str | None:
        """The CUDA version that ONNX Runtime was built with; None for a build without CUDA."""
        text = self._replies.value("onnxruntime")["build_info"]
        return assigned(text, "cuda_version") if self.onnxruntime_package and "cuda_version" in text else None


# Most lines of the large packages, each of which takes long to parse: without "or", such a marker is never true without extras.
_OF_EXTRA = re.compile(r""";(?!.*\bor\b).*\bextra\s*==\s*(?:'[^']|"[^"])""")


@cache
def _needed(lines: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> tuple[Requirement, ...]:
    known = dict(environment)
    asked = (requirement(line) for line in lines if not _OF_EXTRA.search(line))
    return tuple(line for line in asked if line and (line.marker is None or line.marker.evaluate(known)))


def cuda_of_local_version(version: str) -> str | None:
    """The CUDA version in a wheel's version: "12.8" for 2.8.0+cu128, None for 2.8.0+cpu; otherwise Unavailable."""
    local = version.partition("+")[2]
    if tag := re.fullmatch(r"cu(\d+)(\d)", local):
        return f"{tag[1]}.{tag[2]}"
    if local == "cpu":
        return None
    raise Unavailable(f"torch {version} does not say which CUDA it was built with")
