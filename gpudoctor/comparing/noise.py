"""Differences between any two machines, or two minutes of one, which explain nothing."""

from __future__ import annotations

import re

_QUESTIONS = re.compile(
    r"""
    probe:.* | quoted:.* | text:.*
    | file:/proc/( uptime | self/.* | \d+/.* | stat | loadavg | meminfo )
    | processes | nvml:processes.* | runtime-(file-times|processes)
    | chosen-python | identity | working-folder | tmp | shm | container-marks | library-owners
    | cuda:context\d+
    """,
    re.VERBOSE,
)
_PARTS = re.compile(
    r"""
    .*(
        uuid | serial | boardid | minornumber | moduleid | bus_?id | pciinfo
        | temperature | utilization | energy | fanspeed | powerusage | performancestate | pciethroughput
        | memoryinfo | bar1 | clockinfo | currentclocks(event|throttle)reasons
        | runningprocesses | fieldvalues | lastbbx | maps
        | seconds | timestamp | mtime | free_(bytes|files)
    ).*
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_noise(question: str, part: str) -> bool:
    return bool(_QUESTIONS.fullmatch(question) or _PARTS.fullmatch(part))


# Answers whose parts gpudoctor chooses: a missing part was not asked; a part that a GPU does not support has an error.
_OF_FIELDS = re.compile(
    r"""
    nvml(:gpu\d+)? | cuda | interpreter | limits | cgroup-limits | uname | torch | toolchain | wsl | container-start | processor
    """,
    re.VERBOSE,
)


def has_fields(question: str) -> bool:
    """Whether an older gpudoctor may have asked for fewer parts of this answer."""
    return bool(_OF_FIELDS.fullmatch(question))
