"""Python at work: a session with >>> or In [1], and `python -c "print(...)"`, about frameworks and the GPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvml_answers, python_packages
from gpudoctor.evidence.readers.python_packages import Installed
from gpudoctor.model import Reply
from gpudoctor.worker.probes import environment

Pairs = Iterator[tuple[str, str]]
"""(expression, the text of its value)"""

_PROMPT = re.compile(r"^\s*(?:>>>|In \[\d+\]:)\s?(.*)$")
_MORE = re.compile(r"^\s*\.\.\.:?\s?(.*)$")
_RESULT = re.compile(r"^\s*(?:Out\[\d+\]:\s*)?(.*\S)\s*$")
_IMPORT = re.compile(r"\bimport ([\w.]+) as (\w+)")
_ALIASES = {"tf": "tensorflow", "ort": "onnxruntime", "np": "numpy", "bnb": "bitsandbytes", "cp": "cupy"}
_VERSION = re.compile(r"(\w+)\.(?:__version__|version\.VERSION)")
_RELEASE = re.compile(r"\d+\.\d+[\w.+-]*")
_LOGGED = re.compile(
    r"""
    \d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d          # TensorFlow
    | [IWEF]\d{4}\ \d\d:\d\d:\d\d                 # absl
    | (?:WARNING|INFO|ERROR|DEBUG)[: ]
    | To\ enable\ the\ following\ instructions
    | \S+:\d+:\ \w*Warning:
    | \s*(?:warnings\.)?warn\(
    """,
    re.VERBOSE,
)
"""What a logger writes between a question and its answer."""
_ROW = re.compile(r"""'[^']*'|"[^"]*"|\([^)]*\)|\[[^\]]*\]|[^\s,]+""")


def _session(text: str) -> dict[str, Reply] | None:
    return replies(_pairs(unaliased(text).splitlines()))


def unaliased(text: str) -> str:
    """With the names of modules instead of those that `import … as` gives them."""
    for module, name in {**{module: name for name, module in _ALIASES.items()}, **dict(_IMPORT.findall(text))}.items():
        text = re.sub(rf"(?<![\w.'\"]){name}\.(?=\w)", f"{module}.", text)
    return text


def _pairs(lines: list[str]) -> Pairs:
    """A cell prints one line for each print in it."""
    waiting: list[list[str]] = []
    for line in lines:
        prompt, more = _PROMPT.match(line), _MORE.match(line)
        if prompt or more:
            found = asked((prompt or more)[1])  # type: ignore[index]
            waiting = [*(waiting if more else []), *([found] if found else [])]
        elif waiting and not _LOGGED.match(line) and (result := _RESULT.match(line)):
            yield from zip(waiting[0], _values(result[1], waiting[0]), strict=False)
            waiting = waiting[1:]


def _of_command(command: str, output: str) -> dict[str, Reply] | None:
    """One line of output for each print."""
    match = re.search(r"-c\s*([\"'])(.*)\1", unaliased(command))
    statements = [wanted for statement in (match[2] if match else "").split(";") if (wanted := asked(statement))]
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _LOGGED.match(line)]
    pairs = (
        pair for wanted, line in zip(statements, lines, strict=False) for pair in zip(wanted, _values(line, wanted), strict=False)
    )
    return replies(pairs)


def asked(statement: str) -> list[str]:
    """The expressions whose values a line prints."""
    try:
        nodes = ast.parse(statement.strip()).body
    except (SyntaxError, ValueError):
        return []
    values = [node.value for node in nodes if isinstance(node, ast.Expr)]
    return [each for value in values[-1:] for each in _printed(value)]


def _printed(value: ast.expr) -> list[str]:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print":
        return [each for argument in value.args for each in _parts(argument)]
    return [ast.unparse(each) for each in value.elts] if isinstance(value, ast.Tuple) else [ast.unparse(value)]


def _parts(value: ast.expr) -> list[str]:
    """The words and the expressions of an f-string, or the one expression."""
    if not isinstance(value, ast.JoinedStr):
        return [ast.unparse(value)]
    return [ast.unparse(each.value if isinstance(each, ast.FormattedValue) else each) for each in value.values]


def _labelled(line: str, expressions: list[str]) -> list[str]:
    """Values between the words that are printed with them; empty if no words are."""
    words = [each[1:-1].strip() if each[0] in "\"'" else None for each in expressions]
    if not any(words):
        return []
    form = r"\s*".join("(.+?)" if word is None else f"({re.escape(word)})" for word in words)
    match = re.fullmatch(form, line.strip())
    return [value.strip("'\"") for value in match.groups()] if match else []


def _values(line: str, expressions: list[str]) -> list[str]:
    """The name of a GPU is the only one that print() leaves with spaces in it."""
    if shown := _labelled(line, expressions):
        return shown
    if len(expressions) == 1:
        return [line.strip("'\"")]
    if len(shown := _tuple(line)) == len(expressions):
        return shown
    words = [word.strip("'\"") for word in _ROW.findall(line.strip("()") if line.startswith("(") else line)]
    named = [place for place, asked in enumerate(expressions) if asked.startswith("torch.cuda.get_device_name")]
    more = len(words) - len(expressions)
    if more > 0 and len(named) == 1:
        words[named[0] : named[0] + more + 1] = [" ".join(words[named[0] : named[0] + more + 1])]
    return words if len(words) == len(expressions) else []


def _tuple(line: str) -> list[str]:
    """The parts of a tuple, as a session shows it."""
    if not line.startswith("("):
        return []
    try:
        value = ast.literal_eval(line)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    return [str(each) for each in value] if isinstance(value, tuple) else []


def replies(pairs: Pairs) -> dict[str, Reply] | None:
    said = dict(pairs)
    installed = [Installed(name, version) for name, version in _versions(said)]
    found = python_packages.shown(installed) if installed else {}
    cuda = said.get("torch.version.cuda")
    if cuda is not None and (cuda == "None" or re.match(r"\d+\.\d+", cuda)):
        found["torch"] = _torch(said.get("torch.__version__"), None if cuda == "None" else cuda)
    name = next((value for asked, value in said.items() if asked.startswith("torch.cuda.get_device_name")), "")
    if name and not name.startswith(("Traceback", "<")):
        found |= nvml_answers.replies({}, [nvml_answers.tidy([("Name", name)])])
    if answers := {asked: value for asked, value in said.items() if _ANSWER.match(asked)}:
        found["python-answers"] = Reply("ok", answers)
    read = {match[1]: value for asked, value in said.items() if (match := _ENVIRON.fullmatch(asked)) and value != "None"}
    if variables := environment.variables(read):
        found["environment"] = Reply("ok", variables)
    if path := said.get("sys.executable"):
        found["shown-executables"] = Reply("ok", {path: True})
    return found or None


_ENVIRON = re.compile(r"""os\.(?:environ(?:\.get)?[(\[]|getenv\()['"](\w+)['"][^)\]]*[)\]]""")
_ANSWER = re.compile(
    r"""
    torch\.cuda\.(?:is_available|device_count|get_arch_list|get_device_capability)\(
    | torch\.version\.hip
    | tensorflow\.config\.(?:experimental\.)?list_physical_devices
    | (?:tensorflow\.python\.client\.)?device_lib\.list_local_devices
    | tensorflow\.test\.is_built_with_cuda
    | sys\.(?:executable|version)\b
    | torch\.__version__
    | jax\.(?:devices|default_backend|local_devices)\(
    | onnxruntime\.get_(?:available_providers|device)\(
    | cuda\.(?:is_available|detect)\(\)          # of Numba
    | cupy\.cuda\.(?:is_available\(\)|runtime\.getDeviceCount\(\))
    """,
    re.VERBOSE,
)


def _versions(said: dict[str, str]) -> Pairs:
    for asked, value in said.items():
        match = _VERSION.fullmatch(asked)
        if match and _RELEASE.fullmatch(value):
            yield match[1], value


def _torch(version: str | None, cuda: str | None) -> Reply:
    return python_packages.torch(version or "", cuda)


READERS = (
    Reader(
        "Python session",
        (">>> ", "In ["),
        _PROMPT,
        _session,
        prompts.OF_SHELL,
        400,
    ),
    prompts.reader(
        "python -c",
        (" -c ",),
        r"python[\d.]*\ -c\s*[\"'].*[\"'][^\"']*",
        _of_command,
        inside=True,
        most_lines=40,
    ),
)
