"""What differs between any two machines, or two minutes of one, and so explains nothing by itself."""

from __future__ import annotations

import re

_QUESTIONS = re.compile(
    r"probe:.*|processes|nvml:processes.*|file:/proc/(uptime|self/.*|\d+/.*|stat|loadavg|meminfo)|identity|tmp|shm|container-marks"
    r"|cuda:context\d+|runtime-(file-times|processes)|library-owners|quoted:.*|text:.*"
)
_PARTS = re.compile(
    r"(?i).*(uuid|serial|temperature|utilization|energy|fanspeed|memoryinfo|bar1|clockinfo|powerusage|seconds|maps|timestamp"
    r"|performancestate|pciethroughput|runningprocesses|fieldvalues|lastbbx|mtime|boardid|minornumber|moduleid|bus_?id|pciinfo"
    r"|currentclocks(event|throttle)reasons).*"
)


def is_noise(question: str, part: str) -> bool:
    return bool(_QUESTIONS.fullmatch(question) or _PARTS.fullmatch(part))


# Whose parts gpudoctor chooses: one that an answer has not was not asked; what a GPU cannot say has an error in its place.
_OF_FIELDS = re.compile(
    r"nvml(:gpu\d+)?|cuda|interpreter|limits|cgroup-limits|uname|torch|toolchain|wsl|container-start|processor"
)


def has_fields(question: str) -> bool:
    """Whether an older gpudoctor may have asked for fewer parts of this answer."""
    return bool(_OF_FIELDS.fullmatch(question))
