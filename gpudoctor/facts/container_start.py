"""How a container was started, or the engine's message if it did not start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpudoctor.facts.guarded import Guarded

# Text around the actual message: which program passed it on, and at which step.
_WRAPPERS = re.compile(
    "|".join(
        (
            # the program that prints them
            r"(?m:^\S*docker(?:-current)?: |^Error: |^ERROR: (?:for \S+ +)?|^FATA\[\d+\] |^FATAL: )",
            r"Error response from daemon: ",
            r"Unable to find image '[^']*' locally\s+",
            r"(?i:oci runtime error: )",
            r"Cannot (?:start|create) (?:container for )?service \S+: (?:: )?",
            r"rpc error: code = \w+ desc = ",
            r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (?:ERROR: )?",
            # steps of the engine
            r"failed to (?:create|start) (?:containerd )?(?:shim )?task(?: for container)?: ",
            r"failed to create shim: ",
            r"OCI runtime create failed: ",
            r"Failed to initialize: unable to resolve docker endpoint: ",
            r"unable to retrieve OCI runtime error \([^)]{0,200}\): ",
            r"\S{0,120} did not terminate succ?ess?fully: (?:exit status \d+: )?",
            r"unable to start container \"[0-9a-f]+\": ",
            r"driver failed programming external connectivity on endpoint \S+ \(\w+\): ",
            r"Error starting userland proxy: ",
            # steps of the runtime
            r"\S{0,120}\b(?:runc|crun): (?=runc|crun|[A-Z])",
            r"(?:runc|crun) create failed: ",
            r"unable to start container process: (?!exec)",
            r"error during container init: (?!exec)",
            r"(?:container|process)_linux\.go:\d+: ",
            r"starting container process caused:?(?: \"?(?!\"?exec)|$)",
            r"container init caused:? \"?",
            # steps of the hooks
            r"(?:error running|Running|running) (?:prestart |createRuntime |createContainer |startContainer )?hook #?\d+"
            r"(?::+ | caused:? \"?|(?= exit status))",
            r"error running hook: ",
            r"\s*exit status \d+, stdout: ?, stderr: ?",
            r"exec command: \[[^\]]*\]\s*",
            r"Auto-detected mode as '(?:legacy|nvml|jit-cdi)'\s+",
        )
    )
)
_LAST_WORDS = "|".join(
    (
        r"Run 'docker run --help' for more information",
        r"See 'docker run --help'\.?",
        r"(?m:^Error: failed to start containers: .*)",
        r"(?m:^ERROR: Encountered errors while bringing up the project\.)",
        r": OCI runtime error",
        r": OCI (?:permission denied|runtime attempted to invoke a command that was not found)",
        r": unknown\.?",
    )
)
_ENDINGS = re.compile(rf"(?:\s*(?:{_LAST_WORDS})|\n[\s\"]*|\"{{2,}}\s*)$")
# Log lines of engines: the text is escaped, and remarks accompany the error.
_JSON = re.compile(r'\{[^{}]*"msg"\s*:\s*"((?:[^"\\]|\\.)*)"[^{}]*\}')
_LOGGED = re.compile(
    r"""
    time="[^"]*"\ level=(\w+)\ msg="((?:[^"\\]|\\.)*)"
    (?:\ (?!error=")\w+=\S+)*(?:\ error="((?:[^"\\]|\\.)*)")?(?:\ \w+=\S+)*
    """,
    re.VERBOSE,
)
_REMARK = re.compile(r"^(?:(?:WARN|INFO|DEBU|ERRO)\[\d+\] ?|\[\+\] Running|\s*[✔✘\u2800-\u28ff] )")
_WAITING = "error waiting for container"


@dataclass(frozen=True)
class Start(Guarded):
    """An attempt to start a container. mode: how a GPU was requested: cdi, runtime, gpus, podman, devices, none or unknown.

    arguments: the options that requested it. message: the whole output of the engine, "" if the container started. code: its exit
    code. from_text: read from a text, which may not show how the GPU was requested (mode: unknown).
    """

    engine: str
    version: str
    image: str
    mode: str
    arguments: tuple[str, ...]
    message: str
    code: int | None = None
    started: bool = False
    from_text: bool = False

    @property
    def asked_for_gpu(self) -> bool:
        return self.mode != "none"

    @property
    def is_podman(self) -> bool:
        return self.engine == "podman"

    @property
    def is_nerdctl(self) -> bool:
        """nerdctl offers Docker's interface without a daemon."""
        return bool(re.search(r"(?m)^FATA\[\d+\]", self.message))

    @property
    def name(self) -> str:
        return " ".join(filter(None, ("Podman" if self.is_podman else "Docker", self.version)))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The engine's version: (28, 5, 2); empty if unknown."""
        found = re.match(r"\d+(?:\.\d+)*", self.version)
        return tuple(map(int, found[0].split("."))) if found else ()

    @property
    def words(self) -> str:
        """The message in one line, without the prefixes of the programs that passed it on."""
        text = _ends_cut(_plain(self.message))
        lines = [line.strip() for line in _ends_cut(_WRAPPERS.sub("", text) or text).splitlines()]
        return " ".join(" ".join(dict.fromkeys(lines)).split())


def _plain(message: str) -> str:
    """Undoes the quoting: each step quotes the text of the step before."""
    text = _JSON.sub(_unescaped, message)
    if '\\"' in text and not _LOGGED.search(text):
        text = re.sub(r'\\+"', '"', re.sub(r"\\+n", "\n", text))
    text = _JSON.sub(_unescaped, _LOGGED.sub(_logged, text))
    lines = text.splitlines()
    said = [line for line in lines if not _REMARK.match(line)]
    if not "".join(said).strip():
        said = [_REMARK.sub("", line) for line in lines if _WAITING not in line or len(lines) == 1]
    return "\n".join(said)


def _unescaped(found: re.Match[str]) -> str:
    return found[1].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")


def _logged(found: re.Match[str]) -> str:
    """The text of an error; a remark is marked, so that it is dropped if there is other text."""
    said = f"{found[2]}: {found[3]}" if found[3] and found[3] not in found[2] else found[2]
    level, text = found[1], said.replace("\\n", "\n").replace('\\"', '"')
    remark = level in ("warning", "info", "debug") or _WAITING in text
    return f"WARN[0000] {text}" if remark else text


def _ends_cut(text: str) -> str:
    text = text.strip()
    while (shorter := _ENDINGS.sub("", text)) != text:
        text = shorter
    return text.removesuffix('"') if text.count('"') % 2 else text


def start_of(value: Mapping[str, Any]) -> Start:
    """Reads the reply `container-start`."""
    return Start(
        engine=value["engine"],
        version=value["version"],
        image=value["image"],
        mode=value["mode"],
        arguments=tuple(value["arguments"]),
        message=value["message"],
        code=value["code"],
        started=value["started"],
        from_text=value.get("from_text", False),
    )
