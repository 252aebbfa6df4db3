"""The container that was to be started came up, and the GPU that was asked for arrived in it.

What it means
Between a GPU that works and a container that has it stands a chain: the docker command's context, the daemon, its
daemon.json, the runtime, the toolkit's hook and its mode, the CDI specification, cgroups and SELinux, the image's own demands.
The engine names only the place where it tore, in words that fit several faults.

How it is judged
By the engine's text, never by its exit code. What the text leaves open is decided by this host's facts: the first link of the
chain that is broken. Where they say nothing of the daemon (another machine, Docker Desktop) the text alone decides. Of a
container that started: whether /dev/nvidiactl or /dev/dxg is in it, since some engines accept a request and give nothing.

Known exceptions
Only gpudoctor's own starts are judged (gpudoctor run, check --image, check --container). Failures that have nothing to do with
GPUs are named as what they are, also on a host whose GPU setup is broken.

References
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
https://github.com/moby/moby/blob/master/daemon/errors.go
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.container_start import Start
from gpudoctor.judging.containers import failed_start
from gpudoctor.judging.containers.access import no_devices, not_arrived
from gpudoctor.judging.containers.causes import DRIVER_CHECKS, Case, driver
from gpudoctor.model import Check, Finding, Skip

DEVICES = ("/dev/nvidiactl", "/dev/dxg")


def judge(facts: Facts) -> Iterator[Finding]:
    start = facts.engines.start
    if start is None:
        raise Skip("no container was started")
    if not start.started:
        yield from failed_start.judge(facts, start)
    elif start.asked_for_gpu and not arrived(facts):
        yield without_gpu(facts, start)


def arrived(facts: Facts) -> bool:
    return any(path in facts.devices.nodes for path in DEVICES)


def without_gpu(facts: Facts, start: Start) -> Finding:
    """As container-gpu-access says it; where it finds no driver to compare with, the driver's own checks name the cause."""
    try:
        return no_devices(facts, facts.container.engine or "unknown")
    except Skip:
        finding = not_arrived(start, None)
        cause = driver(Case(facts, start))
        return replace(finding, because=cause.because) if cause else finding


def summary(facts: Facts) -> str:
    start = facts.engines.start
    if start is None or not start.asked_for_gpu:
        return "the container started; no GPU was asked for"
    return f"{start.name} started the container, with its GPU ({start.mode})"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=failed_start.PROBLEMS,
    after=("container-cgroups", *DRIVER_CHECKS),
)
