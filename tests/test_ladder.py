"""The rungs of the toolchain: what they do with compilers that work, fail, hang or are missing, and how that is judged."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import pytest
from each import each
from process import command_lines
from waiting import until

from gpudoctor import catalog
from gpudoctor.facts import Facts
from gpudoctor.judging.texts import compilers
from gpudoctor.knowledge import messages
from gpudoctor.model import Finding, Reply, Skip, Snapshot
from gpudoctor.worker.measuring import bench, clock, programs, square
from gpudoctor.worker.measuring.driver import CudaError
from gpudoctor.worker.workloads import rung_compile, rung_nvcc, rung_nvrtc, rung_ptx, rung_triton, square_torch

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # pytest-xdist has threads
CHECK = catalog.checks()["toolchain-ladder"]
GCC_TOO_NEW = """In file included from /usr/local/cuda/include/cuda_runtime.h:83,
                 from <command-line>:
/usr/local/cuda/include/crt/host_config.h:137:2: error: #error -- unsupported GNU version! gcc versions later than 15 are not
supported! The nvcc flag '-allow-unsupported-compiler' can be used to override this version check"""
NO_PYTHON_H = """CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', '-O3']' returned non-zero exit status 1.
/tmp/x/main.c:4:10: fatal error: Python.h: No such file or directory
compilation terminated."""
MISMATCH = """RuntimeError:
The detected CUDA version (12.4) mismatches the version that was used to compile
PyTorch (13.0). Please make sure to use the same CUDA versions."""


class Gpu:
    """A driver whose memory is the host's; the kernel `square` is Python, and damages as many results as it is told."""

    device = 0

    def __init__(self, damaged: int = 0) -> None:
        self.damaged = damaged
        self.memories: dict[int, bytearray] = {}

    def __call__(self, function: str, value: Any, attribute: int, device: int) -> None:
        assert function == "cuDeviceGetAttribute"
        value._obj.value = {75: 9, 76: 0}[attribute]

    def memory(self) -> tuple[int, int]:
        return 1 << 40, 1 << 40

    @contextmanager
    def buffer(self, size: int) -> Iterator[SimpleNamespace]:
        number = (len(self.memories) + 1) << 32
        self.memories[number] = bytearray(size)
        yield SimpleNamespace(value=number)

    def put(self, pointer: Any, data: bytes) -> None:
        number, offset = pointer.value >> 32 << 32, pointer.value & 0xFFFFFFFF
        self.memories[number][offset : offset + len(data)] = data

    def bytes_from(self, pointer: Any, size: int, offset: int = 0) -> bytes:
        return bytes(self.memories[pointer.value][offset : offset + size])

    def module(self, image: str = "") -> Callable[..., None]:
        def launch(name: str, to: Any, matrix: Any, vectors: Any, grid: int) -> None:
            values = memoryview(self.memories[matrix.value]).cast("f")
            assert (name, 4 * vectors.value) == ("square", len(values))
            assert grid * 512 >= vectors.value
            results = array("f", (value * value for value in values))
            for number in range(self.damaged):
                results[number] += 1
            self.memories[to.value][:] = results.tobytes()

        return launch

    def synchronize(self) -> None:
        pass

    def milliseconds(self, work: Callable[[], None], repeats: int, warm_up: int) -> list[float]:
        work()
        return [0.001] * repeats


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(square, "BYTES", 3 * square.ROW_BYTES)
    monkeypatch.setattr(square, "CHUNK_BYTES", 2 * square.ROW_BYTES)
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    for name in ("TORCHINDUCTOR_COMPILE_THREADS", "PATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # what a rung sets is undone
    for name in square.CACHES:
        (tmp_path / "users" / name).mkdir(parents=True)
        monkeypatch.setenv(name, str(tmp_path / "users" / name))
    monkeypatch.chdir(Path.cwd())


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()
    monkeypatch.setattr(square, "Driver", lambda ordinal: found)
    return found


def results(tmp_path: Path, run: Callable[[bench.Bench], None]) -> dict[str, Any]:
    run(bench.Bench(str(tmp_path / "results"), [0]))
    return bench.read(str(tmp_path / "results")).values


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_a_working_rung_tells_its_speed_and_both_times(gpu: Gpu, tmp_path: Path) -> None:
    found = results(tmp_path, rung_ptx.run)
    size = 3 * square.ROW_BYTES
    assert found["square"]["gb_per_s"] == pytest.approx(2 * size / 0.001 / 1e6)
    assert found["square"]["wrong_elements"] == 0
    assert found["build"]["cold_seconds"] > 0
    assert found["build"]["warm_seconds"] > 0
    assert all(Path(os.environ[name]).is_relative_to(tmp_path) for name in square.CACHES)


def test_wrong_results_are_counted(gpu: Gpu, tmp_path: Path) -> None:
    gpu.damaged = 2
    assert results(tmp_path, rung_ptx.run)["square"]["wrong_elements"] == 2


def test_a_compiler_that_fails_is_a_broken_rung_with_all_its_words(
    gpu: Gpu, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def build(driver: Any) -> Any:
        subprocess.run(["sh", "-c", "echo 'main.c:4: fatal error: Python.h: No such file or directory' >&2"], check=True)
        raise ValueError("returned non-zero exit status 1")

    found = results(tmp_path, lambda each: square.by_driver(each, build))
    assert found["broken"]["error"] == "ValueError: returned non-zero exit status 1"
    assert "Python.h" in found["broken"]["printed"]
    assert "square" not in found


def test_a_full_gpu_is_no_broken_rung(gpu: Gpu, tmp_path: Path) -> None:
    def build(driver: Any) -> Any:
        raise CudaError("cuModuleLoadDataEx", 2, "CUDA_ERROR_OUT_OF_MEMORY")

    with pytest.raises(CudaError):
        results(tmp_path, lambda each: square.by_driver(each, build))


def test_long_words_keep_the_lines_about_errors() -> None:
    text = "first\n" + "nothing\n" * 3000 + "x.h: fatal error: cusparse.h: No such file\n" + "nothing\n" * 3000 + "last"
    kept = programs.essence(text)
    assert len(kept) < programs.KEPT + 20
    assert kept.startswith("first")
    assert "cusparse.h" in kept
    assert kept.endswith("last")


def test_nvcc_compiles_for_this_gpu(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = program(tmp_path / "bin", "nvcc", 'echo "$@" > ../arguments; touch square.cubin')
    monkeypatch.setenv("PATH", f"{nvcc.parent}:/usr/bin:/bin")
    found = results(tmp_path, rung_nvcc.run)
    assert found["compiler"] == {"path": str(nvcc)}
    assert found["square"]["wrong_elements"] == 0
    assert "-cubin -arch=sm_90" in (tmp_path / "arguments").read_text()


def test_nvcc_fails_in_its_own_words(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = program(tmp_path / "bin", "nvcc", f"cat >&2 <<'END'\n{GCC_TOO_NEW}\nEND\nexit 1")
    monkeypatch.setenv("PATH", f"{nvcc.parent}:/usr/bin:/bin")
    found = results(tmp_path, rung_nvcc.run)
    assert found["broken"]["error"].startswith("CompilerError: nvcc ended with 1: ")
    assert "unsupported GNU version" in found["broken"]["error"]


def test_a_compiler_that_hangs_is_killed_with_what_it_started(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    length = f"98765.{os.getpid()}"  # to be told from others
    nvcc = program(tmp_path / "bin", "nvcc", f"echo at work; sleep {length} & wait")
    monkeypatch.setenv("PATH", f"{nvcc.parent}:/usr/bin:/bin")
    monkeypatch.setattr(rung_nvcc, "SECONDS", 0.3)
    assert "did not finish within" in results(tmp_path, rung_nvcc.run)["broken"]["error"]
    assert until(lambda: not command_lines(of=f"sleep {length}"))


def test_without_nvcc_its_rung_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find", lambda name, *patterns: None)
    with pytest.raises(Skip) as skip:
        results(tmp_path, rung_nvcc.run)
    assert skip.value.kind == Skip.NOT_INSTALLED


def test_a_program_is_looked_for_on_path_then_by_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    for version in ("2024.3.2", "2025.10.1", "2025.3.1"):
        (tmp_path / version).mkdir()
        program(tmp_path / version, "ncu", "")
    assert programs.find("ncu", f"{tmp_path}/*/ncu") == f"{tmp_path}/2025.10.1/ncu"
    on_path = program(tmp_path / "bin", "ncu", "")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert programs.find("ncu", f"{tmp_path}/*/ncu") == str(on_path)


NVRTC = r"""
#include <stdlib.h>
#include <string.h>
static const char *log_text = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n"
                              "  Make sure that libnvrtc-builtins.so.13.0 is installed correctly.";
static const char *ptx = "//\n.version 9.0\n.target sm_90\n";
int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
const char *nvrtcGetErrorString(int code) { return code == 7 ? "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE" : "NVRTC_ERROR"; }
int nvrtcCreateProgram(void **program, const char *source, const char *name, int count, const char **headers, const char **names)
{
    *program = (void *)1;
    return !strstr(source, "square") || strcmp(name, "square.cu") || count || headers || names;
}
int nvrtcCompileProgram(void *program, int count, const char **options)
{
    if (getenv("FAKE_NVRTC_BROKEN")) return 7;
    return program != (void *)1 || count != 1 || strcmp(options[0], "--gpu-architecture=compute_90");
}
int nvrtcGetProgramLogSize(void *program, size_t *size) { *size = strlen(log_text) + 1; return !program; }
int nvrtcGetProgramLog(void *program, char *text) { strcpy(text, log_text); return !program; }
int nvrtcGetPTXSize(void *program, size_t *size) { *size = strlen(ptx) + 1; return !program; }
int nvrtcGetPTX(void *program, char *text) { strcpy(text, ptx); return !program; }
int nvrtcDestroyProgram(void **program) { *program = NULL; return 0; }
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site-packages with NVIDIA's wheel of NVRTC."""
    folder = tmp_path / "site" / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (tmp_path / "nvrtc.c").write_text(NVRTC)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libnvrtc.so.13", tmp_path / "nvrtc.c"], check=True)
    (folder / "libnvrtc-builtins.so.13.0").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_nvrtc_of_a_wheel_compiles(site: Path, gpu: Gpu, tmp_path: Path) -> None:
    found = results(tmp_path, rung_nvrtc.run)
    assert found["compiler"] == {"path": str(site / "libnvrtc.so.13"), "version": "13.0"}
    assert found["square"]["wrong_elements"] == 0


def test_nvrtc_without_its_second_library(site: Path, gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVRTC_BROKEN", "1")
    error = results(tmp_path, rung_nvrtc.run)["broken"]["error"]
    known = compilers.recognise(error, "NVRTC")
    assert known
    assert known.words == "the library libnvrtc-builtins, which libnvrtc requires, is missing"


def test_without_nvrtc_its_rung_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rung_nvrtc, "places", lambda: iter(()))
    with pytest.raises(Skip, match="nvidia-cuda-nvrtc"):
        results(tmp_path, rung_nvrtc.run)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """So much of PyTorch as the rungs use between their kernels."""
    found = SimpleNamespace(
        cuda=SimpleNamespace(synchronize=lambda: None, get_device_capability=lambda: (9, 0)), compile=lambda function: function
    )
    monkeypatch.setattr(square, "cuda_torch", lambda: found)
    monkeypatch.setattr(square, "ramp", lambda torch, gpu: 3)
    monkeypatch.setattr(square, "measured", lambda torch, way, matrix: {"gb_per_s": 1.0, "value": way(matrix)})
    return found


def test_the_second_time_is_that_of_another_process(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(torch: Any) -> Any:
        seconds[0] += 1 if (tmp_path / "cache").exists() else 30
        (tmp_path / "cache").touch()
        with (tmp_path / "pids").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return lambda matrix: matrix * matrix

    seconds = [0.0]
    monkeypatch.setattr(clock, "now", lambda: seconds[0])
    found = results(tmp_path, lambda each: square.by_torch(each, build))
    assert found["square"] == {"gb_per_s": 1.0, "value": 9}
    assert found["build"] == {"cold_seconds": 30, "warm_seconds": 1}
    assert len(set((tmp_path / "pids").read_text().split())) == 2


def test_a_second_time_that_fails_costs_nothing_else(torch: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def build(torch: Any) -> Any:
        if (tmp_path / "cache").exists():
            raise ValueError("the cache is damaged")
        (tmp_path / "cache").touch()
        return lambda matrix: matrix * matrix

    found = results(tmp_path, lambda each: square.by_torch(each, build))
    assert "square" in found
    assert set(found["build"]) == {"cold_seconds"}


def test_torch_compile_that_compiles_nothing_is_broken(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    error = results(tmp_path, rung_compile.run)["broken"]["error"]
    known = compilers.recognise(error, "torch.compile")
    assert known
    assert "disabled" in known.words


@pytest.mark.parametrize("run", [rung_triton.run, rung_compile.run])
def test_without_triton_its_rungs_are_skipped(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Skip, match="Triton is not installed"):
        results(tmp_path, run)


def test_a_gpu_that_is_too_old_for_triton_is_no_fault(torch: Any) -> None:
    torch.cuda.get_device_capability = lambda: (6, 1)
    with pytest.raises(Skip, match=r"needs compute capability 7\.0, this GPU has 6\.1"):
        rung_triton.need(torch, rung_triton.OLDEST)


def test_programs_beside_python_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    square.prepare(bench.Bench(str(tmp_path / "results"), [0]))
    assert os.environ["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"


@pytest.mark.slow
def test_the_triton_kernel_squares() -> None:
    """By Triton's interpreter, which needs no GPU."""
    for module in ("torch", "triton", "numpy"):
        pytest.importorskip(module, reason=f"{module} is not installed in this environment")
    code = """
import torch
from gpudoctor.worker.workloads import rung_triton
matrix = torch.arange(1500, dtype=torch.float32).reshape(3, 500)
assert torch.equal(rung_triton.squared(torch)(matrix), matrix.square())
"""
    root = str(Path(__file__).parent.parent)
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": root}, check=True)


@pytest.mark.slow
def test_pytorch_verifies_exactly() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed in this environment")
    matrix = torch.arange(1024, dtype=torch.float32).repeat(3, 1)
    for way in (torch.square, lambda a: a * a, lambda a: a**2, rung_compile.squared):
        assert square.wrong_in(torch, way(matrix)) == 0
    assert square.wrong_in(torch, matrix.square() + (matrix == 7)) == 3
    assert square_torch.WORKLOAD.runtime == "torch"


NO_COMPILER = "RuntimeError: Failed to find C compiler. Please specify via CC environment variable."
NO_NINJA = "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)"
NO_CUDA_HOME = "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NO_COMPILER, "no C or C++ compiler is installed"),
        (
            "x/CUDAContextLight.h:6:10: fatal error: cusparse.h: No such file or directory",
            "the header file cusparse.h is missing",
        ),
        (NO_CUDA_HOME, "PyTorch does not find nvcc, which is at /opt/nvcc"),
        (MISMATCH, "nvcc is from CUDA 12.4, PyTorch was built with CUDA 13.0"),
        ("/usr/bin/ld: cannot find -lcudart", "the linker does not find the library cudart"),
        (
            "ImportError: /opt/conda/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /tmp/x.so)",
            "the libstdc++ that Python loads is older than the compiler's and does not have GLIBCXX_3.4.32",
        ),
        (
            "RuntimeError: torch.compile is not supported on Python 3.14+",
            "this PyTorch does not support torch.compile on Python 3.14+",
        ),
        (
            "ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler' (/x.py)",
            "PyTorch and Triton are not compatible: triton.compiler.compiler has no triton_key",
        ),
    ],
)
def test_what_compilers_say_is_put_in_words(text: str, words: str) -> None:
    known = compilers.recognise(text, "nvcc", nvcc="/opt/nvcc")
    assert known
    assert known.words == words


@each("row", messages.messages(compilers.CHECK_ID), ids=lambda row: row.id)
def test_what_compilers_say_is_understood(row: messages.Message) -> None:
    for sample in row.samples:
        known = compilers.recognise(sample, "nvcc", nvcc="/opt/nvcc")
        assert known
        assert (known.problem.id, known.because) == (row.problem, "".join(row.causes))
        assert known.problem.fixes
        assert all("{" not in text for fix in known.problem.fixes for text in (known.words, fix.title, fix.command))


def test_the_cause_may_depend_on_the_rung() -> None:
    found = {rung: compilers.recognise(NO_COMPILER, rung) for rung in ("nvcc", "Triton", "torch.compile")}
    because = {rung: known.because for rung, known in found.items() if known}
    assert because == {
        "nvcc": "host-compiler-missing",
        "Triton": "c-compiler-missing",
        "torch.compile": "c-compiler-missing",
    }


def test_what_a_compiler_prints_never_becomes_a_command() -> None:
    known = compilers.recognise("fatal error: x.h;rm: No such file", "nvcc")
    assert known
    assert not any(";rm" in fix.command for fix in known.problem.fixes)
    assert [fix.command for fix in known.problem.fixes] == ["", ""]


def works(gb_per_s: float = 2950.0, **more: Any) -> dict[str, Any]:
    return {
        "build": {"cold_seconds": 2.0, "warm_seconds": 0.5},
        "square": {"gb_per_s": gb_per_s, "spread": 0.01, "wrong_elements": 0, "during": {"sm_mhz": 1980}, **more},
    }


def breaks(error: str, printed: str = "") -> dict[str, Any]:
    return {"broken": {"error": error, "printed": printed}}


HEALTHY = {
    "rung-ptx": works(),
    "rung-nvrtc": works(),
    "rung-nvcc": dict(works(), compiler={"path": "/usr/local/cuda/bin/nvcc"}),
    "rung-load-inline": works(),
    "rung-triton": works(2990.0),
    "rung-compile": works(),
    "square-torch": {name: works()["square"] for name in ("torch.square(a)", "a * a", "a ** 2")},
}


def facts(**changes: Any) -> Facts:
    """A healthy H100 but for some rungs, named with underscores: other results, or a Reply."""
    given = {**HEALTHY, **{name.replace("_", "-"): value for name, value in changes.items()}}
    plan = Reply("ok", {"workloads": list(given), "gpus": [0], "left_alone": {}, "kind": "busy"})
    measured = {
        f"{name}:gpu0": value if isinstance(value, Reply) else Reply("ok", value, seconds=2.0) for name, value in given.items()
    }
    taken: Snapshot = replace(machine.load("h100"), measured={"plan": plan, **measured})
    return Facts(taken, lambda: {id: problem for id, (_, problem) in catalog.problems().items()})


def judged(**changes: Any) -> list[Finding]:
    return list(CHECK.judge(facts(**changes)))


ABSENT = Reply("skipped", {"kind": Skip.NOT_INSTALLED}, "there is no nvcc")


def test_a_healthy_ladder() -> None:
    assert judged() == []
    words = CHECK.summary(facts())
    assert words == "driver PTX, NVRTC, nvcc, load_inline, Triton, torch.compile: 2950 to 2990 GB/s"
    shown = {figure.what: figure for figure in CHECK.figures(facts())}
    assert {"square by driver PTX", "square by Triton", "square by a ** 2", "first result of load_inline"} <= set(shown)
    assert shown["square by Triton"].share
    assert shown["square by Triton"].share > 0.9
    assert shown["square by Triton"].during == {"sm_mhz": 1980}
    assert shown["next result of Triton"].value == 0.5


def test_what_is_not_installed_is_named_and_no_fault() -> None:
    assert judged(rung_nvcc=ABSENT, rung_load_inline=ABSENT) == []
    words = CHECK.summary(facts(rung_nvcc=ABSENT, rung_load_inline=ABSENT))
    assert "not available: nvcc (there is no nvcc), load_inline (there is no nvcc)" in words


def test_a_part_that_two_rungs_lack_is_told_once_at_the_first() -> None:
    broken = breaks("CalledProcessError: exit status 1", NO_PYTHON_H)
    (finding,) = judged(rung_triton=broken, rung_compile=broken)
    assert finding.message == "Triton fails: Python's header file Python.h is missing; torch.compile fails too"
    assert finding.problem.id == "toolchain-part-missing"
    assert finding.because == "triton-python-h-missing"
    assert finding.evidence["rungs"]["nvcc"] == "works"
    assert any("-dev" in fix.command for fix in finding.problem.fixes)


def test_two_parts_are_two_findings() -> None:
    found = judged(rung_load_inline=breaks(NO_NINJA), rung_triton=breaks(NO_COMPILER))
    assert [finding.because for finding in found] == ["ninja-missing", "c-compiler-missing"]


def test_nvcc_that_pytorch_does_not_find() -> None:
    (finding,) = judged(rung_load_inline=breaks(NO_CUDA_HOME))
    assert finding.problem.id == "toolchain-set-up-wrongly"
    assert "which is at /usr/local/cuda/bin/nvcc" in finding.message
    assert finding.evidence["nvcc"] == "/usr/local/cuda/bin/nvcc"


def test_an_unknown_error_is_told_in_its_own_words() -> None:
    (finding,) = judged(rung_compile=breaks("InductorError: something new\nmore"))
    assert finding.problem.id == "toolchain-rung-broken"
    assert finding.message == "torch.compile fails: InductorError: something new"
    assert finding.confidence.value == "unknown"


def test_a_wrong_result_and_a_slow_kernel() -> None:
    (wrong,) = judged(rung_triton=works(wrong_elements=5))
    assert wrong.problem.id == "gpu-computes-wrong"
    (slow,) = judged(rung_compile=works(900.0))
    assert slow.problem.id == "compiled-kernel-slow"
    assert slow.message == "square by torch.compile reaches 900 GB/s; the fastest is square by Triton with 2990 GB/s"


def test_a_rung_that_died_keeps_the_check_from_passing() -> None:
    died = Reply("died", {"compiler": {"version": "3.6"}}, "killed by SIGSEGV in compiling")
    with pytest.raises(Skip, match="see measurements"):
        judged(rung_triton=died)
    (finding,) = findings_before_skip(rung_triton=died, rung_nvcc=breaks(GCC_TOO_NEW))
    assert finding.because == "host-gcc-too-new"


def findings_before_skip(**changes: Any) -> list[Finding]:
    found: list[Finding] = []
    with pytest.raises(Skip):
        found.extend(CHECK.judge(facts(**changes)))
    return found


def test_nothing_measured() -> None:
    cut = Reply("cut", None, "the run was cut off")
    with pytest.raises(Skip) as skip:
        judged(**{name.replace("-", "_"): cut for name in HEALTHY})
    assert skip.value.kind == Skip.CUT_OFF
