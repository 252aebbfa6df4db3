"""The forms of names, and of the text next to a name."""

from __future__ import annotations

HOST = r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)"
NAME = r"(\w[\w.-]*\w)"
_CAPITAL = "A-ZÀ-ÖØ-ÞĀ-ŽΑ-ΩЀ-Я"
_WORD = rf"[{_CAPITAL}][\w'.-]{{1,40}}"
FULL_NAME = rf"{_WORD}(?: {_WORD}){{1,3}}"
OBJECT = r"([a-z0-9][\w.-]*\w)"
QUOTE = r"\\{0,3}[\"']"  # also in JSON inside JSON
SET = rf"(?:{QUOTE})?\s*[:=]\s*(?:{QUOTE})?"
# After "user: " usually comes a sentence; after "user=" a name.
_ALONE = "|".join(
    (
        rf"(?:{QUOTE})?=(?:{QUOTE})?",
        rf"(?:{QUOTE})?:\s*{QUOTE}(?=[^\"'\n]*[\"'])",
        r"[\"']?\s*:\s*(?=[\w.-]+(?:$|[,;)\]}]|\s*$|\s{2,}| \())",
        rf"\s+=\s+(?:{QUOTE})?(?=[\w.-]+[\"']?\s*$)",
        r"(?:\*\*|\.{2,})?:\s+`?(?=[\w.-]+`?$)",
        r"\s+\|\s+(?=[\w.-]+(?:\s+\||$))",
        r"(?:\t|\s{2,})(?=[\w.-]+$)",
    )
)
ALONE = rf"(?:{_ALONE})"
_TIME = r"\d\d:\d\d:\d\d"
DAY = (
    r"(?:<\d+>)?(?:"
    rf"[A-Z][a-z]{{2}} [ \d]\d {_TIME}(?:\.\d+)?"
    rf"|[A-Z][a-z]{{2}} \d{{4}}-\d\d-\d\d {_TIME} [A-Z]{{3,4}}"
    rf"|\d{{4}}-\d\d-\d\d[T ]{_TIME}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r")"
)
ENGINE = r"\b(?:docker|podman|nerdctl)\b"

_OF_SEVERAL = r"[A-Za-z][\w.-]*(?:\[[\d,-]+\][\w.-]*)?(?::\d+)?"  # node[01-03,07]
SEVERAL_HOSTS = rf"({_OF_SEVERAL}(?:,{_OF_SEVERAL})*)"  # each is replaced
LISTING = r"^[-dlcbps][rwxsStT-]{9}[.+@]?\s+\d+"
_POD_STATES = (
    *("Running", "Pending", "Error", "Completed", "Terminating", "Unknown"),
    *(r"\w*BackOff", "ContainerCreating", r"Init:\S+", "Evicted", "OOMKilled"),
)
KUBE_ROW = rf"(?=\s+\d+/\d+\s+(?:{'|'.join(_POD_STATES)}))"
QUEUE_HEAD = r"(?m)^[ \t]+(?:job-)?\d+(?:_\d+)?\s+"
_JOB_STATES = r"(?:FAILED|COMPLETED|RUNNING|CANCELLED\S*|TIMEOUT|OUT_OF_ME\S*|NODE_FAIL)"
ACCOUNTED = rf"\s+\d+\s+{_JOB_STATES}\s+\d+:\d+"  # by sacct: processors, state, exit code
QUEUE_ROW = r"(?=\s+(?:R|PD|CG|CD|CF|F|ST?|TO|NF)\s+[\d:-]+\s+\d+\s)"

# What follows a prompt of csh or zsh: "75% of" and "34% done" are no prompts.
_TYPED = (
    *("setenv", "unsetenv", "source", "module", "nvidia-smi", r"nvcc\b", "python", r"pip3?\b", "conda", "mamba", "uv"),
    *("srun", "sbatch", "squeue", "sinfo", "uname", "echo", "docker", "podman", "mpirun", "mpiexec", "torchrun", "cmake"),
    *("sudo", "which", "env", "printenv", "lspci", "dmesg", "gpudoctor", "ssh", "export", r"\./\w"),
    r"(?:ls|cd|cat|exit|limit|rehash|make)\b",
)
TYPED = rf"(?:{'|'.join(_TYPED)})"
_NO_HOST = (
    *("unreachable", "reachable", "unknown", "down", "up", "offline", "online", "lost", "failed", "only", "found", "side"),
    *("mode", "memory", "machine", "name", "driver", "compiler", "os", "system", "code", "device", "kernel", "process"),
    *("interrupt", "bridge", "info", "information", "config", "cpu", "thread", "buffer", "stack", "keys?", "error"),
    *("pinned", "paging"),
)
NO_HOST = rf"(?!(?:{'|'.join(_NO_HOST)}|alloc\w*|regist\w*)$)"
