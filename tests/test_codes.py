"""`gpudoctor explain` of a code: how it may be written, and what is told."""

from __future__ import annotations

from itertools import pairwise

import pytest
from click.testing import CliRunner
from each import each

from gpudoctor import catalog, codes
from gpudoctor.cli import main
from gpudoctor.errors import UserError
from gpudoctor.knowledge import errors, library_codes, rm, xids


@each(
    ("text", "kind", "number"),
    [
        ("Xid 79", "xid", 79),
        ("xid 79", "xid", 79),
        ("XID: 79", "xid", 79),
        ("NVRM: Xid 79", "xid", 79),
        ("SXid 12028", "sxid", 12028),
        ("CUDA error 802", "cuda", 802),
        ("CUDA error: 802", "cuda", 802),
        ("cuda 802", "cuda", 802),
        ("CUresult 999", "cuda", 999),
        ("NVML 18", "nvml", 18),
        ("NVML error 18", "nvml", 18),
        ("nvidia-smi 9", "nvidia-smi", 9),
        ("nvidia-smi exit code 9", "nvidia-smi", 9),
        ("nvidia-smi exited with 9", "nvidia-smi", 9),
        ("NCCL 2", "nccl", 2),
        ("cuDNN status 4", "cudnn", 4),
        ("CUPTI error 35", "cupti", 35),
        ("NPP status -1000", "npp", -1000),
        ("NVENC 8", "nvenc", 8),
        ("exit code 137", "exit", 137),
        ("docker exit 125", "exit", 125),
        ("container exited with code 139", "exit", 139),
        ("RmInitAdapter 0x26:0x56:1463", "rm", 0x26),
        ("RmInitAdapter 0x26:0x56", "rm", 0x26),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x56:1463)", "rm", 0x26),
        ("(0x62:0x40:2168)", "rm", 0x62),
        ("NV_STATUS 0x56", "status", 0x56),
    ],
)
def test_a_code_by_number(text: str, kind: str, number: int) -> None:
    code = codes.parse(text)
    assert code
    assert (code.kind, code.number) == (kind, number)
    assert list(codes.lines(code))


@each(
    ("text", "kind"),
    [
        ("cudaErrorSystemNotReady", "cuda"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", "cuda"),
        ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "nvml"),
        ("ncclSystemError", "nccl"),
        ("CUDNN_STATUS_NOT_INITIALIZED", "cudnn"),
        ("CUBLAS_STATUS_ALLOC_FAILED", "cublas"),
        ("cublas_status_alloc_failed", "cublas"),
        ("NV_ERR_NOT_SUPPORTED", "status"),
    ],
)
def test_a_code_by_name(text: str, kind: str) -> None:
    code = codes.parse(text)
    assert code
    assert (code.kind, code.name) == (kind, text)
    assert text.lower() in " ".join(codes.lines(code)).lower()


@each(
    "text",
    [
        "",
        "79",
        "xids",
        "no-driver-found",
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: out of memory",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "Xid 79 and Xid 45",
        "Failed to initialize NVML: Driver/library version mismatch",
        "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error, NCCL version 2.21.5",
        "dmesg.txt",
        "exit code: 1 line 20",
    ],
)
def test_what_is_no_code(text: str) -> None:
    assert codes.parse(text) is None


@each(
    ("text", "said"),
    [
        ("Xid 999", "not in the tables (they cover 1 to 176; nearest: 175 and 176"),
        ("SXid 12999", "nearest: 13001 and 13002"),
        ("CUDA error 850", "they cover 0 to 999; nearest: 811 and 812"),
        ("nvidia-smi 77", "nearest: "),
        ("RmInitAdapter 0x99:0x1", "they cover 0x10 to 0x63; nearest: 0x62 and 0x63"),
        ("NVML_ERROR_LIB_RM_MISMATCH", "did you mean NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
        ("cudaErrorSystemNotRead", "did you mean cudaErrorSystemNotReady"),
    ],
)
def test_an_unknown_code_names_what_is_near(text: str, said: str) -> None:
    code = codes.parse(text)
    assert code
    with pytest.raises(UserError, match=said.replace("(", r"\(")):
        list(codes.lines(code))


def every_code() -> list[codes.Code]:
    of_errors = {
        "nvml": "nvml",
        "cuda": "cuda",
        "smi": "nvidia-smi",
        "nccl": "nccl",
        "cudnn": "cudnn",
        "cublas": "cublas",
        "exits": "exit",
    }
    libraries = library_codes.table().rows()
    found = [codes.Code("xid", row.code) for row in xids.table().xids]
    found += [codes.Code("sxid", row.code) for row in xids.table().sxids]
    found += [codes.Code("rm", row.step or 0x24, status=row.status or 1, line=1) for row in rm.table().failures]
    found += [codes.Code("status", row.code) for row in rm.table().statuses]
    for name, rows in errors.table().rows().items():
        found += [codes.Code(of_errors[name], row.code) for row in rows]  # type: ignore[arg-type, attr-defined]
    return [*found, *(codes.Code(name, row.code) for name, rows in libraries.items() for row in rows)]  # type: ignore[arg-type, attr-defined]


def test_every_code_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = catalog.problems()
    monkeypatch.setattr(catalog, "problems", lambda: problems)
    for code in every_code():
        lines = list(codes.lines(code))
        assert len(lines) >= 3, code
        assert "" not in (lines[0], lines[-1]), code
        assert all(first or second for first, second in pairwise(lines)), (code, "two empty lines")
        for line in lines:
            assert len(line) <= 80 or line.startswith(("      ", "  http", "  ")) or " " not in line, line


def said(*words: str) -> str:
    done = CliRunner().invoke(main, ["explain", *words], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.output


def test_an_xid_tells_nvidias_action_beside_ours() -> None:
    text = said("Xid", "64")
    assert "NVIDIA's action: RESET_GPU" in text
    assert "What to do: replace hardware" in text
    assert "no spare row left" in text
    assert "More: gpudoctor explain xid-64-row-remap-failure" in text


def test_an_echo_says_that_it_is_one() -> None:
    assert "the Xid before it on the same GPU is the cause" in said("Xid 45")


def test_look_alikes_come_in_order_with_the_command_that_decides() -> None:
    text = said("CUDA error 802")
    order = [
        "fabricmanager-not-running-802",
        "fabricmanager-version-mismatch",
        "nvlink-fabric-unhealthy",
        "hmm-kaslr-cuda-init-fails",
    ]
    assert sorted(order, key=text.index) == order
    assert "To decide:\n      systemctl status nvidia-fabricmanager" in text


def test_a_step_that_has_moved_tells_both() -> None:
    text = said("RmInitAdapter failed! (0x26:0x56:1463)")
    assert "Step 0x26 (R515 to R559)" in text
    assert "Step 0x26 (R560 and newer)" in text
    assert "Call not supported (NV_ERR_NOT_SUPPORTED)" in text


def test_an_unknown_number_is_wrong_usage() -> None:
    done = CliRunner().invoke(main, ["explain", "Xid", "999"])
    assert done.exit_code == 2
    assert "Xid 999 is not in the tables" in done.output
