"""The virtual GPU has its licence.

What it means
In a virtual machine with a slice of a GPU (NVIDIA vGPU), the driver requires a licence. Without one it works for a while,
then lowers the GPU's speed more and more.

How it is judged
If NVML reports that this is a vGPU: whether any of its licensable features is licensed. The reason for a missing licence is
read from the licence client, the client token and the token's mode.

Known exceptions
GPUs that are passed through as a whole, and bare metal, need no licence.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

VERIFY = "nvidia-smi -q | grep -i 'license status'"
TOKENS = "/etc/nvidia/ClientConfigToken"
RESTART = "sudo systemctl restart nvidia-gridd"
READ_BY_ALL = 0o444
LOG = look(
    "Show why the client got no licence", "sudo journalctl -u nvidia-gridd -b --no-pager | tail -n 20", on=("host",), root=True
)
ASK = Fix("Ask the owner of the virtual machine: the licence client runs there", on=("container", "wsl2"))


def on_host(title: str, command: str) -> tuple[Fix, ...]:
    return (Fix(title, command, verify=VERIFY, on=("host",), kind="restart", needs=("root",)), LOG, ASK)


PUT = "Install the client configuration token from your licence server, then restart the client"
NO_TOKEN = on_host(PUT, f"sudo cp client_configuration_token_*.tok {TOKENS}/ && sudo chmod 744 {TOKENS}/*.tok && {RESTART}")
CLOSED_TOKEN = on_host("Make the token readable for the client, then restart it", f"sudo chmod 744 {TOKENS}/*.tok && {RESTART}")
NOT_RUNNING = on_host("Start the licence client", "sudo systemctl enable --now nvidia-gridd")
NO_ANSWER = on_host("Check that the licence server is reachable from here, then restart the client", RESTART)

UNLICENSED = Problem(
    id="vgpu-unlicensed-throttled",
    title="The virtual GPU has no licence: it is slow, and CUDA may be refused",
    why="The licence client did not get a licence from its server. After a grace period the driver slows the vGPU down, and may "
    "refuse to create CUDA contexts (error 46).",
    action=Action.FIX_CONFIG,
    fixes=CLOSED_TOKEN,
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), lambda gpu: judge_gpu(facts, gpu))


def judge_gpu(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    if gpu.virtualization_mode != "vgpu":
        raise Skip("the GPU is not a vGPU")
    licences = gpu.vgpu_licences
    if not licences:
        raise Skip(f"GPU {gpu.index}: NVML lists no licensable feature", Skip.UNSUPPORTED)
    if not any(licence.licensed for licence in licences):
        products = ", ".join(licence.product for licence in licences)
        reason, fixes = why(facts)
        words = f"GPU {gpu.index} ({products}) is not licensed" + (f": {reason}" if reason else "")
        yield replace(UNLICENSED, fixes=fixes).found(words, {"products": products}, gpu.index)


def why(facts: Facts) -> tuple[str, tuple[Fix, ...]]:
    """Why the client has no licence, as far as it is visible, and the fixes; a container uses its host's licence client."""
    if facts.container.engine or facts.system.wsl:
        return "", CLOSED_TOKEN
    client = known(lambda: facts.services.unit("nvidia-gridd"))
    if client and client.active != "active":
        return f"the licence client nvidia-gridd is {client.active}", NOT_RUNNING
    try:
        tokens, settings = facts.services.licence_tokens, facts.services.licence_configuration or {}
    except Skip:
        return "", CLOSED_TOKEN
    if not tokens and not settings.get("ServerAddress"):
        return f"{TOKENS} contains no client token", NO_TOKEN
    if not all(token.mode & READ_BY_ALL == READ_BY_ALL for token in tokens):
        return f"the token in {TOKENS} is not readable by all users", CLOSED_TOKEN
    return "", NO_ANSWER


def summary(facts: Facts) -> str:
    products = {licence.product for gpu in facts.nvml.reachable.values() for licence in gpu.vgpu_licences if licence.licensed}
    return f"licensed: {', '.join(sorted(products))}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(UNLICENSED,),
    needs=("nvml",),
    explained_by=("cuda-init",),
)
