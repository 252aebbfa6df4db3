"""Each problem names the commands or files in which a person sees it."""

from __future__ import annotations

import machine
from each import each

from gpudoctor import doctor
from gpudoctor.report import findings, formats, terminal

PLACES = {
    "nvlink-link-down": ("nvidia-smi nvlink -s",),
    "power-limit-lowered": ("nvidia-smi -q -d POWER",),
    "gpu-too-hot": ("nvidia-smi -q -d PERFORMANCE,TEMPERATURE",),
    "module-blacklisted": ("/lib/modprobe.d/blacklist-nvidia.conf",),
    "proxmox-vfio-ids-left-over": ("lspci -nnk",),
    "xid-74-nvlink-error": ("journalctl -k",),
    "dkms-build-failed": ("/var/lib/dkms/nvidia/580.159.04/build/make.log",),
    "docker28-no-cgroups-with-toolkit-118": ("/etc/nvidia-container-runtime/config.toml",),
    "one-cpu-in-a-slurm-step": ("taskset -p $$",),
    "all-reduce-crawls": ("gpudoctor check --only all-reduce",),
    "hang-rank-loader": ("gpudoctor hang",),
}


@each(("case", "places"), PLACES.items(), ids=lambda row: row[0])
def test_the_place_shows_the_values_of_the_finding(case: str, places: tuple[str, ...]) -> None:
    first = doctor.judge_at_its_level(machine.load(case)).diagnosis[0]
    assert first.seen_in[: len(places)] == places


def test_gpus_with_the_same_problem_name_a_place_once_in_every_format() -> None:
    report = doctor.judge_at_its_level(machine.load("module-blacklisted"))
    (group,) = findings.groups(report.diagnosis)
    place = "/lib/modprobe.d/blacklist-nvidia.conf"
    assert findings.places((*group, *group)) == place
    assert f"Seen in: {place}" in terminal.render(report, verbose=True)
    assert f"<code>{place}</code>" in formats.render("html", report)
    assert f"- Seen in: `{place}`" in formats.render("markdown", report)
