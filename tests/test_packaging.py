"""What is built carries every file of checks/ and images/, and works where it is installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import gpudoctor

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]  # built once

ROOT = Path(__file__).parent.parent
DATA = ("checks", "images")


# What somebody might write, and what a type checker must refuse.
SCRIPT = """\
import gpudoctor
from gpudoctor import Checkup, Diagnosis, Status, UserError


def worst(report: Checkup) -> list[tuple[str, str]]:
    found: tuple[Diagnosis, ...] = report.diagnosis
    return [(entry.title, fix.command) for entry in found for fix in entry.fixes]


def main() -> int:
    try:
        report = gpudoctor.check(level="quick", only=["gemm"], logs="train.log", progress=print)
    except UserError as error:
        print(error)
        return 2
    report.write("report.html")
    share: float | None = next((figure.share for each in report.measured.figures.values() for figure in each), None)
    same: bool = gpudoctor.diff("yesterday.json", report).is_same
    told: str = gpudoctor.explain("Xid 79").text + report.to_json() + report.ticket("nccl")
    print(share, same, told, gpudoctor.__version__, gpudoctor.load("report.json").status)
    return 1 if report.status is Status.FAIL else len(worst(report))
"""
MISTAKES = """\
import gpudoctor

gpudoctor.check(level="quik")
gpudoctor.chekc()
gpudoctor.check().render("pdf")
"""


def files_of(folder: str) -> set[str]:
    done = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from an sdist, as a release is."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel in a virtual environment of its own, with this one's dependencies."""
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(venv)], check=True)
    site = next(venv.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return venv


def test_wheel_carries_the_data(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    wanted = {f"gpudoctor/{name}" for folder in DATA for name in files_of(folder)}
    assert wanted
    assert wanted <= names
    assert files_of("gpudoctor") <= names
    assert "gpudoctor/py.typed" in names
    assert not [name for name in names if name.startswith(("checks/", "images/", "tests/"))]


def test_sdist_carries_the_data(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert files_of("checks") | files_of("images") | files_of("gpudoctor") <= names
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names


def test_installed_wheel_finds_its_checks(installed: Path) -> None:
    code = "import gpudoctor; from gpudoctor import catalog; print(gpudoctor.__file__); print(*catalog.checks())"
    done = subprocess.run([installed / "bin" / "python", "-c", code], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    where, names = done.stdout.splitlines()
    assert where.startswith(str(installed))
    assert set(names.split()) == {Path(name).stem.replace("_", "-") for name in files_of("checks")}


def test_a_script_of_somebody_is_checked_against_the_installed_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed / "bin" / "python")]
    done = subprocess.run([*command, "script.py", "mistakes.py"], cwd=tmp_path, capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.partition(": error: ")[0] for line in said] == [f"mistakes.py:{number}" for number in (3, 4, 5)], done.stdout


def test_editable_install_points_at_the_checkout(tmp_path: Path) -> None:
    """Nothing is copied: a check that is added to the checkout is there at once."""
    code = f"import hatchling.build as b; print(b.build_editable({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        paths = [wheel.read(name).decode().strip() for name in names if name.endswith(".pth")]
    assert paths == [str(ROOT)]
    assert not [name for name in names if "checks" in name]


def test_version_is_written_once() -> None:
    done = subprocess.run(["git", "grep", "-lF", f'"{gpudoctor.__version__}"'], cwd=ROOT, capture_output=True, text=True)
    assert [name for name in done.stdout.split() if not name.startswith("tests/")] == ["gpudoctor/version.py"]
