"""Pages that quote messages tell of no machine; reports of a fault do, however well they are written."""

from __future__ import annotations

from gpudoctor import catalog, doctor, evidence
from gpudoctor.model import Report, Status
from gpudoctor.report import explained

README = """\
# A library

## Installation

- Install the driver, see [the guide](https://docs.nvidia.com/cuda/)
- Install the package with `pip install library`

## Troubleshooting

### Common faults

- `CUDA driver version is insufficient for CUDA runtime version` means that the driver is old.
- `RuntimeError: CUDA error: no kernel image is available for execution on the device`: build it for your GPU.
- **CUDA out of memory**: take a smaller batch.

```
$ docker run --gpus all image
docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].
```
"""
REPORT = """\
### Describe the bug

- I start the training as in the README
- It fails at once

### Environment

- OS: Ubuntu 22.04
- GPU: A100
- Driver: 470

### Steps to reproduce

* Run train.py

RuntimeError: CUDA driver version is insufficient for CUDA runtime version
"""


def judged(text: str) -> Report:
    return doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick"))


def test_what_documentation_quotes_did_not_occur() -> None:
    report = judged(README)
    assert report.evidence[0].kinds == ("documentation",)
    assert not report.diagnosis
    assert "quoted" in explained.render(report)


def test_a_report_of_a_fault_is_no_documentation() -> None:
    report = judged(REPORT)
    assert [entry.problem for entry in report.diagnosis] == ["driver-too-old-for-runtime"]
    assert report.status is Status.FAIL


def test_a_long_page_with_the_same_headings_again_and_again_is_documentation() -> None:
    one = ".. collapse:: {}\n\n   **Problem**\n\n" + "   Some words about it, and about what else there is.\n\n" * 8
    page = "".join(map(one.format, ("libcuda.so.1: cannot open shared object file", "Disk quota exceeded", *"abcdefgh" * 4)))
    assert not judged(page).diagnosis


def test_a_list_of_changes_is_documentation() -> None:
    changes = "".join(f"2024-01-{day:02}  A Name  <a@example.org>\n\n\t* file.c: Fix crash.\n" for day in range(1, 20))
    report = judged(changes + '\t* log.c: Say "OSError: [Errno 24] Too many open files" once.\n')
    assert report.status is not Status.FAIL
