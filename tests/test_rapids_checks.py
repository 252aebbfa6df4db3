"""The checks of other packages, by their entry points for rapids doctor."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.model import Skip
from gpudoctor.worker.measuring.bench import Bench, read
from gpudoctor.worker.workloads import rapids_checks

MODULE = '''
import warnings


def quiet(verbose=False, **kwargs):
    """Passes."""


def warns(verbose):
    warnings.warn("little host memory")
    return "verbose" if verbose else "fine"


def fails(verbose=False, gpu_info=None):
    raise ValueError("cudf cannot be imported, gpu_info is %r" % (gpu_info,))
'''
POINTS = """[rapids_doctor_check]
a_quiet = our_checks:quiet
b_warns = our_checks:warns
c_fails = our_checks:fails
d_gone = our_checks:gone
e_missing = our_other_checks:any
f_same = our_checks:quiet
"""


def outcomes(folder: Path, monkeypatch: pytest.MonkeyPatch, points: str) -> dict[str, dict[str, Any]]:
    about = folder / "our_checks-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: our-checks\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(points)
    (folder / "our_checks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "our_checks", raising=False)
    importlib.invalidate_caches()
    rapids_checks.run(Bench(str(folder / "results"), [0]))
    return {one["function"]: one for one in read(str(folder / "results")).values.values()}


def test_what_came_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcomes(tmp_path, monkeypatch, POINTS)
    assert {function: one["status"] for function, one in found.items()} == {
        "our_checks:quiet": "pass",
        "our_checks:warns": "pass",
        "our_checks:fails": "fail",
        "our_checks:gone": "not loaded",
        "our_other_checks:any": "not loaded",
    }
    assert (found["our_checks:warns"]["words"], found["our_checks:warns"]["warnings"]) == ("fine", ["little host memory"])
    assert found["our_checks:fails"]["words"] == "ValueError: cudf cannot be imported, gpu_info is None"


def test_they_get_what_rapids_doctor_gives_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NvmlGpuInfo:
        def __repr__(self) -> str:
            return "NVML"

    hardware: Any = type(sys)("rapids_cli.hardware")
    hardware.NvmlGpuInfo = NvmlGpuInfo
    monkeypatch.setitem(sys.modules, "rapids_cli.hardware", hardware)
    found = outcomes(tmp_path, monkeypatch, "[rapids_doctor_check]\nc_fails = our_checks:fails\nd_warns = our_checks:warns\n")
    assert found["our_checks:fails"]["words"].endswith("gpu_info is NVML")
    assert found["our_checks:warns"]["status"] == "pass"


def test_without_such_packages_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Skip, match="no installed package"):
        outcomes(tmp_path, monkeypatch, "[console_scripts]\nours = our_checks:quiet\n")
