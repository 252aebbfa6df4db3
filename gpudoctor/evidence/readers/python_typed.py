"""Python without a prompt: code and what it printed below it, and answers that a person wrote down."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers.python_prompt import asked, replies, unaliased
from gpudoctor.model import Reply

_MARKS = re.compile(r"^[\s`*>•-]+|[`*,;\s]+$")
_RELEASE = r"'?\d+\.\d+[\w.+-]*'?"
# Expression -> the form of its value: other lines below the code are not its output.
_VALUES = {
    r"torch\.cuda\.is_available\(\)": r"True|False",
    r"torch\.cuda\.device_count\(\)": r"\d+",
    r"torch\.cuda\.get_arch_list\(\)": r"\[.*\]",
    r"torch\.cuda\.get_device_capability\(\d*\)": r"\(\d+, \d+\)",
    r"torch\.version\.cuda": r"'?\d+\.\d+'?|None",
    r"(?:torch|tensorflow|jax|jaxlib|onnxruntime|bitsandbytes|cupy|numpy)\.__version__": _RELEASE,
    r"tensorflow\.config\.(?:experimental\.)?list_physical_devices\([^)]*\)": r"\[.*\]",
    r"(?:tensorflow\.python\.client\.)?device_lib\.list_local_devices\(\)": r"\[.*",
    r"tensorflow\.test\.is_built_with_cuda\(\)": r"True|False",
    r"jax\.(?:devices|local_devices)\(\)": r"\[.*\]",
    r"jax\.default_backend\(\)": r"'?\w+'?",
    r"onnxruntime\.get_available_providers\(\)": r"\[.*\]",
    r"onnxruntime\.get_device\(\)": r"'?[CG]PU'?",
}
_FORMS = [(re.compile(expression), re.compile(value)) for expression, value in _VALUES.items()]
_EXPRESSION = "|".join(_VALUES)
_WRITTEN = re.compile(
    rf"""
    (?:^|[\s"'`(]) (?:print\()? (?P<asked>{_EXPRESSION}) \)? `*\s*
    (?: =(?!=) | : | -+> | => | → | \#
      | (?:it\ )?(?:(?:always\ |still\ |now\ |just\ )?(?:returns?|shows?|says?|gives?|prints?|is)) )
    \s*[`'"]*(?P<value>\S.*?)['"]*$
    """,
    re.VERBOSE,
)
_CODE = re.compile(
    r"""
    ^(?: import\b | from\b.*\bimport\b | print\( | \#
      | \w+(?:\.\w+)*\s*=(?!=) | \w[\w.]*\( | \w+(?:\.\w+)+$ )
    """,
    re.VERBOSE,
)
_RETURNS = re.compile(r"^(?:output|returns?|result|out)s?\b[\s:]*", re.IGNORECASE)


def _read(text: str) -> dict[str, Reply] | None:
    lines = [_MARKS.sub("", line) for line in unaliased(text).splitlines()]
    said = dict(_pairs([line for line in lines if line]))
    return replies(iter(said.items())) if said else None


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    """An answer on the line of its question, else the lines below the code, one for each question."""
    waiting: list[str] = []
    for line in lines:
        written = _WRITTEN.search(line)
        if written and (value := _value(written["asked"], written["value"])):
            yield written["asked"], value
        elif own := next((asked for asked, form in _TELLING if form.fullmatch(line)), ""):
            yield own, line
            waiting = []
        elif waiting and (value := _value(waiting[0], _RETURNS.sub("", line))):
            yield waiting.pop(0), value
        elif _CODE.match(line):
            waiting += [each for each in asked(line) if _form(each)]
        elif not _RETURNS.fullmatch(line):
            waiting = []


def _form(expression: str) -> re.Pattern[str] | None:
    return next((form for pattern, form in _FORMS if pattern.fullmatch(expression)), None)


def _value(expression: str, text: str) -> str:
    form = _form(expression)
    match = form.match(text.strip("`'\" ")) if form else None
    return match[0].strip("'\"") if match else ""


# Lists that only one call prints.
_TELLING = (
    ("tensorflow.config.list_physical_devices()", re.compile(r"\[PhysicalDevice\(.*\)\]")),
    ("jax.devices()", re.compile(r"\[(?:CpuDevice|CudaDevice|TFRT_CPU).*\]")),
    ("onnxruntime.get_available_providers()", re.compile(r"\['\w+ExecutionProvider'.*\]")),
)
_ANCHORS = (
    *("torch.cuda.is_available()", "torch.__version__", "torch.version.cuda", "torch.cuda.device_count()", "get_arch_list()"),
    *("tf.__version__", "tensorflow.__version__", "list_physical_devices(", "list_local_devices()"),
    *("[PhysicalDevice(", "[CpuDevice(", "ExecutionProvider'"),
    *("jax.devices()", "jax.__version__", "get_available_providers()"),
)
READER = Reader(
    "Python code and its output",
    _ANCHORS,
    re.compile(
        r"""
        ^ (?! \s*(?: >>> | In\ \[ | \.\.\. | if\  | while\  | assert\  | File\  ) )
        (?! .*\bpython[\d.]*\ -c\b )
        .*(?: \w\.\w | \[\w*Device\( | \['\w+Exec )
        """,
        re.VERBOSE,
    ),
    _read,
    re.compile(r"^\s*(?:>>>|In \[\d+\]:|\$ |PS [A-Z]:|[A-Z]:\\|\S+@\S+:|#{2,4} )|^```\w"),
    12,
    alone=True,
)
