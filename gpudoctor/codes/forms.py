"""Parses codes: text -> the code and its kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "xid",
    "sxid",
    "cuda",
    "nvml",
    "nvidia-smi",
    "rm",
    "status",
    "nccl",
    "cudnn",
    "cublas",
    "exit",
    "cupti",
    "nvperf",
    "cusolver",
    "cusparse",
    "cufft",
    "curand",
    "npp",
    "nvjpeg",
    "nvenc",
    "nvrtc",
    "nvjitlink",
    "optix",
]

_NUMBER = r"(?P<number>\d{1,6})"
_IS = r"(?:\s*(?:error|err|code|result|status|return(?:ed|s)?|exit(?:ed|s)?|with|rc|number)\b)*\s*[-_:#=(]?\s*"
_NAMES = {
    "cupti": "cupti_(?:success|error)",
    "nvperf": "nvpa_status_",
    "cusolver": "cusolver_status_",
    "cusparse": "cusparse_status_",
    "cufft": "cufft_",
    "curand": "curand_status_",
    "npp": "npp_",
    "nvjpeg": "nvjpeg_status_",
    "nvenc": "nv_enc_(?:success|err)",
    "nvrtc": "nvrtc_(?:success|error)",
    "nvjitlink": "nvjitlink_(?:success|error)",
    "optix": "optix_error_",
}
_SIGNED = _IS.replace("[-_", "[_")  # NPP's errors are negative
_HEX = r"0x[0-9a-f]{1,8}"
_FORMS: tuple[tuple[Kind, str], ...] = (
    ("xid", rf"(?:nvrm:?\s*)?xid{_IS}{_NUMBER}"),
    ("sxid", rf"sxid{_IS}{_NUMBER}"),
    (
        "rm",
        rf"(?:nvrm:?\s*)?(?:gpu \S+:? )?(?:rminitadapter(?: failed!?)?|rminitnvdevice)?:?\s*\(?"
        rf"(?P<step>{_HEX}):(?P<status>{_HEX})(?::(?P<line>\d+))?\)?",
    ),
    ("status", rf"nv_status\s*(?P<hex>{_HEX})"),
    ("status", r"(?P<name>nv_(?:err|warn)_\w+|nv_ok)"),
    ("cuda", rf"(?:cuda(?:error)?|curesult|cuda(?:error)?_t|cuda (?:runtime|driver)(?: api)?){_IS}{_NUMBER}\)?"),
    ("cuda", r"(?P<name>cuda_(?:error|success)\w*|cuda(?:error|success)[a-z]\w*|cudasuccess)"),
    ("nvml", rf"nvml{_IS}{_NUMBER}\)?"),
    ("nvml", r"(?P<name>nvml_(?:error|success)\w*)"),
    ("nvidia-smi", rf"nvidia-smi{_IS}{_NUMBER}"),
    ("nccl", rf"nccl{_IS}{_NUMBER}"),
    (
        "nccl",
        r"(?P<name>nccl(?:success|unhandledcudaerror|systemerror|internalerror|invalidargument|invalidusage|remoteerror|"
        r"inprogress|timeout))",
    ),
    ("cudnn", rf"cudnn{_IS}{_NUMBER}"),
    ("cudnn", r"(?P<name>cudnn_status_\w+)"),
    ("cublas", rf"cublas{_IS}{_NUMBER}"),
    ("cublas", r"(?P<name>cublas_status_\w+)"),
    *((library, rf"{library}{_SIGNED}(?P<number>-?\d{{1,6}})") for library in get_args(Kind) if library in _NAMES),
    *((library, rf"(?P<name>{_NAMES[library]}\w+)") for library in get_args(Kind) if library in _NAMES),
    ("exit", rf"(?:(?:docker|podman|container)(?: run)?\s*)?exit(?:ed|s)?(?: (?:with|code|status))*\s*[:#=(]?\s*{_NUMBER}\)?"),
)
# Codes that are recognisable in a sentence. "CUDA 12" is not a code.
_IN_A_SENTENCE = re.compile(
    r"""
    \bS?Xid[ :#=_-]*\d{1,6}\b
    | \b(?:CUDA|NVML)\ error[ :#=(]*\d{1,6}\b
    | \b(?:CUDA_ERROR|NVML_ERROR|CUDNN_STATUS|CUBLAS_STATUS|NV_ERR|CUPTI_ERROR|NVPA_STATUS|CUSOLVER_STATUS|CUSPARSE_STATUS
      |CURAND_STATUS|NVJPEG_STATUS|NV_ENC_ERR|NVRTC_ERROR|NVJITLINK_ERROR
      |OPTIX_ERROR)_\w+
    | \bcudaError[A-Z]\w+
    | \bnccl[A-Z]\w+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NUMBER_ALONE = re.compile(rf"(?:(?:error|err|code|status|number)\s*)*[:#=(]?\s*{_NUMBER}\)?", re.IGNORECASE)
_PATTERNS = tuple((kind, re.compile(form, re.IGNORECASE)) for kind, form in _FORMS)


@dataclass(frozen=True)
class Code:
    """One code, by number or by name. For RmInitAdapter: number is the step, with the status and the line of the source."""

    kind: Kind
    number: int | None = None
    name: str = ""
    status: int | None = None
    line: int | None = None


def parse(text: str) -> Code | None:
    """The code if the whole text is one, known or not; otherwise None."""
    wanted = " ".join(text.strip().strip("'\"").split()).rstrip(".,;:")
    for kind, pattern in _PATTERNS:
        match = pattern.fullmatch(wanted)
        if match:
            return _code(kind, match.groupdict())
    return None


def in_sentence(text: str) -> list[Code]:
    """The codes that a longer text contains, known or not, each once."""
    return list(dict.fromkeys(filter(None, (parse(found[0]) for found in _IN_A_SENTENCE.finditer(text)))))


def number_alone(text: str) -> int | None:
    """The number of "error 802", which does not say what kind it is; None for other text."""
    match = _NUMBER_ALONE.fullmatch(text.strip())
    return int(match["number"]) if match else None


def _code(kind: Kind, parts: dict[str, str | None]) -> Code:
    if step := parts.get("step"):
        line = parts["line"]
        return Code(kind, int(step, 16), "", int(parts["status"] or "0", 16), int(line) if line else None)
    if number := parts.get("hex"):
        return Code(kind, int(number, 16))
    if number := parts.get("number"):
        return Code(kind, int(number))
    return Code(kind, name=parts["name"] or "")
