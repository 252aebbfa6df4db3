"""Why a program failed, from its words and from what the machine shows: faults of each kind, and words that must not mislead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import machine
import pytest
from each import each

from gpudoctor import catalog, doctor
from gpudoctor.facts import Facts
from gpudoctor.judging.measured import failing
from gpudoctor.judging.texts import settings
from gpudoctor.model import Reply, Report, Status

BASE = machine.load("h100-measured")
PROBLEMS = {id: problem for id, (_, problem) in catalog.problems().items()}
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              {cpu}            unlimited            seconds
Max file size             unlimited            unlimited            bytes
Max stack size            {stack}              unlimited            bytes
Max processes             1027978              1027978              processes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
Max address space         {space}            unlimited            bytes
"""
REFUSED = [
    ("NVCC_APPEND_FLAGS", "--frobnicate", "nvcc fatal   : Unknown option '--frobnicate'"),
    ("TORCH_CUDA_ARCH_LIST", "Hopper2", "ValueError: Unknown CUDA arch (Hopper2) or GPU not supported"),
    ("TORCH_CUDA_ARCH_LIST", "9.9", "ValueError: Unknown CUDA arch (9.9) or GPU not supported"),
    ("CXX", "/opt/old/g++-4.8", "FileNotFoundError: [Errno 2] No such file or directory: '/opt/old/g++-4.8'"),
    ("CXX", "/opt/licensed/cc", "CalledProcessError: Command '['/opt/licensed/cc', '-v']' returned non-zero exit status 9."),
    ("TORCH_LOGS", "+frobnicate", "Invalid log settings: +frobnicate, must be a comma separated list"),
    ("NVCC_CCBIN", "/opt/gcc-9/bin/g++", "sh: 1: /opt/gcc-9/bin/g++: not found"),
    ("CPLUS_INCLUDE_PATH", "/opt/old/include", "/opt/old/include/cstdlib:1:2: error: #error wrong place"),
    (
        "LD_LIBRARY_PATH",
        "/opt/a:/opt/b",
        "ImportError: /opt/b/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by x.so)",
    ),
    ("XLA_FLAGS", "--xla_bogus=true", "F0000 Unknown flag in XLA_FLAGS: --xla_bogus=true"),
    (
        "NUMBA_NUM_THREADS",
        "lots",
        "Environment variable 'NUMBA_NUM_THREADS' is defined but its value 'lots' could not be parsed.",
    ),
    ("PYTORCH_CUDA_ALLOC_CONF", "max_split:3", "RuntimeError: Unrecognized key 'max_split' in CUDA allocator config"),
    ("TRITON_CACHE_DIR", "/data/cache", "OSError: [Errno 30] Read-only file system: '/data/cache/gpudoctor-12'"),
]
HARMLESS = [
    (
        "PYTORCH_CUDA_ALLOC_CONF",
        "backend:native",
        "CUDA out of memory. Try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    ("CUDA_LAUNCH_BLOCKING", "1", "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"),
    ("CUDA_HOME", "/usr/local/cuda", "/usr/local/cuda/include/a.h:3:10: fatal error: cub/x.cuh: No such file or directory"),
    ("CUDA_VISIBLE_DEVICES", "0", "RuntimeError: expected 0 got 1\nKeyError: '0'"),
    ("CC", "gcc", "RuntimeError: Failed to find C compiler. Please specify via CC environment variable."),
    (
        "TRITON_CACHE_DIR",
        "/data/cache",
        '  File "a.py", line 3, in f\n    x = os.environ["TRITON_CACHE_DIR"]\nValueError: unknown',
    ),
    ("LD_LIBRARY_PATH", "/opt/a", "g++ -L/opt/a x.o\nx.c: error: y.h: No such file or directory"),
    ("CUDA_HOME", "/usr/local/cuda", "OSError: CUDA_HOME environment variable is not set."),
    ("PATH", "/opt/bin", "/opt/bin: No such file or directory"),
    ("NVCC_APPEND_FLAGS", "--frobnicate", "nvcc fatal   : Unknown option '--frobnicate-more'"),
]


@each(("name", "value", "words"), REFUSED)
def test_a_variable_that_the_words_name_is_found(name: str, value: str, words: str) -> None:
    decoys = {"NCCL_DEBUG": "WARN", "CUDA_HOME": "/usr/local/cuda", "TORCH_HOME": "/home/user/torch"}
    assert [found.variable for found in settings.named({**decoys, name: value}, f"Traceback:\n{words}\nmore")] == [name]


@each(("name", "value", "words"), HARMLESS)
def test_a_variable_in_advice_or_in_a_path_is_not_blamed(name: str, value: str, words: str) -> None:
    assert list(settings.named({name: value}, words)) == []


def judged(measured: dict[str, Reply], **replies: Any) -> Report:
    """h100-measured with other results, at the level of all checks."""
    changed = {name.replace("__", ":"): Reply("ok", value) for name, value in replies.items()}
    return doctor.judge_at_its_level(
        replace(BASE, measured={**BASE.measured, **measured}, replies={**BASE.replies, **changed}), "full"
    )


def failed(detail: str, status: str = "error", prints: str = "", **texts: str) -> Reply:
    return Reply(status, {"prints": prints or detail, **texts}, detail)


def limits(cpu: str = "unlimited", stack: str = "8388608", space: str = "unlimited") -> dict[str, str]:
    return {"file__/proc/self/limits": LIMITS.format(cpu=cpu, stack=stack, space=space)}


OOM = "[ 12.3] Memory cgroup out of memory: Killed process 31 (python) total-vm:359380kB, anon-rss:127736kB"
FULL = {"bytes": 1 << 22, "free_bytes": 0, "writable": True, "noexec": False}
NOEXEC = {"bytes": 1 << 40, "free_bytes": 1 << 39, "writable": True, "noexec": True}
FEW = {"memlock": [None, None], "open_files": [40, 40], "processes": [9999, 9999], "stack": [8388608, None]}
MAPPED = "ImportError: /tmp/x/m.so: failed to map segment from shared object"
KINDS = [
    ("open files", failed("OSError: [Errno 24] Too many open files: '/dev/nvidiactl'"), {"limits": FEW}, "open-files-limited"),
    ("full folder", failed("OSError: [Errno 28] No space left on device: '/tmp/x/a.o'"), {"tmp": FULL}, "temporary-space-full"),
    ("noexec", failed(MAPPED), {"tmp": NOEXEC}, "temporary-space-noexec"),
    ("cpu time", failed("killed by SIGXCPU in fp16", "died"), limits(cpu="3"), "resource-limit-stops-programs"),
    ("small stack", failed("killed by SIGSEGV in fp16", "died"), limits(stack="184320"), "resource-limit-stops-programs"),
    ("addresses", failed("MemoryError in fp16"), limits(space="700000000"), "address-space-limit-too-low"),
    ("memory", failed("killed by SIGKILL in fp16", "died", recorded=OOM), {}, "memory-limit-reached"),
]


@each(("reply", "replies", "cause"), [row[1:] for row in KINDS], ids=[row[0] for row in KINDS])
def test_a_cause_on_the_machine_stands_first_and_alone(reply: Reply, replies: dict[str, Any], cause: str) -> None:
    report = judged({"convolution:gpu0": reply, "cuda-graphs:gpu0": reply}, **replies)
    first = report.diagnosis[0]
    assert first.problem == cause
    assert first.status is Status.FAIL
    assert "measurements" in first.explains
    assert not [entry.problem for entry in report.diagnosis if entry.problem.startswith("measurement-")]


@each("replies", [{"limits": FEW}, {"tmp": FULL}, {"tmp": NOEXEC}, limits(cpu="3"), limits(space="700000000")])
def test_a_failure_of_another_kind_is_not_explained_by_it(replies: dict[str, Any]) -> None:
    report = judged({"convolution:gpu0": failed("RuntimeError: the registry was sealed twice in fp16")}, **replies)
    assert report.diagnosis[0].problem == "measurement-failed"
    assert not [entry for entry in report.diagnosis if "measurements" in entry.explains]


@pytest.mark.parametrize("recorded", ["", "[ 12.3] traps: b[4] trap invalid opcode ip:1"])
def test_a_kill_without_a_record_is_not_called_lack_of_memory(recorded: str) -> None:
    report = judged({"convolution:gpu0": failed("killed by SIGKILL in fp16", "died", recorded=recorded)})
    assert report.diagnosis[0].problem == "measurement-crashed"


def test_without_an_explanation_it_says_what_was_tried() -> None:
    reply = failed("RuntimeError: the registry was sealed twice in fp16", recorded="")
    first = judged({"convolution:gpu0": reply}).diagnosis[0]
    assert len(first.evidence["tried"]) == 3
    assert first.fixes[-1].command == "gpudoctor report -o issue.md"


def test_failures_with_one_explanation_are_one_finding() -> None:
    reply = failed("ValueError: Unknown CUDA arch (9.9) or GPU not supported in fp16")
    other = failed("RuntimeError: Unknown CUDA arch (9.9) for this in fp32")
    environment = {**BASE.replies["environment"].value, "TORCH_CUDA_ARCH_LIST": "9.9"}
    report = judged({"convolution:gpu0": reply, "cuda-graphs:gpu0": other}, environment=environment)
    entries = [entry for entry in report.diagnosis if "measurements" in (entry.check, *entry.explains)]
    assert [entry.problem for entry in entries] == ["environment-variable-breaks-program"]


def test_the_finding_about_a_named_variable_is_the_cause() -> None:
    """What the words name, and what a check found about it, are one."""
    environment = {**BASE.replies["environment"].value, "CUDA_FORCE_PTX_JIT": "yes"}
    reply = failed("RuntimeError: CUDA_FORCE_PTX_JIT is not supported by this library in fp16")
    first = judged({"convolution:gpu0": reply}, environment=environment).diagnosis[0]
    assert first.problem == "ptx-jit-forced"
    assert "measurements" in first.explains


NO_COMPILER = "RuntimeError: Error building extension: nvcc fatal   : Failed to preprocess host compiler properties."


@pytest.mark.parametrize(
    ("unset", "tmp", "cause"),
    [
        ({}, FULL, "temporary-space-full"),
        ({"CXX": "g++-13", "MAX_JOBS": "4"}, None, "own-settings-break-compiler"),
        ({"TORCH_CUDA_ARCH_LIST": "Hopper2"}, None, "own-settings-break-compiler"),
    ],
)
def test_what_works_with_clean_settings_misses_no_compiler(unset: dict[str, str], tmp: Any, cause: str) -> None:
    broken = {"error": NO_COMPILER, "printed": "", "clean": "works", "unset": unset}
    replies = {"tmp": tmp} if tmp else {}
    report = judged({"rung-load-inline:gpu0": Reply("ok", {"broken": broken})}, **replies)
    entries = [entry.problem for entry in report.diagnosis if "toolchain-ladder" in (entry.check, *entry.explains)]
    assert entries == [cause]


def test_a_variable_that_one_compiler_names_explains_another_that_is_silent() -> None:
    def broken(error: str) -> Reply:
        return Reply("ok", {"broken": {"error": error, "printed": "", "clean": "works", "unset": {"CXX": "/opt/x/cc"}}})

    environment = {**BASE.replies["environment"].value, "CXX": "/opt/x/cc"}
    named, silent = broken("FileNotFoundError: [Errno 2] No such file or directory: '/opt/x/cc'"), broken("InductorError: ")
    report = judged({"rung-load-inline:gpu0": named, "rung-compile:gpu0": silent}, environment=environment)
    entries = [entry.problem for entry in report.diagnosis if "toolchain-ladder" in (entry.check, *entry.explains)]
    assert entries == ["environment-variable-breaks-program"]


def test_a_processor_without_avx2_explains_an_illegal_instruction() -> None:
    def clues(flags: str) -> list[str]:
        facts = Facts(replace(BASE, replies={**BASE.replies, "processor": Reply("ok", f"flags\t\t: {flags}")}), lambda: PROBLEMS)
        return [clue.problem.id for clue in failing.explanation(facts, failing.Failed("x", "", "SIGILL")).clues]

    assert clues("fpu sse2 avx") == ["cpu-lacks-instructions"]
    assert clues("fpu sse2 avx avx2 fma") == []
