"""Runs gpudoctor, env-doctor and `rapids doctor`, and says what each made of an environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from peer_environment import Environment

SECONDS = 60.0
MOST_WORDS = 240
# Lines that env-doctor prints on every machine without the package or the variable; they are not held against it.
ALWAYS = re.compile(
    r"is NOT installed|LD_LIBRARY_PATH is unset|does not seem to point|System CUDA \(nvcc\) NOT found"
    r"|(Errors|Warnings|Info): +\d+"
)
ALARM = re.compile(r"❌|⚠️|CRITICAL|MISMATCH|failed$|^Warning:")
STARTS = {
    "env-doctor": "from env_doctor.cli import main; main()",
    "rapids doctor": "from rapids_cli.cli import rapids; rapids()",
}
START = "import sys; sys.path.append({peers!r}); sys.argv[0] = {name!r}; {start}"


@dataclass(frozen=True)
class Said:
    """verdict: right cause (or: not first), another cause, symptom only, nothing; for a healthy one healthy (or: a warning),
    false alarm; traceback, no answer, no such input."""

    verdict: str
    words: str = ""
    seconds: float = 0.0
    code: int | None = None

    @property
    def ran(self) -> bool:
        return self.seconds > 0


@dataclass(frozen=True)
class Done:
    code: int | None
    text: str
    seconds: float


def run(command: Sequence[str], known: Mapping[str, str], folder: Path) -> Done:
    start = time.perf_counter()
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, env=dict(known), cwd=folder, text=True, start_new_session=True, **options)  # type: ignore[call-overload]
    try:
        text, _ = process.communicate(timeout=SECONDS)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        text, _ = process.communicate()
        code = None
    return Done(code, text, round(time.perf_counter() - start, 2))


def compare(environment: Environment, python: str, peers: Path, folder: Path, known: Mapping[str, str]) -> dict[str, object]:
    tools = {
        "gpudoctor": gpudoctor(environment, python, folder, known),
        "env-doctor": env_doctor(environment, python, peers, folder, known),
        "rapids doctor": rapids_doctor(environment, python, peers, folder, known),
    }
    told = {name: replace(said, words=said.words.replace(str(folder), "...")[:MOST_WORDS]) for name, said in tools.items()}
    return {"name": environment.name, "wrong": environment.wrong, "tools": {name: asdict(said) for name, said in told.items()}}


def gpudoctor(environment: Environment, python: str, folder: Path, known: Mapping[str, str]) -> Said:
    if environment.kind == "question":
        return Said("no such input")
    if environment.kind == "text":
        arguments = ["explain", next(iter(environment.files))]
    elif environment.kind == "check":
        arguments = ["check", "--level", "quick", "--python", python]
    else:
        arguments = ["images", "lint", next(iter(environment.files))]
    done = run([sys.executable, "-m", "gpudoctor", *arguments, "--format", "json"], known, folder)
    try:
        told = json.loads(done.text)
    except ValueError:
        return Said("traceback" if done.code is not None else "no answer", last_line(done.text), done.seconds, done.code)
    found = told["diagnosis"] if isinstance(told, dict) else told
    return replace(judged(environment, found), seconds=done.seconds, code=done.code)


def judged(environment: Environment, found: list[dict[str, str]]) -> Said:
    ids = [each.get("problem") or each["rule"] for each in found]
    words = "; ".join(f"{name}: {each['message']}" for name, each in zip(ids, found[:3], strict=False))
    if not environment.wrong:
        failed = any(each["status"] == "fail" for each in found)
        return Said("false alarm" if failed else "healthy, a warning" if ids else "healthy", words)
    if not ids:
        return Said("nothing")
    if ids[0] in environment.causes:
        return Said("right cause", words)
    return Said("right cause, not first" if set(ids) & set(environment.causes) else "another cause", words)


def env_doctor(environment: Environment, python: str, peers: Path, folder: Path, known: Mapping[str, str]) -> Said:
    """The text is what a person reads; the exit code is that of --ci, since the text's is always 0."""
    if environment.kind == "text":
        return Said("no such input")
    if environment.kind != "check":
        command = [*environment.also] or [environment.kind, next(iter(environment.files))]
        done = peer("env-doctor", command, python, peers, folder, known)
        said = read(environment, done, bool(done.code))
        return replace(said, verdict=said.verdict.replace("cause", "answer")) if environment.kind == "question" else said
    done = peer("env-doctor", ["check"], python, peers, folder, known)
    if done.code is None:
        return read(environment, done, False)
    also = peer("env-doctor", list(environment.also), python, peers, folder, known).text if environment.also else ""
    code = done.code or peer("env-doctor", ["check", "--ci"], python, peers, folder, known).code
    return read(environment, replace(done, text=done.text + also, code=code), bool(code))


def rapids_doctor(environment: Environment, python: str, peers: Path, folder: Path, known: Mapping[str, str]) -> Said:
    if environment.kind != "check":
        return Said("no such input")
    done = peer("rapids doctor", ["doctor"], python, peers, folder, known)
    return read(environment, done, bool(done.code))


def peer(name: str, arguments: list[str], python: str, peers: Path, folder: Path, known: Mapping[str, str]) -> Done:
    code = START.format(peers=str(peers), name=name, start=STARTS[name])
    return run([python, "-c", code, *arguments], known, folder)


def read(environment: Environment, done: Done, alarmed: bool) -> Said:
    lines = [re.sub(r"\s+", " ", line).strip() for line in done.text.splitlines()]
    alarms = [line for line in lines if ALARM.search(line) and not ALWAYS.search(line)]
    if done.code is None:
        return Said("no answer", f"stopped after {SECONDS:.0f} s", done.seconds)
    if "Traceback (most recent call last)" in done.text:
        return Said("traceback", last_line(done.text), done.seconds, done.code)
    cause = next((line for line in [*lines, " ".join(lines)] if re.search(environment.words, line, re.IGNORECASE)), "")
    told = "; ".join(alarms[:3])
    if not environment.wrong:
        verdict = "false alarm" if alarmed else "healthy, a warning" if alarms else "healthy"
    else:
        verdict = "right cause" if cause else "symptom only" if alarmed or alarms else "nothing"
    return Said(verdict, shortened(environment.words, cause) or told, done.seconds, done.code)


def discount(row: dict[str, Any], first: dict[str, Any]) -> None:
    """What a tool says in the same words of the machine as it is, it does not say of the fault."""
    for name, said in row["tools"].items():
        before = first["tools"][name]
        if said["verdict"] == "symptom only" and (said["words"], said["code"]) == (before["words"], before["code"]):
            said["verdict"] = "nothing"


def shortened(words: str, text: str) -> str:
    """A long text around the words that count."""
    found = re.search(words, text, re.IGNORECASE)
    return text[max(0, found.start() - 80) : found.end() + 80] if found else ""


def last_line(text: str) -> str:
    """The error that ends a traceback, or a tool."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines or [""])[-1]


def show(row: dict[str, Any]) -> None:
    print(f"\n{row['name']}: {row['wrong'] or 'nothing is wrong'}")
    for name, said in row["tools"].items():
        print(
            f"  {name:14} {said['verdict']:22} {said['seconds']:6.1f} s  exit {said['code']}  {said['words'][:300]}", flush=True
        )
