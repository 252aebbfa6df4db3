"""The IMEX channels through which the nodes of a rack share GPU memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import NEW_INITRAMFS, Action, Finding, Fix, Problem, Status

CHANNELS = "/dev/nvidia-caps-imex-channels/"

IMEX = Problem(
    id="nccl-mnnvl-imex",
    title="IMEX channels for NVLink between nodes are missing",
    why="The GPUs of a rack can share memory across nodes only through an IMEX channel. Without one, NCCL warns that MNNVL is "
    "available but not working, and uses the network.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Let the driver create a channel, list the nodes, and start IMEX",
            "echo 'options nvidia NVreg_CreateImexChannel0=1' | sudo tee /etc/modprobe.d/nvidia-imex.conf && "
            f"sudo systemctl enable nvidia-imex && {NEW_INITRAMFS}",
            verify=f"ls {CHANNELS}; nvidia-imex-ctl -N",
            on=("host",),
            kind="set",
            reboot=True,
            undo=f"sudo systemctl disable nvidia-imex && sudo rm /etc/modprobe.d/nvidia-imex.conf && {NEW_INITRAMFS}",
        ),
        Fix(
            "Restart the container with --device=/dev/nvidia-caps-imex-channels/channel0",
            risk="disruptive",
            verify=f"ls {CHANNELS}",
            on=("container",),
        ),
        Fix("For jobs on one node only: disable MNNVL in NCCL", "export NCCL_MNNVL_ENABLE=0", where="shell"),
    ),
)


IMEX_FAILED = Fix(
    "Read why nvidia-imex failed, mend that, and restart it",
    "journalctl -u nvidia-imex -b --no-pager | tail -n 20; sudo systemctl restart nvidia-imex",
    verify="systemctl is-active nvidia-imex; nvidia-imex-ctl -N",
    on=("host",),
    kind="restart",
    needs=("root",),
)


def without_channels(facts: Facts, gpus: int) -> Iterator[Finding]:
    """Slurm and Kubernetes make channels for each job, so a node without them is suspect only if IMEX is set up or has failed."""
    if any(path.startswith(CHANNELS) for path in facts.devices.nodes):
        return
    words = f"{gpus} GPUs are in a rack's fabric, but {CHANNELS} is empty or missing"
    unit = known(lambda: facts.services.unit("nvidia-imex"))
    if unit and unit.active == "failed":
        yield replace(IMEX, fixes=(IMEX_FAILED, *IMEX.fixes)).found(f"{words}; nvidia-imex has failed ({unit.result})")
    else:
        yield replace(IMEX.found(words), is_clue=not known(lambda: facts.services.has_imex_nodes, False))
