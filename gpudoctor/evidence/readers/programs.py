"""Output of programs that is recognised but proves nothing: logs of training, installers and servers."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_NUMBER = r"[=: |]+[\d.]+(?:e[+-]?\d+)?"
# The kind, literals one of which is in its line, and the pattern of that line.
_KINDS = (
    ("Python traceback", ("Traceback (most recent call last)",), r"Traceback \(most recent call last\)"),
    ("Python warnings", ("Warning: ",), r":\d+: \w*Warning: "),
    (
        "training log",
        ("loss", "Epoch ", "epoch ", "it/s", "s/it"),
        rf"(?i)\b(?:train_|val_|eval_|test_)?loss['\"]?{_NUMBER}"
        r"|\b(?:epoch|step|iter(?:ation)?)\b[\s:=\[]*\d+\s*/\s*\d+"
        r"|\d+%\|[^|]*\| *\d+/\d+ \[",
    ),
    (
        "TensorFlow or XLA log",
        (" tensorflow/", "external/xla/", "xla/stream_executor", "jax._src."),
        r"jax\._src\.\w+:\d+: |[IWEF] (?:tensorflow|external/(?:local_xla|xla))/\S+:\d+\]",
    ),
    (
        "banner of an NGC image",
        ("Container image Copyright (c)", "NVIDIA Release "),
        r"Container image Copyright|NVIDIA Release [\d.]+",
    ),
    (
        "log of vLLM or a server",
        ("INFO ", "Uvicorn running on"),
        r"\bINFO (?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d|Uvicorn running on",
    ),
    (
        "Kubernetes",
        ("Type     Reason", "READY   STATUS", ".go:", "kubectl "),
        r"^ *Type +Reason +Age"
        r"|^(?:NAMESPACE +)?NAME +READY +STATUS"
        r"|^[IWEF]\d{4} [\d:.]+ +\d+ \S+\.go:\d+\]"
        r"|^\S*[$#] kubectl (?:get|describe|logs)",
    ),
    (
        "pip output",
        ("Requirement already satisfied: ", "Successfully installed ", "Collecting ", "Looking in indexes: "),
        r"^ *(?:Requirement already satisfied: |Successfully installed |Collecting \S|Looking in indexes: )",
    ),
    (
        "output of apt, dnf or dpkg",
        ("Reading package lists...", "Setting up ", "Unpacking ", " status installed ", "Complete!"),
        r"^(?:Reading package lists\.\.\.|Setting up \S+ \(|Unpacking \S+ \(|Complete!$"
        r"|[\d-]+ [\d:]+ status installed )",
    ),
    (
        "build output",
        ("-- The C", "-- Detecting ", "-- Configuring done", "-- Found ", "ninja: ", "[1/", "make["),
        r"^-- (?:The C\w* compiler identification|Detecting C|Configuring done|Found \w+:)"
        r"|^ninja: |^\[1/\d+\] |^make\[\d\]: ",
    ),
    ("docker info", ("Storage Driver: ", "Default Runtime: "), r"^\s*(?:Storage Driver|Default Runtime): \w"),
    ("ds_report of DeepSpeed", ("DeepSpeed C++/CUDA extension op report",), r"^DeepSpeed C\+\+/CUDA extension op report"),
    (
        "Slurm",
        ("slurmstepd: ", "srun: ", "sbatch: ", "slurmctld", "slurmd: "),
        r"\b(?:slurmstepd|srun|sbatch|slurmctld(?:\[\d+\])?|slurmd(?:\[\d+\])?): ",
    ),
    (
        "pytest output",
        ("test session starts", " passed in ", " passed, ", " failed, ", " failed in "),
        r"^=+ test session starts =+|^(?:=+ )?(?:\d+ [a-z]+,? )+in [\d.]+s\b",
    ),
    (
        "log of Ollama or llama.cpp",
        (".go:", "ggml_cuda_init: ", "load_tensors: ", "llama_model_loader: ", "llm_load_tensors: "),
        r"\blevel=[A-Z]+ source=\S+\.go:\d+ msg="
        r"|^(?:ggml_cuda_init|load_tensors|llm_load_tensors|llama_model_loader): ",
    ),
    ("system log", (" systemd[",), r"\bsystemd\[\d+\]: "),
)


def read(text: str) -> dict[str, Reply]:
    """No replies: there is nothing for a check to judge."""
    return {}


READERS = tuple(Reader(kind, anchors, re.compile(line), read, re.compile(""), 1, once=True) for kind, anchors, line in _KINDS)
