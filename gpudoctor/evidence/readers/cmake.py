"""CMake's output: the compilers that it found, and the CUDA toolkit whose libraries it links."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_COMPILER = re.compile(r"^-- The CUDA compiler identification is NVIDIA (\d+\.\d+)\.(\d+)", re.MULTILINE)
_HOST = re.compile(r"^-- The CXX compiler identification is GNU (\d+\.\d+\.\d+)", re.MULTILINE)
_PATH = re.compile(r"^-- Check for working CUDA compiler: (\S+nvcc)\b", re.MULTILINE)
_TOOLKIT = re.compile(
    r"""
    ^--\ Found\ CUDA(?:Toolkit)?:\ ([^;\n]+?)(?:;\S*)?
    \ \(found\ (?:suitable\ )?version\ "(\d+\.\d+)
    """,
    re.MULTILINE | re.VERBOSE,
)


def read(text: str) -> dict[str, Reply] | None:
    compiler, host, path, toolkit = (pattern.search(text) for pattern in (_COMPILER, _HOST, _PATH, _TOOLKIT))
    programs = {"nvcc": [path[1] if path else "nvcc"]} if compiler else {}
    versions = {"nvcc": f"Cuda compilation tools, release {compiler[1]}, V{compiler[1]}.{compiler[2]}"} if compiler else {}
    if host and compiler:
        programs |= {"gcc": ["gcc"], "g++": ["g++"]}
        versions |= dict.fromkeys(("gcc", "g++"), f"gcc (GCC) {host[1]}")
    found = {"toolchain": Reply("ok", {"programs": programs, "versions": versions})} if compiler else {}
    if compiler and toolkit:
        shown = {"nvcc": compiler[1], "path": programs["nvcc"][0], "toolkit": toolkit[2], "folder": toolkit[1]}
        found["shown-cmake"] = Reply("ok", shown)
    return found or None


READER = Reader(
    "CMake's compilers",
    ("-- The C compiler", "-- The CXX compiler", "-- The CUDA compiler"),
    re.compile(r"^-- The \w+ compiler identification is "),
    read,
    re.compile(r"^-- (?:Configuring|Build files)|^\S*[$#>] |^```"),
    400,
)
