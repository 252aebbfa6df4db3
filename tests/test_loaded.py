"""Loaded libraries: read from the maps of a process, with their owners, next to what is installed."""

from __future__ import annotations

from pathlib import Path

import machine

from gpudoctor import doctor
from gpudoctor.facts import Facts
from gpudoctor.judging import loaded
from gpudoctor.report import formats
from gpudoctor.worker.measuring import mapped

MAPS = """\
7f00-7f01 r-xp 00000000 08:01 1  /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
7f01-7f02 r-xp 00000000 08:01 2  /venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9
7f02-7f03 r--p 00000000 08:01 2  /venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9
7f03-7f04 r-xp 00000000 08:01 3  /usr/lib/x86_64-linux-gnu/libc.so.6
7f04-7f05 r-xp 00000000 08:01 4  /opt/my libs/libnccl.so.2.28.9
7f05-7f06 rw-p 00000000 00:00 0
"""


def test_maps_are_read_once_per_file_and_only_gpu_libraries(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(MAPS)
    assert [Path(path).name for path in mapped.gpu_libraries(str(tmp_path / "maps"))] == [
        "libnccl.so.2.28.9",
        "libcuda.so.580.95.05",
        "libcudnn.so.9",
    ]
    assert mapped.gpu_libraries(str(tmp_path / "none")) == []


def test_each_has_its_owner_and_what_else_is_installed() -> None:
    rows = {row.soname: row for row in loaded.table(Facts(machine.load("torch-loads-cudnn-of-the-system")))}
    assert rows["libcudnn.so.9"].owner == "dpkg:libcudnn9-cuda-13"
    assert rows["libnccl.so.2"].owner.startswith("nvidia-nccl-cu13 2.")
    assert [other.version for other in rows["libnccl.so.2"].others] == ["2.28.3"]


def test_the_table_is_in_the_long_text_html_and_json_and_not_in_the_short_text() -> None:
    report = doctor.judge_at_its_level(machine.load("healthy-torch-with-its-own-libraries"))
    assert "site-packages/nvidia/cudnn/lib/libcudnn.so.9" in formats.render("json", report, None)
    assert "Loaded GPU libraries" in formats.render("html", report, None)
    assert "Loaded GPU libraries" not in formats.render("text", report, None)
    assert loaded.fact(Facts(machine.load("h200-x2-measured"))) == {}
