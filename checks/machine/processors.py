"""All processors of the machine are used, at their full clock.

What it means
GPU programs need processors that are fast when a kernel is launched or a batch is loaded. A governor that keeps the lowest
clock, or processors that are switched off, slow them down on every GPU.

How it is judged
Reads the lists of processors, the frequency driver, the governor and the energy preference in /sys/devices/system/cpu. It warns
if the governor is powersave with a driver for which that means the lowest clock (acpi-cpufreq, cppc_cpufreq, intel_cpufreq). An
energy preference of power, and processors that are offline, are notes.

Known exceptions
With intel_pstate and amd-pstate-epp, powersave is the usual governor and raises the clock under load. In most virtual machines
the hypervisor decides. Processors can be offline on purpose, such as the second thread of each core.

References
https://docs.kernel.org/admin-guide/pm/cpufreq.html
https://docs.kernel.org/admin-guide/pm/intel_pstate.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import GOVERNOR
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

LOWEST_CLOCK = ("acpi-cpufreq", "cppc_cpufreq", "intel_cpufreq")
KERNEL = "https://docs.kernel.org/admin-guide/pm/cpufreq.html"
PERFORMANCE = Fix(
    "Set the governor performance until the next boot",
    "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    verify="cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor | sort | uniq -c",
    kind="set",
    needs=("root",),
    on=("host",),
    undo="echo powersave | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
)
SAVES = Problem(
    id="cpu-governor-saves-power",
    title="The processors are kept at their lowest clock",
    why="With this driver, powersave means the lowest clock: launches, data loading and Python get several times slower.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(PERFORMANCE, GOVERNOR, Fix("Ask the owner of the host: a container cannot set the governor", on=("container",))),
    references=(KERNEL,),
)
PREFERENCE = Problem(
    id="cpu-prefers-to-save-energy",
    title="The processors prefer to save energy",
    why="With the energy preference power, the clock rises late and less far, which short work such as launches notices.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        Fix(
            "Set the energy preference balance_performance until the next boot",
            "echo balance_performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
            verify="cat /sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference | sort | uniq -c",
            kind="set",
            needs=("root",),
            on=("host",),
            undo="echo power | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
        ),
    ),
    references=("https://docs.kernel.org/admin-guide/pm/intel_pstate.html",),
)
OFFLINE = Problem(
    id="cpus-offline",
    title="Some processors of the machine are offline",
    why="They were switched off by hand, by a service or by an error. Programs have fewer processors than the machine has.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        Fix("Show which are offline", "cat /sys/devices/system/cpu/offline", kind="read"),
        Fix(
            "Switch one on: repeat it for each number",
            "echo 1 | sudo tee /sys/devices/system/cpu/cpu<last>/online",
            verify="cat /sys/devices/system/cpu/offline",
            kind="set",
            needs=("root",),
            on=("host",),
        ),
    ),
    references=("https://docs.kernel.org/core-api/cpu_hotplug.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    offline = facts.inventory.offline_cpus
    governors: dict[str, int] = known(lambda: facts.inventory.governors, {})
    preferences: dict[str, int] = known(lambda: facts.inventory.energy_preferences, {})
    drivers = known(lambda: facts.inventory.frequency_drivers, ())
    count = governors.get("powersave", 0)
    if count and any(driver in LOWEST_CLOCK for driver in drivers):
        words = f"the governor of {count} processors is powersave, which with {drivers[0]} is the lowest clock"
        yield SAVES.found(words, {"governors": governors, "driver": drivers[0]})
    elif count and preferences.get("power"):
        words = f"the energy preference of {preferences['power']} processors is power"
        yield PREFERENCE.found(words, {"preferences": preferences}).as_note
    if offline:
        words = f"{len(offline)} of {len(offline) + facts.inventory.online_cpus} processors are offline"
        yield OFFLINE.found(words, {"offline": list(offline), "last": offline[-1]}).as_note


def summary(facts: Facts) -> str:
    governors: dict[str, int] = known(lambda: facts.inventory.governors, {})
    return f"{facts.inventory.online_cpus} processors online" + (f", governor {', '.join(governors)}" if governors else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SAVES, PREFERENCE, OFFLINE),
    tags=("performance",),
)
