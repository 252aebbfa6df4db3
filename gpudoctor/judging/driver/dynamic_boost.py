"""Dynamic Boost: the service that moves power from a laptop's CPU to its GPU."""

from __future__ import annotations

from gpudoctor.model import Action, Fix, Problem, Status

BOOST = Problem(
    id="dynamic-boost-off",
    title="Dynamic Boost is off: the laptop's GPU stays at its base power",
    why="On laptops with Dynamic Boost, nvidia-powerd moves power from the CPU to the GPU under load. Without it the power limit "
    "stays at its default, below what the board allows.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Enable and start the service",
            "sudo systemctl enable --now nvidia-powerd",
            verify="nvidia-smi -q -d POWER",
            on=("host",),
            kind="set",
            needs=("root",),
            undo="sudo systemctl disable --now nvidia-powerd",
        ),
        Fix("Select the performance profile", "powerprofilesctl set performance", on=("host",), kind="set"),
    ),
    references=(
        "https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/dynamicboost.html",
        "https://github.com/NixOS/nixos-hardware/pull/1325",
    ),
)
