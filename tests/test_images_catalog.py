"""The catalog of images: the table behind it, the names, and what `gpudoctor images list` and `show` say of them."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import limited
import msgspec
import own_registry
import pytest
from click.shell_completion import ShellComplete
from each import each
from packaging.version import Version
from stand_in import run

from gpudoctor import knowledge
from gpudoctor.cli import main
from gpudoctor.cli.images import COMMANDS, command, show
from gpudoctor.cli.images import list as listing
from gpudoctor.containers.images import about, catalog, preflight, reference, released
from gpudoctor.containers.images.catalog import Image, resolve
from gpudoctor.containers.images.machine import ThisMachine, card
from gpudoctor.containers.images.preflight import Verdict
from gpudoctor.errors import UserError
from gpudoctor.folders import shipped
from gpudoctor.knowledge import images as table
from gpudoctor.knowledge.images import CudaImages, Month

ROWS = table.table()
H100 = card(0x2330)
NAMES = catalog.images()


@pytest.fixture(autouse=True)
def no_registry_and_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GPUDOCTOR_REGISTRY", "GPUDOCTOR_ENGINE", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_every_row_has_a_known_source() -> None:
    rows = [row for rows in ROWS.rows().values() for row in rows]
    assert {key for row in rows for key in row.source} == set(ROWS.sources)
    assert all(row.source for row in rows)
    assert not [row for row in rows if row.source == ("memory",) and row.verified]


def test_every_month_is_there_newest_first() -> None:
    months = [row.month for row in ROWS.pytorch]
    wanted = {f"{year}.{month:02}" for year in range(22, 27) for month in range(1, 13)} - {"25.07", "26.10", "26.11", "26.12"}
    assert set(months) == wanted
    assert all(newer > older for newer, older in pairwise(months))


@each("row", ROWS.pytorch, ids=lambda row: row.month)
def test_a_month_does_not_contradict_what_is_known_of_cuda(row: Month) -> None:
    needs = NAMES[f"pytorch-{row.month}"].needs
    assert needs.cuda
    assert needs.driver == knowledge.shipped_driver(needs.cuda)
    assert set(row.unverified) <= set(row.__struct_fields__)
    assert knowledge.architecture(row.least)
    for driver in filter(None, (row.compat,)):
        assert knowledge.cuda_of_branch(int(driver.split(".")[0])) == needs.cuda
    assert all(knowledge.branch(branch) or branch in (465,) for branch in row.branches)
    assert row.digest is None or re.fullmatch("sha256:[0-9a-f]{64}", row.digest)


def test_months_never_go_back() -> None:
    releases = [Version(row.cuda) for row in ROWS.pytorch]
    assert all(newer.release[:2] >= older.release[:2] for newer, older in pairwise(releases))
    assert all(newer.least >= older.least for newer, older in pairwise(ROWS.pytorch))


@each("row", ROWS.cuda, ids=lambda row: ".".join(map(str, row.cuda)))
def test_cuda_releases(row: CudaImages) -> None:
    assert all(Version(release).release[:2] == row.cuda for release in row.releases)
    assert [*row.releases] == sorted(row.releases, key=Version, reverse=True)
    assert [*row.ubuntu] == sorted(row.ubuntu, reverse=True)
    assert row.brands in {None, *(entry.name for entry in ROWS.brands)}
    assert all(knowledge.branch(branch) for branch in (*row.branches, *row.tesla_branches))
    driver = int((knowledge.shipped_driver(row.cuda) or "0").split(".")[0])
    assert all(branch < driver for branch in (*row.branches, *row.tesla_branches))


def test_a_requirement_is_spelled_as_the_image_spells_it() -> None:
    row = next(row for row in ROWS.cuda if row.cuda == (11, 8))
    text = table.requirement(row) or ""
    assert text.startswith(
        "cuda>=11.8 brand=tesla,driver>=450,driver<451 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470"
    )
    assert text.endswith(" brand=titanrtx,driver>=515,driver<516")
    assert len(text.split()) == 1 + 1 + 3 * 10
    assert table.requirement(next(row for row in ROWS.cuda if row.cuda == (11, 5))) is None


def test_names_are_plain_and_references_are_whole() -> None:
    assert len(NAMES) > 400
    for name, image in NAMES.items():
        assert name == image.name
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]+", name)
        parsed = reference.parse(image.reference)
        assert parsed.tag
        assert parsed.short == image.reference or image.recipe
        assert image.title
        assert image.needs.cuda
        assert image.needs.driver
        assert all(image.versions.values())


@pytest.mark.parametrize(
    ("name", "is_reference"),
    [
        ("pytorch-24.08", "nvcr.io/nvidia/pytorch:24.08-py3"),
        ("cuda-12.6-devel-ubuntu22.04", "nvidia/cuda:12.6.3-devel-ubuntu22.04"),
        ("cuda-12.6.1-devel-ubuntu22.04", "nvidia/cuda:12.6.1-devel-ubuntu22.04"),
        ("cuda-12.6-cudnn-runtime-ubuntu24.04", "nvidia/cuda:12.6.3-cudnn-runtime-ubuntu24.04"),
        ("cuda-12.3-cudnn-devel-ubuntu22.04", "nvidia/cuda:12.3.2-cudnn9-devel-ubuntu22.04"),
        ("cuda-11.8-cudnn-devel-ubuntu20.04", "nvidia/cuda:11.8.0-cudnn8-devel-ubuntu20.04"),
        ("cuda-12.9-base-ubuntu24.04", "nvidia/cuda:12.9.1-base-ubuntu24.04"),
        ("torch-2.9.0-cuda12.8-cudnn9-runtime", "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime"),
        ("cupy", "gpudoctor/cupy:latest"),
        ("nvcr.io/nvidia/pytorch:26.12-py3", "nvcr.io/nvidia/pytorch:26.12-py3"),
        ("debian:12", "debian:12"),
        ("team/image", "team/image"),
        (f"a@sha256:{'0' * 64}", f"a@sha256:{'0' * 64}"),
    ],
)
def test_resolve(name: str, is_reference: str) -> None:
    found = resolve(name)
    assert (found.name, found.reference) == (name, is_reference)


def test_a_reference_that_the_table_has_comes_with_what_is_known_of_it() -> None:
    for text in ("nvcr.io/nvidia/pytorch:24.08-py3", "mirror.example:5000/ngc/nvidia/pytorch:24.08-py3"):
        found = resolve(text)
        assert (found.reference, found.versions["cuda"]) == (text, "12.6.0.022")
        assert found.needs == NAMES["pytorch-24.08"].needs
    assert resolve("someone/pytorch:24.08-py3") == Image("someone/pytorch:24.08-py3", "someone/pytorch:24.08-py3")


def test_the_repositories_of_the_table_are_named_without_it() -> None:
    assert {reference.parse(row.reference).repository for row in released.images()} == {*released.REPOSITORIES}


@pytest.mark.parametrize(
    ("prefix", "is_reference"),
    [
        ("mirror.example", "mirror.example/nvidia/pytorch:24.08-py3"),
        ("localhost:5005/ngc/", "localhost:5005/ngc/nvidia/pytorch:24.08-py3"),
    ],
)
def test_a_registry_takes_the_place_of_another(prefix: str, is_reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("pytorch-24.08", prefix).reference == is_reference
    monkeypatch.setenv("GPUDOCTOR_REGISTRY", prefix)
    assert resolve("pytorch-24.08").reference == is_reference
    assert resolve("cupy").reference == "gpudoctor/cupy:latest"
    assert resolve("debian:12").reference == "debian:12"


@pytest.mark.parametrize("prefix", ["https://mirror.example", "bad host", "mirror.example:port"])
def test_a_registry_that_is_none(prefix: str) -> None:
    with pytest.raises(UserError, match="the registry must be a host"):
        resolve("pytorch-24.08", prefix)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pytorch-26.12", "the table, which ends at 26.09: use the full reference, nvcr.io/nvidia/pytorch:26.12-py3"),
        ("pytorch-21.06", "the table, which begins at 22.01: use the full reference, nvcr.io/nvidia/pytorch:21.06-py3"),
        ("pytorch-25.07", "pytorch-25.07 does not exist; the nearest are pytorch-25.06 and pytorch-25.08"),
        ("pytorch-24.13", "did you mean pytorch-24."),
        ("pytorch-24.8", "did you mean pytorch-24.08"),
        ("24.08", "did you mean pytorch-24.08"),
        ("pytorch", "pytorch is a family of images: name one of them, such as pytorch-26.09"),
        ("cuda-12.6-devel", "did you mean cuda-12.6-devel-ubuntu24.04"),
        ("torch-2.6", "did you mean torch-2.6.0-cuda12.6-cudnn9-devel"),
        ("cuda-12.6.9-devel-ubuntu22.04", "cuda-12.6-devel-ubuntu22.04"),
        ("cup", "did you mean cupy"),
        ("qqq", "unknown image 'qqq' (list the names: gpudoctor images list"),
        ("", "unknown image ''"),
        ("UPPER/Case:x", "must be in lower case"),
    ],
)
def test_no_name_is_guessed(name: str, words: str) -> None:
    with pytest.raises(UserError) as failure:
        resolve(name)
    assert words in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("words", [("run",), ("check",), ("images",), ("images", "build")], ids=" ".join)
def test_every_example_of_the_help_names_an_image(words: tuple[str, ...]) -> None:
    said = run(*words, "--help").stdout
    named = re.findall(r"gpudoctor .*(?:--image|images (?:show|pull|build)) ([^\sA-Z]+)(?= |$)", said, re.M)
    assert named
    assert all(resolve(name) for name in named)


def test_folders_are_families_of_the_table_or_recipes_with_a_dockerfile() -> None:
    folders = {path.parent.name: path.parent for path in shipped("images").glob("*/image.yaml")}
    recipes = {name: image for name, image in NAMES.items() if image.recipe}
    assert set(folders) == set(catalog.families()) | set(recipes)
    assert set(catalog.families()) == {row.family for row in released.images()}
    for name, image in recipes.items():
        assert image.recipe == folders[name]
        assert (folders[name] / "Dockerfile").is_file()


def test_a_recipe_says_the_base_that_its_dockerfile_has() -> None:
    for name in (name for name, image in NAMES.items() if image.recipe):
        folder = shipped("images") / name
        recipe = msgspec.yaml.decode((folder / "image.yaml").read_bytes(), type=catalog.Recipe)
        assert f"ARG BASE={recipe.base}\n" in (folder / "Dockerfile").read_text()
        assert NAMES[name].versions["ubuntu"]


def gpudoctor(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/nowhere", "LANG": "C.UTF-8", **more}
    return limited.gpudoctor("images", *arguments, env=environment)


def test_list_in_a_pipe_has_a_line_for_every_image() -> None:
    lines = listing.as_lines(NAMES.values(), ThisMachine("550.54.15", (H100,))).splitlines()
    assert len(lines) == len(NAMES) + 1
    assert lines[0].split()[0] == "NAME"
    line = next(line for line in lines if line.startswith("pytorch-24.08 "))
    assert line.split()[-1] == "nvcr.io/nvidia/pytorch:24.08-py3"
    assert "minor version" in line
    assert all(image.reference in line for image, line in zip(NAMES.values(), lines[1:], strict=True))


@pytest.mark.parametrize(
    "machine",
    [ThisMachine(), ThisMachine("535.183.06", (H100,) * 8), ThisMachine("470.1", (card(0x2204),)), ThisMachine(is_wsl=True)],
)
def test_list_fits_a_terminal_of_80_columns(machine: ThisMachine) -> None:
    everything = [*NAMES.values()]
    for is_all in (False, True):
        text = listing.as_groups(everything, machine, is_all)
        assert max(map(len, text.splitlines())) <= 80
    assert len(listing.as_groups(everything, machine, False).splitlines()) <= 45


def test_list_shows_the_newest_and_says_how_many_more() -> None:
    text = listing.as_groups([*NAMES.values()], ThisMachine(), False)
    shown = sum(line.startswith("  ") and "NAME" not in line for line in text.splitlines())
    assert text.startswith("No NVIDIA driver is loaded on this machine\n")
    assert f"\n{len(NAMES) - shown} more: gpudoctor images list --all" in text
    assert "  pytorch-26.09 " in text
    assert "pytorch-24.08" not in text
    assert "no driver here" in text
    assert "more:" not in listing.as_groups([*NAMES.values()], ThisMachine(), True)


def test_list_shows_what_runs_here_though_it_is_old() -> None:
    text = listing.as_groups([*NAMES.values()], ThisMachine("535.183.06", (card(0x2684),)), False)
    assert text.startswith("Driver 535.183.06 (CUDA 12.2), 1 × NVIDIA GeForce RTX 4090\n")
    assert re.search(r"pytorch-23\.10 .* yes\n", text)
    assert re.search(r"pytorch-25\.06 .* minor version\n", text)
    assert re.search(r"pytorch-26\.09 .* no: driver < 580\n", text)


def test_list_says_when_docker_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://gpu01")
    assert "not about the one in DOCKER_HOST" in listing.as_groups([NAMES["cupy"]], ThisMachine(), True)
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    assert "DOCKER_HOST" not in listing.as_groups([NAMES["cupy"]], ThisMachine(), True)


def test_list_filters() -> None:
    done = run("images", "list", "24.0")
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert done.exit_code == 0
    assert {f"pytorch-24.0{month}" for month in range(1, 10)} <= set(names)
    assert all("24.0" in name for name in names)
    done = run("images", "list", "no such thing")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "Error: no image has 'no such thing' in its name, reference or title\n"


def test_list_as_json() -> None:
    rows = json.loads(run("images", "list", "--format", "json", "--registry", "mirror.example").stdout)
    assert [row["name"] for row in rows] == [*NAMES]
    row = next(row for row in rows if row["name"] == "pytorch-24.08")
    assert row["reference"] == "mirror.example/nvidia/pytorch:24.08-py3"
    assert (row["driver"], row["least_driver"]) == ("560.28.03", "525.60.13")
    assert row["versions"]["nccl"] == "2.22.3"
    assert "nccl" in row["unverified"]
    assert row["runs"] in ("yes", "minor", "compat", "no", "unknown")


@pytest.mark.slow
def test_list_asks_no_engine_and_no_network(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    done = gpudoctor("list", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 0
    assert not (tmp_path / "asked").exists()


@pytest.mark.slow
def test_list_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gpudoctor", "images", "list"], capture_output=True, text=True
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "gpudoctor.containers.images.preflight" in imported
    assert imported & {"docker", "requests", "pynvml", "rich", "gpudoctor.doctor", "gpudoctor.facts"} == set()


def shown(image: Image, **more: object) -> str:
    machine = ThisMachine("535.183.06", (H100,))
    facts = {
        "needs": image.needs,
        "machine": machine,
        "verdict": preflight.verdict(image.needs, machine),
        "on_disk": False,
        "disk_words": "no (docker)",
        **more,
    }
    return show.as_text(about.Known(image, **facts))  # type: ignore[arg-type]


def test_show() -> None:
    text = shown(NAMES["pytorch-24.08"], pinned="sha256:1234 since 2026-11-21 (gpudoctor.lock)")
    flat = " ".join(text.split())
    assert "pytorch-24.08: NGC PyTorch 24.08 runs here yes: with forward compatibility" in flat
    assert "CUDA 12.6.0.022, PyTorch 2.5.0a0+872d972e41, Python 3.10" in flat
    assert "NCCL 2" not in flat
    assert "unverified" not in flat
    assert "driver 560.28.03 or newer 525.60.13 or newer with minor-version compatibility" in flat
    assert "R470, R525, R535, R545 with forward compatibility" in flat
    assert "GPUs compute capability up to 9.0" in flat
    assert "on disk no (docker)" in flat
    assert "pinned sha256:1234 since 2026-11-21 (gpudoctor.lock)" in flat
    assert "names pytorch-YY.MM" in flat
    assert "sources https://docs.nvidia.com/" in flat


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(9_870_000_000, "9.9 GB"), (150_000_000, "0.1 GB"), (2_500_000, "2.5 MB"), (4_000, "4.0 kB")]
)
def test_sizes_have_the_unit_that_fits(size_bytes: int, text: str) -> None:
    assert f"size {text} to pull" in " ".join(shown(NAMES["cupy"], registry_bytes=size_bytes).split())


@pytest.mark.docker
def test_an_image_that_is_small_is_not_said_to_be_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath + ":/usr/local/bin:/usr/sbin")
    with own_registry.tiny_images("gpudoctor-test-known/tiny") as names:
        words = about.on_disk(names[0])[1]
    assert not re.match(r"yes, 0\.0 [GM]B", words)


@pytest.mark.parametrize("name", ["pytorch-26.09", "cuda-12.6-base-ubuntu22.04", "torch-2.10.0-cuda12.8-cudnn9-devel", "cupy"])
def test_show_is_80_columns_wide(name: str) -> None:
    for line in shown(NAMES[name]).splitlines():
        assert len(line) <= 80 or len(line.split()) <= 2  # an address or a digest cannot be broken


def test_nothing_is_shown_that_is_not_verified() -> None:
    for image in NAMES.values():
        text = shown(image)
        assert "unverified" not in text
        assert "memory)" not in text


@pytest.mark.parametrize(("driver", "device"), [("580.95.05", 0x2330), ("570.86.10", 0x2B85), ("535.183.06", 0x2684)])
def test_our_own_image_runs_on_any_gpu(driver: str, device: int) -> None:
    image = NAMES["doctor"]
    assert preflight.verdict(image.needs, ThisMachine(driver, (card(device),))).runs == "yes"
    assert "GPUs any that the driver supports" in " ".join(shown(image).split())


def test_show_of_what_is_not_known() -> None:
    text = shown(Image("debian:12", "debian:12"))
    assert text == (
        "debian:12\n  runs here   unknown: the image does not state its CUDA version\n"
        "  reference   debian:12\n  on disk     no (docker)\n"
    )


def test_show_as_json() -> None:
    found = json.loads(run("images", "show", "pytorch-24.08", "--format", "json").stdout)
    assert found["needs"]["cuda"] == [12, 6]
    assert found["on_disk"] is None
    assert found["least_driver"] == "525.60.13"
    assert found["pinned"] is None


def test_show_without_an_engine() -> None:
    done = run("images", "show", "pytorch-24.08")
    assert done.exit_code == 0
    assert "on disk     unknown: neither docker nor podman is installed" in done.stdout


def test_show_says_what_is_pinned(tmp_path: Path) -> None:
    digest = f"sha256:{'ab' * 32}"
    (tmp_path / "gpudoctor.lock").write_text(
        "images:\n  pytorch-24.08:\n    reference: nvcr.io/nvidia/pytorch:24.08-py3\n"
        f"    digest: {digest}\n    date: '2026-11-21'\n"
    )
    assert digest in run("images", "show", "pytorch-24.08").stdout
    (tmp_path / "gpudoctor.lock").write_text("nonsense")
    assert "is not a lock file" in run("images", "show", "pytorch-24.08").stdout


def test_show_does_not_wait_for_an_engine_that_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(about, "SECONDS", 0.2)
    found, words = about.on_disk("debian:12")
    assert found is None
    assert words.startswith("unknown: `docker")


@pytest.mark.docker
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("DOCKER_HOST", "tcp://no-such-host.invalid:2375", "the docker daemon does not answer (DOCKER_HOST is set to "),
        ("DOCKER_HOST", "tcp://127.0.0.1:1", "the docker daemon does not answer (DOCKER_HOST is set to "),
        ("GPUDOCTOR_ENGINE", "ls", "the engine must be docker or podman, not 'ls'"),
    ],
)
def test_an_engine_that_does_not_answer_knows_of_no_image(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath + ":/usr/local/bin:/usr/sbin")
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(about, "SECONDS", 30.0)  # a look-up of a name can take longer than a user would wait
    found, words = about.on_disk("debian:12")
    assert found is None
    assert words.startswith(f"unknown: {why}")


def test_show_of_an_unknown_name_is_one_line() -> None:
    done = run("images", "show", "pytorch-24.8")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.docker
def test_show_asks_the_engine_for_what_no_table_knows(bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath + ":/usr/local/bin:/usr/sbin")
    monkeypatch.setattr(about, "SECONDS", 30.0)
    found, words = about.on_disk("gpudoctor-no-such-image:none")
    assert (found, words) == ({}, "no (docker)")
    there, words = about.on_disk(bare)
    assert there
    assert there["Id"].startswith("sha256:")
    assert re.match(r"yes, \d+\.\d [GMk]B \(docker, sha256:", words)


def test_the_needs_of_a_recipe_are_its_own_and_not_its_configuration_s(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"Id": "sha256:1", "Config": {"Env": ["CUDA_VERSION=12.9.1"]}, "Architecture": "amd64"}
    monkeypatch.setattr(about, "on_disk", lambda reference: (config, "yes"))
    assert about.look(NAMES["doctor"]).needs == NAMES["doctor"].needs
    assert about.look(resolve("pytorch-24.08")).needs.cuda == (12, 9)


def test_help_of_the_group_needs_no_command() -> None:
    done = gpudoctor("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", done.stdout, re.M)
    code = "import sys, gpudoctor.cli.images as i; i.command.main(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"yaml", "msgspec", "requests", "docker", "gpudoctor.knowledge"} & set(done.stdout.split())


def test_a_command_that_is_none() -> None:
    done = run("images", "shw")
    assert done.exit_code == 2
    assert "Did you mean 'show'?" in done.stderr


@pytest.mark.parametrize("name", ["list", "show"])
def test_completion_offers_names(name: str) -> None:
    shell = ShellComplete(main, {}, "gpudoctor", "_GPUDOCTOR_COMPLETE")
    offered = [item.value for item in shell.get_completions(["images", name], "pytorch-24.1")]
    assert offered == ["pytorch-24.12", "pytorch-24.11", "pytorch-24.10"]


def test_every_verdict_fits_its_column() -> None:
    machines = (
        ThisMachine(),
        ThisMachine("535.183.06", (card(0x2684),)),
        ThisMachine("570.86.10", (card(0x2B85),)),
        ThisMachine("470.57.02", (H100,)),
    )
    verdicts: list[Verdict] = [preflight.verdict(image.needs, machine) for image in NAMES.values() for machine in machines]
    assert all(len(found.brief) <= 18 and found.why for found in verdicts)
    assert {found.runs for found in verdicts} == {"yes", "minor", "compat", "no", "unknown"}
    assert command.name == "command"
