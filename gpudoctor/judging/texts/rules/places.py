"""Containers, pods and the system around them in a text: what is configured against what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.docker import daemon_json_of
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.counts import idle_huge_pages
from gpudoctor.judging.texts.rules.driver import said
from gpudoctor.judging.texts.rules.node_offers import is_registration_lost
from gpudoctor.judging.texts.rules.said import passages, with_ways_of_wsl
from gpudoctor.model import Confidence, Finding

FIRST_YEAR = 2015
FIRST_YEAR_OF_NOW = 2024  # where the clock is not synchronized
NEARLY_NOTHING = 256 << 20  # bytes
OF_DATABASES = re.compile(
    r"""
    /(?: postgres\w* | pgdata | mysql | mariadb | mongo\w* | redis | elasticsearch | kafka | influxdb | clickhouse )\b
    """,
    re.VERBOSE,
)
PSEUDO = re.compile(r"/(?:dev|proc|sys|snap|run|boot/efi)\b|/etc/(?:hosts|hostname|resolv)")
BUSY = 90  # percent
LITTLE = 0.02  # of memory, and of swap
_SLOW = re.compile(
    r"""
    (?i)
    \b(?: slow(?:er|ly)? | sluggish | throttl\w+ | laggy? )\b
    | \bonly\b[^\n]{0,20}\b(?:fps|it/s|tok(?:en)?s?/s|hz|ms)\b
    | \b(?:low|bad|poor|less|half)\b[^\n]{0,20}\b(?:fps|performance|throughput|clock|speed)
    """,
    re.VERBOSE,
)
MISSED = {
    "compute": re.compile(r"libcuda\.so"),
    "graphics": re.compile(
        r"""
        \b(?: llvmpipe | lavapipe | softpipe )\b
        | INCOMPATIBLE_DRIVER | failed\ to\ find\ GPUs\ with\ Vulkan | [Nn]o\ Vulkan
        | lib(?:GLX|EGL)_nvidia\S*\ *(?:: cannot | not\ found)
        | OPTIX_ERROR_LIBRARY_NOT_FOUND | libnvoptix\S*\ *(?:: cannot | not\ found)
        """,
        re.VERBOSE,
    ),
    "video": re.compile(
        r"""
        [Cc]annot\ load\ \S*(?: nvcuvid | nvidia-encode ) | NVENC\ library
        | libnv(?: cuvid | idia-encode )\S*(?:\ .*not\ found | :\ cannot\ open)
        | no\ element\ "(?: nv(?:h26[45]|av1|vp[89]|jpeg|mpeg\w*)(?:dec|enc) | nvautogpu\w+ | nvcuda\w+ )"
        | ^\s*libgstnvcodec\.so$
        """,
        re.MULTILINE | re.VERBOSE,
    ),
}
FAILED = re.compile(
    r"""
    (?i)
    no\ gpu | sees?\ no | without\ (?:a\ )?gpu | could\ not\ select\ device
    | (?: (?:do|does|did|could)(?:n['’]?t|\ not) | can(?:['’]?t|not|\ not) | unable\ to )\ (?:\w+\ )?
      (?: work | (?: see | find | detect | use | access )\b[^\n]{0,40}
        (?: gpu | cuda | nvidia | card | device | driver | it\b ) )
    | not\ (?:see|seen|find|found|detect|detected|work|working)
    """,
    re.VERBOSE,
)


def runtime_not_known(facts: Facts) -> Iterator[Finding]:
    """docker info lists neither NVIDIA's runtime nor a GPU, and the text says that a container gets none."""
    daemon = known(lambda: facts.engines.docker)
    if facts.engines.start or daemon is None or not daemon.runtimes or "nvidia" in daemon.runtimes or daemon.discovered_devices:
        return
    installed = any("nvidia-container-toolkit" in one.name for one in known(lambda: facts.driver.packages, ()))
    asked = any(word in "nvidia-container-toolkit" for word in facts.shown.system_packages)
    texts = (passage.text for text in facts.texts.all for passage in text.passages)
    if not (installed or asked or any(FAILED.search(text) for text in texts)):
        return
    words = f"docker info lists the runtimes {', '.join(daemon.runtimes)}, and no GPU through CDI"
    if asked and not installed:
        words += "; no package of the container toolkit is installed"
        yield facts.problems["container-toolkit-missing"].found(words, confidence=Confidence.LIKELY)
    else:
        evidence = {"runtimes": list(daemon.runtimes)}
        yield facts.problems["docker-runtime-not-configured"].found(words, evidence, confidence=Confidence.LIKELY)


def invalid_settings(facts: Facts) -> Iterator[Finding]:
    for path in ("/etc/docker/daemon.json", "~/.config/docker/daemon.json"):
        reply = facts.replies.starting_with(f"file:{path}").get(f"file:{path}")
        text = reply.value if reply and reply.status == "ok" else None
        _, error = daemon_json_of(text) if text else (None, None)
        if error:
            evidence = {"file": path.replace("~/", "", 1), "error": error}
            yield facts.problems["daemon-json-invalid"].found(f"{path}: {error}", evidence, confidence=Confidence.LIKELY)


def capabilities(facts: Facts) -> Iterator[Finding]:
    """NVIDIA_DRIVER_CAPABILITIES without the one whose libraries are missed."""
    value = known(lambda: facts.environment.get("NVIDIA_DRIVER_CAPABILITIES"))
    asked = set((value or "all").replace(" ", "").split(","))
    texts = [passage.text for text in facts.texts.all for passage in text.passages]
    for capability, missed in MISSED.items():
        blind = capability == "compute" and "False" in facts.shown.answers.values()
        if not asked & {"all", capability} and (blind or any(missed.search(text) for text in texts)):
            words = f"NVIDIA_DRIVER_CAPABILITIES is {value!r}: the engine does not mount the libraries of {capability}"
            evidence = {"NVIDIA_DRIVER_CAPABILITIES": value, "missing": capability}
            yield facts.problems["container-driver-capabilities-missing"].found(words, evidence)
            return


_OFFERS_GPUS = re.compile(r"(?m)^\s*nvidia\.com/gpu:\s+[1-9]")
_MISSES_GPUS = re.compile(
    r"""
    \b(?: insufficient | pending | unschedulable | missing | gone | lost | why | not\ (?:show|list|offer)\w* | no\ longer )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def node_without_gpus(facts: Facts) -> Iterator[Finding]:
    node = facts.shown.node
    words_of_text = "\n".join(passages(facts))
    if _OFFERS_GPUS.search(words_of_text) and not _MISSES_GPUS.search(words_of_text):  # a node without, beside one with GPUs
        return
    if node is not None and not any(node.values()) and said(facts, "nvidia.com/gpu"):
        words = "a node of the text offers no nvidia.com/gpu in its capacity: its device plugin does not run, or found no driver"
        found = facts.problems["k8s-device-plugin-no-nvml"].found(words, {"offered": dict(node)}, confidence=Confidence.LIKELY)
        yield replace(found, because="nvidia-uvm-missing")


def unhealthy_gpus(facts: Facts) -> Iterator[Finding]:
    """The device plugin takes back a GPU that it finds unhealthy: the node's capacity stays, what pods may have does not."""
    node = facts.shown.node or {}
    capacity, offered = node.get("capacity", 0), node.get("allocatable")
    if offered is not None and offered < capacity and not is_registration_lost(facts):
        words = f"the node has {capacity} GPUs, but offers only {offered} to pods: the device plugin found the others unhealthy"
        evidence = {"capacity": capacity, "allocatable": offered}
        yield facts.problems["k8s-gpu-unhealthy"].found(words, evidence, confidence=Confidence.LIKELY)


def full_memory(facts: Facts) -> Iterator[Finding]:
    """Hardly any memory is available, and no swap is left."""
    if is_memory_full(facts) and (memory := facts.shown.memory) and not any(idle_huge_pages(facts)):
        swap = ", and swap is full" if "swap_free" in memory else ", and there is no swap"
        words = f"hardly any of the host's memory is available{swap}: programs wait for memory"
        evidence = {"available": round(memory["available"], 3)}
        problem = with_ways_of_wsl(facts.problems["host-memory-exhausted"], facts)
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)


def is_slow(facts: Facts) -> bool:
    return any(_SLOW.search(passage.text) for text in facts.texts.all for passage in text.passages)


def complains(facts: Facts) -> bool:
    """The text is about work that suffers from it, and not an inventory."""
    return is_slow(facts) or any(map(_SUFFERS.search, passages(facts)))


_SUFFERS = re.compile(
    r"""
    \b(?: throttl\w+ | drops? | dropped | hang\w* | idle | low\ util\w* | starv\w+ | wait(?:s|ing)
    | half\ (?:the\ )?(?:speed|clock) | unstable | flapping | retransmi\w+ | limited | power\ brake | degrad\w+ | stutter\w* )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def low_power_mode(facts: Facts) -> Iterator[Finding]:
    """A mode with fewer watts is a choice, and the cause if the board is busy or the text says that it is slow."""
    mode = facts.shown.power_mode
    if re.search(r"\d+W", mode) and "MAXN" not in mode and (facts.shown.load_of_jetson > BUSY or is_slow(facts)):
        words = f"the power mode is {mode}, which limits the clocks and the number of CPUs, not MAXN"
        yield facts.problems["jetson-power-mode-low"].found(words, {"mode": mode}, confidence=Confidence.LIKELY)


def full_disks(facts: Facts) -> Iterator[Finding]:
    for point, disk in facts.shown.disks.items():
        if PSEUDO.match(point) or OF_DATABASES.search(point):
            continue
        if disk["size"] and disk["free"] < min(NEARLY_NOTHING, disk["size"] // 50):
            words = f"{point} has {disk['free'] >> 20} MiB free of {disk['size'] >> 20} MiB"
            yield facts.problems["disk-full"].found(words, {"point": point, "free_mib": disk["free"] >> 20})
            return


def no_inodes(facts: Facts) -> Iterator[Finding]:
    full = [point for point, free in facts.shown.free_inodes.items() if free == 0 and not PSEUDO.match(point)]
    if full:
        words = f"{', '.join(full)} has no free inode: no file can be created, although there is free space"
        yield facts.problems["disk-inodes-used-up"].found(words, {"point": full[0]})


def is_memory_full(facts: Facts) -> bool:
    memory = facts.shown.memory
    return memory is not None and memory["available"] < LITTLE and memory.get("swap_free", 0) < LITTLE


def wrong_date(facts: Facts) -> Iterator[Finding]:
    year, taken = facts.shown.year, int(facts.taken[:4] or 0)
    is_unset = any("System clock synchronized: no" in text for text in passages(facts))
    if year and not (FIRST_YEAR_OF_NOW if is_unset else FIRST_YEAR) <= year <= taken + 1:
        words = f"the clock of the machine shows the year {year}"
        yield facts.problems["system-clock-wrong"].found(words, {"year": year})


RULES = (
    runtime_not_known,
    invalid_settings,
    capabilities,
    node_without_gpus,
    unhealthy_gpus,
    full_memory,
    low_power_mode,
    full_disks,
    no_inodes,
    wrong_date,
)
