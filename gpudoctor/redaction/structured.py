"""Replies of known structure: variables, the kernel's command line, interfaces, the start of a container."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.facts import command
from gpudoctor.model import Reply, Snapshot
from gpudoctor.redaction import interfaces
from gpudoctor.redaction.common import SYSTEM_GROUPS
from gpudoctor.redaction.secret_forms import NAME_OF_SECRET
from gpudoctor.redaction.texts import Texts
from gpudoctor.redaction.tokens import is_token
from gpudoctor.worker.probes import environment

_INTERFACE = "/sys/class/net/"
_OF_INTERFACES = re.compile(r"\w*(?:IFNAME|NET_DEVICES)\w*")
_OF_GPUS = re.compile(r"\w*VISIBLE_DEVICES|\w*GPUS?(?:_\w+)?")
_OF_JOBS = re.compile(r"SLURM_JOB_?ID")
_MORE_ALLOWED = (
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "OPENBLAS_",
    "GLOO_",
    "FI_",
    "OMPI_",
    "VLLM_",
    "SLURM_",
    "HF_HUB_",
    "TMPDIR",
    "PIP_",
    "UV_",
    "WSL_",
    "container",
)
_NO_FILES = ("standard input", "the given text", command.NAME)
_VOLUME = re.compile(
    r"""
    (?<![\w.])
    (
        (?:
            root | resume | rd\.lvm\.lv | rd\.lvm\.vg | rd\.luks[\w.]* | rd\.md\.uuid | cryptdevice | luks[\w.]* | ostree
            | systemd\.machine_id | machine_id | ds | iscsi_\w+ | rd\.iscsi[\w.]* | hostname | systemd\.hostname
            | user | username
        )=
    )
    ( \S+ )
    """,
    re.VERBOSE,
)
_NO_VOLUME = re.compile(
    r"""
    /dev/(?:
        [sv]d[a-z]\d* | xvd[a-z]\d* | nvme\d+n\d+(?:p\d+)? | mmcblk\d+p\d+ | ram\d* | nfs | dxg
    )
    | nocloud\S* | live:CDLABEL | \d+
    """,
    re.VERBOSE,
)


def versions_of(snapshot: Snapshot) -> frozenset[str]:
    """Dotted numbers that are versions: of packages, and of the driver."""
    found: set[str] = set()
    for replies in (snapshot.replies, snapshot.host):
        for question in ("packages", "os-packages", "conda"):
            for record in _records(replies.get(question)):
                found.update(re.findall(r"\d+(?:\.\d+){3}", str(record.get("version", ""))))
                found.update(re.findall(r"\d+(?:\.\d+){3}", " ".join(map(str, record.get("requires") or ()))))
    return frozenset(found)


def words_of(snapshot: Snapshot) -> frozenset[str]:
    """Names of packages, which can include a word that is also a person's name."""
    found: set[str] = set()
    for replies in (snapshot.replies, snapshot.host):
        for question in ("packages", "os-packages", "conda"):
            for record in _records(replies.get(question)):
                found.update(re.split(r"[^a-z0-9]+", str(record.get("name", "")).lower()))
    return frozenset(found)


def _records(reply: Reply | None) -> Iterator[Mapping[str, Any]]:
    if reply and isinstance(reply.value, list):
        yield from (record for record in reply.value if isinstance(record, dict))


def structured(snapshot: Snapshot, texts: Texts) -> Snapshot:
    """Replaces values at known positions; the rest stays."""
    rules = _Rules(texts)
    return replace(snapshot, replies=rules.all(snapshot.replies), host=rules.all(snapshot.host))


class _Rules:
    """Question -> the function that redacts its reply."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._tokens = texts.tokens
        self._interfaces: dict[str, str] = {}
        self._rules: dict[str, Callable[[Any], Any]] = {
            "glob:/sys/class/net/*": self._net,
            "network-interfaces": self._adapters,
            "socket-interfaces": self._sockets,
            "own-address": self._own_address,
            "serials": self._serials,
            "environment": self._environment,
            "identity": self._identity,
            "file:/proc/cmdline": self._command_line,
            "container-start": self._start,
            "docker-context": self._context,
            "nccl-log": self._nccl,
            "report": self._report,
        }

    def all(self, replies: Mapping[str, Reply]) -> dict[str, Reply]:
        self._interfaces = self._interfaces_of(replies)
        return {self._question(question): self._one(question, reply) for question, reply in replies.items()}

    def _question(self, question: str) -> str:
        """The name of a text is its file's name."""
        kind, colon, name = question.partition(":")
        return kind + colon + self._file(name) if kind == "text" else question

    def _file(self, name: str) -> str:
        if name in _NO_FILES:
            return name
        return self._texts.paths.replaced(name) if name.startswith(("/", "~")) else self._texts.paths.replaced(f"/{name}")[1:]

    def _report(self, value: Any) -> Any:
        """A report without a snapshot names the files that it was given."""
        return {**value, "evidence": [{**text, "name": self._file(text["name"])} for text in value["evidence"]]}

    def _one(self, question: str, reply: Reply) -> Reply:
        rule = self._rules.get(question)
        if question.startswith("nvml:gpu"):
            rule = self._gpu
        elif question.startswith("text:"):
            rule = self._text
        elif question in ("kernel-log", "broken-python"):
            rule = self._log
        if rule is None or reply.value is None:
            return reply
        try:
            return replace(reply, value=rule(reply.value))
        except Exception:  # a form that gpudoctor does not write: redacted as text
            return reply

    def _interfaces_of(self, replies: Mapping[str, Reply]) -> dict[str, str]:
        """Interfaces with meaningful names, such as a bond named after a site -> their tokens."""
        reply = replies.get(f"glob:{_INTERFACE}*")
        paths = reply.value if reply and isinstance(reply.value, list) else []
        names = (str(path).rpartition("/")[2] for path in paths)
        return {name: interfaces.replaced(self._tokens, name) for name in names if not interfaces.is_usual(name)}

    def _net(self, paths: list[str]) -> list[str]:
        return [_INTERFACE + self._interfaces.get(name, name) for name in (path.rpartition("/")[2] for path in paths)]

    def _serials(self, serials: Any) -> Any:
        return {name: self._tokens("serial", serial) for name, serial in serials.items()}

    def _adapters(self, adapters: Any) -> Any:
        return {self._interfaces.get(name, name): about for name, about in adapters.items()}

    def _sockets(self, rows: Any) -> Any:
        return [{**row, "name": self._interfaces.get(row["name"], row["name"])} for row in rows]

    def _own_address(self, own: Any) -> Any:
        return {**own, "interface": self._interfaces.get(own["interface"], own["interface"])}

    def _environment(self, variables: Any) -> Any:
        if not isinstance(variables, dict):
            return variables
        return {name: self._variable(name, str(value)) for name, value in variables.items()}

    def _variable(self, name: str, value: str) -> str:
        if value in ("present", "") or is_token(value):
            return value
        if NAME_OF_SECRET.search(name.upper()):
            return self._tokens("secret", value)
        if not environment.matters(name) and not name.startswith(_MORE_ALLOWED):
            return self._tokens("environment", value)
        if _OF_INTERFACES.fullmatch(name):
            return self._named_interfaces(value)
        if _OF_GPUS.fullmatch(name):
            return self._texts.identifiers.chosen(value)
        if _OF_JOBS.fullmatch(name) or name in ("SLURM_JOB_NAME", "SLURM_JOB_USER"):
            return self._tokens("job", value)
        if name in ("SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION", "SLURM_JOB_QOS"):
            return self._tokens("account", value)
        if name in ("CONDA_DEFAULT_ENV", "DOCKER_CONTEXT", "CONDA_PROMPT_MODIFIER", "VIRTUAL_ENV_PROMPT") and "/" not in value:
            return re.sub(r"[\w.-]+", lambda found: self._texts.paths.part(found[0]), value)
        return value

    def _named_interfaces(self, value: str) -> str:
        """`^docker,lo`, `=eth0`: names or prefixes."""
        return re.sub(r"[^\s,^=:]+", lambda found: self._beginning(found[0]), value)

    def _beginning(self, name: str) -> str:
        if name in self._interfaces:
            return self._interfaces[name]
        of_known = next((token for known, token in self._interfaces.items() if known.startswith(name)), "")
        if of_known:
            return of_known.rstrip("0123456789")
        return name if name == "none" else interfaces.replaced(self._tokens, name)

    def _identity(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        changed = {key: self._of_person(key, held) for key, held in value.items()}
        for key in ("groups", "owners"):
            if isinstance(value.get(key), dict):
                changed[key] = {gid: self._group(gid, name) for gid, name in value[key].items()}
        return changed

    def _of_person(self, key: str, held: Any) -> Any:
        word = {"user": "user", "name": "user", "login": "user", "hostname": "host"}.get(key)
        return self._tokens(word, held) if word and isinstance(held, str) else held

    def _group(self, gid: str, name: Any) -> Any:
        if not isinstance(name, str) or not name or name in SYSTEM_GROUPS:
            return name
        return self._tokens("user" if name in self._tokens.known("user") or int(gid or 0) >= 1000 else "group", name)

    def _command_line(self, value: Any) -> Any:
        if not isinstance(value, str) or self._tokens.keeps("volume"):
            return value
        return _VOLUME.sub(lambda found: found[1] + self._volume(found[2]), value)

    def _volume(self, value: str) -> str:
        kind, equals, rest = value.rpartition("=")
        return value if _NO_VOLUME.fullmatch(value) else kind + equals + self._tokens("volume", rest)

    def _start(self, value: Any) -> Any:
        changed = dict(value)
        if changed.get("container"):
            changed["container"] = self._tokens("container", changed["container"])
        if changed.get("image"):
            changed["image"] = self._texts.places.image(changed["image"])
        changed["arguments"] = [self._texts.identifiers.chosen(word) for word in changed.get("arguments", ())]
        return {**changed, "gpus": self._texts.identifiers.chosen(str(changed.get("gpus", "")))}

    def _context(self, value: Any) -> Any:
        name = value.get("currentContext") if isinstance(value, dict) else None
        return {**value, "currentContext": self._texts.paths.part(name)} if name else value

    def _nccl(self, value: Any) -> Any:
        changed = dict(value)
        if isinstance(changed.get("settings"), dict):
            changed["settings"] = self._environment(changed["settings"])
        if isinstance(changed.get("interfaces"), list):
            changed["interfaces"] = [self._beginning(str(name)) for name in changed["interfaces"]]
        return changed

    def _gpu(self, value: Any) -> Any:
        """Keeps only the program's name of each process, without folder and arguments; replaces serial numbers, if there are
        any."""
        if not isinstance(value, dict):
            return value
        changed = {key: self._serial(key, held) for key, held in value.items()}
        for key in ("ComputeRunningProcesses", "GraphicsRunningProcesses", "MPSComputeRunningProcesses"):
            if isinstance(changed.get(key), list):
                changed[key] = [{**entry, "name": self._program(entry.get("name"))} for entry in changed[key]]
        return changed

    def _serial(self, key: str, held: Any) -> Any:
        is_serial = "serial" in key.lower() or "guid" in key.lower()
        return self._tokens("serial", held) if is_serial and isinstance(held, str) else held

    def _program(self, name: Any) -> Any:
        if not isinstance(name, str) or self._tokens.keeps("arguments"):
            return name
        program, _, arguments = name.partition(" ")
        if "/" not in program and not re.search(r"(?:^| )(?:-|/|\S+\.\w+|\S+=)", arguments):
            return name
        if arguments.strip():
            self._tokens("arguments", arguments.strip())
        return program.rpartition("/")[2]

    def _text(self, value: Any) -> Any:
        lines = value["lines"]
        kept = self._texts.credentials.without_blocks(text for _, text in lines)
        return {**value, "lines": [[number, text] for (number, _), text in zip(lines, kept, strict=True)]}

    def _log(self, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("lines"), list):
            return value
        return {**value, "lines": self._texts.credentials.without_blocks(value["lines"])}
