"""Programs can use the host's memory: it is not reserved, or held by files in memory or by the kernel.

What it means
Memory that is reserved for huge pages serves only programs that ask for huge pages. Files in /dev/shm and in other memory file
systems stay until they are deleted, and the cache of ZFS is not part of the page cache. With little memory left, the kernel kills
programs that load data or models.

How it is judged
Warns if less than a tenth of the memory is available, or the kernel killed programs for lack of memory since the last day, while
at least a quarter is reserved for huge pages that no program uses. Warns if less than a twentieth is available while files in
memory, or parts of the kernel that no list names, hold at least half. Half of the memory in unused huge pages is a note, and so
are kills without such a cause.

Known exceptions
Huge pages in use or promised to a program are not counted. A container's own limit is judged by cgroup-limits; kills at such a
limit are not counted. A container shows the memory of its host.

References
https://docs.kernel.org/admin-guide/mm/hugetlbpage.html
https://docs.kernel.org/filesystems/tmpfs.html
https://openzfs.github.io/openzfs-docs/Performance%20and%20Tuning/Module%20Parameters.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import ASK_OWNER, look
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

LITTLE, VERY_LITTLE = 0.1, 0.05
RESERVED, MOST = 0.25, 0.5
RECENT_SECONDS = 24 * 3600
HUGE_PAGES = "https://docs.kernel.org/admin-guide/mm/hugetlbpage.html"
KILL = re.compile(r"Out of memory: Killed process \d+ \((?P<name>[^)]*)\).*?anon-rss:(?P<kib>\d+)kB")
# What /proc/meminfo counts and programs, caches and the kernel's known parts hold.
COUNTED = ("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "Slab", "PageTables", "KernelStack", "Percpu", "Hugetlb")
FREE = "free -h; grep -E 'MemAvailable|^Shmem:|HugePages|Hugetlb' /proc/meminfo"
OWN = ("host", "wsl2")

UNUSED_HUGE_PAGES = Problem(
    id="huge-pages-reserved-unused",
    title="Memory is reserved for huge pages that no program uses",
    why="The kernel keeps reserved huge pages for programs that ask for them, such as DPDK or virtual machines. Nothing else can "
    "use this memory, so programs run out of memory although no program holds it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Give the unused huge pages back until the next boot",
            "sudo sysctl vm.nr_hugepages=<pages_in_use>",
            verify=FREE,
            undo="sudo sysctl vm.nr_hugepages=<pages>",
            on=OWN,
            kind="set",
            needs=("root",),
        ),
        look(
            "Find where they are reserved, and remove that: sysctl files, the kernel's command line, a service",
            "grep -rs nr_hugepages /etc/sysctl.conf /etc/sysctl.d /run/sysctl.d /usr/lib/sysctl.d /etc/tmpfiles.d; "
            "grep -o 'hugepage[^ ]*' /proc/cmdline; grep -rlsE 'hugeadm|nr_hugepages' /etc/systemd/system /etc/rc.local",
            on=OWN,
        ),
        ASK_OWNER,
    ),
    references=(HUGE_PAGES,),
)
IN_FILES = Problem(
    id="host-memory-held-by-files",
    title="Files in memory hold most of the host's memory",
    why="Files in /dev/shm and other tmpfs file systems, and shared memory segments, stay in memory until they are deleted, also "
    "when the program that made them has died.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look(
            "Find the file system and its largest files; delete those of programs that have ended",
            "df -h -t tmpfs; sudo du -xah /dev/shm /run /tmp 2>/dev/null | sort -h | tail -n 20; ipcs -m",
            verify=FREE,
            on=OWN,
            root=True,
        ),
        ASK_OWNER,
    ),
    references=("https://docs.kernel.org/filesystems/tmpfs.html",),
)
IN_KERNEL = Problem(
    id="host-memory-held-by-kernel",
    title="The kernel holds most of the host's memory",
    why="No program, cache or file in memory accounts for it. Usual holders are the ZFS cache (ARC), drivers with large buffers, "
    "and in a virtual machine the balloon with which the hypervisor takes memory back.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look(
            "Show the size of the ZFS cache and its limit, and whether a balloon is loaded",
            "grep -E '^(size|c_max) ' /proc/spl/kstat/zfs/arcstats; lsmod | grep -E 'balloon|vmw'; free -h",
            on=OWN,
        ),
        Fix(
            "If it is the ZFS cache: limit it, here to 16 GiB",
            "echo 17179869184 | sudo tee /sys/module/zfs/parameters/zfs_arc_max",
            verify=FREE,
            on=OWN,
            needs=("root",),
        ),
        ASK_OWNER,
    ),
    references=("https://openzfs.github.io/openzfs-docs/Performance%20and%20Tuning/Module%20Parameters.html",),
)
KILLED = Problem(
    id="programs-killed-out-of-memory",
    title="The kernel killed programs for lack of memory",
    why="The host's memory was used up, and the kernel ended the program that held most of it. Loading a model or data needs as "
    "much memory again as it has.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look(
            "Show what holds the memory, and what was killed", "free -h; sudo dmesg | grep -i 'out of memory'", on=OWN, root=True
        ),
        Fix("Use fewer data loader workers, or load the model in a format that is mapped into memory (safetensors)"),
    ),
    references=("https://docs.kernel.org/admin-guide/mm/concepts.html",),
)


class HugePages(NamedTuple):
    """Of the default size."""

    every: int
    unused: int
    mib: int

    @property
    def unused_mib(self) -> int:
        return self.unused * self.mib


def judge(facts: Facts) -> Iterator[Finding]:
    memory = facts.system.memory_mib
    if not memory.keys() >= {"MemTotal", "MemAvailable"}:
        raise Skip("/proc/meminfo does not show how much memory is available", Skip.UNSUPPORTED)
    total, available = memory["MemTotal"], memory["MemAvailable"]
    kills = known(lambda: recent_kills(facts), [])
    evidence = {"total_mib": total, "available_mib": available, "kills": len(kills)}
    words = f"{gib(available)} of {gib(total)} available{in_words(kills)}"
    pages = huge_pages(facts)
    if pages.unused_mib >= RESERVED * total and (available < LITTLE * total or kills):
        yield of_pages(facts, pages, words, evidence)
    elif available < VERY_LITTLE * total and memory.get("Shmem", 0) >= MOST * total:
        yield IN_FILES.found(f"files in memory hold {gib(memory['Shmem'])}; {words}", {**evidence, "files_mib": memory["Shmem"]})
    elif available < VERY_LITTLE * total and (hidden := not_counted(facts)) >= MOST * total:
        confidence = Confidence.CONFIRMED if "zfs" in known(lambda: facts.driver.loaded_modules, ()) else Confidence.LIKELY
        yield IN_KERNEL.found(
            f"{gib(hidden)} are held by the kernel; {words}", {**evidence, "kernel_mib": hidden}, confidence=confidence
        )
    elif pages.unused_mib >= MOST * total:
        yield of_pages(facts, pages, words, evidence).as_note
    elif kills:
        yield KILLED.found(words, evidence).as_note


def of_pages(facts: Facts, pages: HugePages, words: str, evidence: dict[str, int]) -> Finding:
    reserved = f"{gib(pages.unused_mib)} in {pages.unused:,} huge pages are reserved and unused"
    at_boot = re.findall(r"\bhugepages=\d+", known(lambda: facts.system.command_line, ""))
    reserved += f" (kernel command line: {at_boot[-1]})" if at_boot else ""
    found = {"pages": pages.every, "pages_in_use": pages.every - pages.unused, "unused_mib": pages.unused_mib}
    return UNUSED_HUGE_PAGES.found(f"{reserved}; {words}", {**evidence, **found})


def huge_pages(facts: Facts) -> HugePages:
    counts = facts.system.huge_pages
    every, free, promised = (counts.get(name, 0) for name in ("Total", "Free", "Rsvd"))
    return HugePages(every, max(0, free - promised), facts.system.memory_mib.get("Hugepagesize", 0))


def not_counted(facts: Facts) -> int:
    memory = facts.system.memory_mib
    if not memory.keys() >= {"MemFree", "Cached", "AnonPages", "Slab"}:
        raise Skip("/proc/meminfo does not show what holds the memory", Skip.UNSUPPORTED)
    return memory["MemTotal"] - sum(memory.get(name, 0) for name in COUNTED)


def recent_kills(facts: Facts) -> list[tuple[str, int]]:
    """The name and the memory in MiB of each program that the kernel killed on the last day, not at the limit of a cgroup."""
    now = facts.system.uptime_seconds
    lines = (line for line in facts.kernel_log.lines if line.seconds is not None and now - line.seconds < RECENT_SECONDS)
    found = (KILL.search(line.text) for line in lines)
    return [(match["name"], int(match["kib"]) // 1024) for match in found if match]


def in_words(kills: list[tuple[str, int]]) -> str:
    if not kills:
        return ""
    name, mib = kills[-1]
    return f"; {len(kills)} program{'s' * (len(kills) > 1)} killed out of memory, the last {name} with {gib(mib)}"


def gib(mib: int) -> str:
    return f"{mib / 1024:,.1f} GiB"


def summary(facts: Facts) -> str:
    memory = facts.system.memory_mib
    return f"{gib(memory['MemAvailable'])} of {gib(memory['MemTotal'])} available"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(UNUSED_HUGE_PAGES, IN_FILES, IN_KERNEL, KILLED),
    tags=("memory",),
)
