"""The virtual GPU has its licence.

What it means
In a virtual machine with a slice of a GPU (NVIDIA vGPU) the driver wants a licence. Without one it works for a while, then
holds the GPU's speed down more and more.

How it is judged
Where NVML says that this is a vGPU: whether any of its licensable features is licensed. Why it is not: the licence client, the
client token and its mode.

Known exceptions
GPUs passed through as a whole, and bare metal, need no licence.

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
LOG = look("See why the client got none", "sudo journalctl -u nvidia-gridd -b --no-pager | tail -n 20", on=("host",), root=True)
ASK = Fix("Ask the owner of the virtual machine: the licence client runs there", on=("container", "wsl2"))


def on_host(title: str, command: str) -> tuple[Fix, ...]:
    return (Fix(title, command, verify=VERIFY, on=("host",), kind="restart", needs=("root",)), LOG, ASK)


PUT = "Put the client configuration token that your licence server gives out in place, then start the client again"
NO_TOKEN = on_host(PUT, f"sudo cp client_configuration_token_*.tok {TOKENS}/ && sudo chmod 744 {TOKENS}/*.tok && {RESTART}")
CLOSED_TOKEN = on_host("Let the client read its token, then start it again", f"sudo chmod 744 {TOKENS}/*.tok && {RESTART}")
NOT_RUNNING = on_host("Start the licence client", "sudo systemctl enable --now nvidia-gridd")
NO_ANSWER = on_host("See whether the licence server can be reached from here, then start the client again", RESTART)

UNLICENSED = Problem(
    id="vgpu-unlicensed-throttled",
    title="The virtual GPU has no licence: it is slowed down, and CUDA may be refused",
    why="The licence client did not get a licence from its server. After a grace time the driver lowers the speed of the vGPU, "
    "and may give programs no context any more (error 46).",
    action=Action.FIX_CONFIG,
    fixes=CLOSED_TOKEN,
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), lambda gpu: judge_gpu(facts, gpu))


def judge_gpu(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    if gpu.virtualization_mode != "vgpu":
        raise Skip("there is no vGPU here")
    licences = gpu.vgpu_licences
    if not licences:
        raise Skip(f"GPU {gpu.index}: NVML names nothing that can be licensed", Skip.UNSUPPORTED)
    if not any(licence.licensed for licence in licences):
        products = ", ".join(licence.product for licence in licences)
        reason, fixes = why(facts)
        words = f"GPU {gpu.index} ({products}) is not licensed" + (f": {reason}" if reason else "")
        yield replace(UNLICENSED, fixes=fixes).found(words, {"products": products}, gpu.index)


def why(facts: Facts) -> tuple[str, tuple[Fix, ...]]:
    """What keeps the client from a licence, as far as it shows; the licence client of a container is its host's."""
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
        return f"no client token is in {TOKENS}", NO_TOKEN
    if not all(token.mode & READ_BY_ALL == READ_BY_ALL for token in tokens):
        return f"the token in {TOKENS} is not readable to all", CLOSED_TOKEN
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
