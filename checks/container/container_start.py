"""The container started, and it has the GPU that was requested.

What it means
A container gets a working GPU through a chain of parts: the docker command's context, the daemon, its daemon.json, the runtime,
the toolkit's hook and its mode, the CDI specification, cgroups, SELinux, and the image's own requirements. The engine reports
only where the chain broke, with a message that fits several faults.

How it is judged
By the engine's message, never by its exit code. If the message fits several faults, the facts about this host decide: the first
broken link of the chain is the cause. If the facts do not describe the daemon's host (another machine, Docker Desktop), the
message alone decides. A container that started must contain /dev/nvidiactl or /dev/dxg, because some engines accept a request
for a GPU and provide none.

Known exceptions
Only containers that gpudoctor started are judged (gpudoctor run, check --image, check --container). Failures unrelated to GPUs
are reported as such, even on a host whose GPU setup is broken.

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
    """The finding of container-gpu-access; if no driver is loaded, the finding that the driver's checks explain."""
    try:
        return no_devices(facts, facts.container.engine or "unknown")
    except Skip:
        finding = not_arrived(start, None)
        cause = driver(Case(facts, start))
        return replace(finding, because=cause.because) if cause else finding


def summary(facts: Facts) -> str:
    start = facts.engines.start
    if start is None or not start.asked_for_gpu:
        return "the container started; no GPU was requested"
    return f"{start.name} started the container with its GPU ({start.mode})"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=failed_start.PROBLEMS,
    after=("container-cgroups", *DRIVER_CHECKS),
    tags=("docker",),
)
