"""Calls of CUDA's libraries that failed with a number: the line with the number's name, which messages know. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts.texts import Text
from gpudoctor.knowledge import errors, library_codes

MOST_LINES = 4000

_CALLED = {
    "cupti": r"cupti[A-Z]\w*|CUPTI",
    "nvperf": r"NVP[WA]_\w+",
    "cusolver": r"cusolver[A-Z]\w*|cuSOLVER|cusolver",
    "cusparse": r"cusparse[A-Z]\w*|cuSPARSE|cusparse",
    "cufft": r"cufft[A-Z]\w*|cuFFT|CUFFT",
    "curand": r"curand[A-Z]\w*|cuRAND|CURAND",
    "npp": r"npp[is]?[A-Z]\w*|NPP",
    "nvjpeg": r"nvjpeg[A-Z]\w*|nvJPEG",
    "nvenc": r"nvEnc[A-Z]\w*|NvEnc\w*|NVENC|OpenEncodeSessionEx",
    "nvrtc": r"nvrtc[A-Z]\w*|NVRTC",
    "optix": r"optix[A-Z]\w*|OptiX|Optix",
    "nvjitlink": r"nvJitLink[A-Z]\w*|nvJitLink",
    "nvml": r"nvml[A-Z]\w*|NVML",
    "cublas": r"cublas[A-Z]\w*|cuBLAS",
    "cudnn": r"cudnn[A-Z]\w*|cuDNN",
    "nccl": r"nccl[A-Z]\w*",
    "cuda": r"cu(?:Init|Ctx|Device|Mem|Module|Launch|Stream|Event|Func|Link|Get|Array|Tex|Graph|Ipc|Driver)\w*|cuda[A-Z]\w*",
}
_CALL = re.compile("|".join(f"(?P<{library}>\\b(?:{names})(?!\\w))" for library, names in _CALLED.items()))
_NUMBER = re.compile(
    r"""
    \b(?: fail(?:ed|ure|s)?\ with | return(?:ed|s)? | error | status | result | code | rc | ret )\b
    (?:\ ?(?:an?|the|error|status|result|return|code|value|cuda|nvml|of|was|is|[a-z]{4,8}Result)\b){0,4}
    [ \t:=#("'<]{1,4}
    (?P<number>-?\d{1,5})\b(?![.:]\d|\ ?(?:%|MiB|ms|errors?\b))
    | \bfailed[:\ ]{1,2}\(?(?P<bare>-?\d{1,5})\)?\s*$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SPOKEN = re.compile(
    r"""
    \b(?:CUDA|Cuda|cuda)\ (?:driver\ |runtime\ |API\ )?(?:[Ee]rror|ERROR|failure)(?:\ (?:code|number|no\.?))?[\ :=\#(]{1,3}
    (?P<number>[1-9]\d{0,2})\b(?![.:]\d)
    """,
    re.VERBOSE,
)
_FARTHEST = 90  # characters between a call and its number


def named(text: Text) -> Text:
    """Only the lines in which a library's call failed with a number, each with the number's name behind it.

    >>> line = "function cuptiProfilerBeginSession(&params) failed with error 35."
    >>> named(Text("log", (), 1, 0, ((1, line),))).lines[0][1]
    'function cuptiProfilerBeginSession(&params) failed with error 35. [CUPTI_ERROR_INSUFFICIENT_PRIVILEGES]'
    """
    return replace(text, lines=tuple(_named(text)))


def _named(text: Text) -> Iterator[tuple[int, str]]:
    for number, line in text.lines[:MOST_LINES]:
        name = _name(line)
        if name and name not in line:
            yield number, f"{line} [{name}]"


def _name(line: str) -> str:
    if (spoken := _SPOKEN.search(line)) and (name := _of_library("cuda", int(spoken["number"]))):
        return name
    for call in _CALL.finditer(line):
        found = _NUMBER.search(line, call.end(), call.end() + _FARTHEST)
        if found and (name := _of_library(call.lastgroup or "", int(found["number"] or found["bare"]))):
            return name
    return ""


def _of_library(library: str, code: int) -> str:
    if library in library_codes.LibraryTable.__struct_fields__:
        return library_codes.name_of(library, code)
    row = next((row for row in getattr(errors.table(), library) if row.code == code != 0), None)
    return " ".join(filter(None, (row.name, row.text))) if row else ""
