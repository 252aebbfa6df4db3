"""The driver on NixOS: named in the configuration and rebuilt with the system.

https://wiki.nixos.org/wiki/NVIDIA
"""

from __future__ import annotations

from gpudoctor.fixes.distribution import BEFORE_TURING, Distribution, Lines

FOLDER, FILE = "/etc/nixos", "nvidia-driver.nix"
IMPORTED = rf"sudo sed -i.bak 's|\./hardware-configuration\.nix|& ./{FILE}|' {FOLDER}/configuration.nix"
UNDO = f"sudo mv {FOLDER}/configuration.nix.bak {FOLDER}/configuration.nix && sudo nixos-rebuild boot"
REBUILD = "sudo nixos-rebuild boot"


def install(host: Distribution, branch: int) -> Lines:
    """Names the branch only if it is the last for these GPUs; otherwise the one that this nixpkgs keeps up to date."""
    is_old = not host.generations.isdisjoint(BEFORE_TURING)
    name = f"legacy_{branch}" if is_old else "production"
    package = f"hardware.nvidia.package = lib.mkForce config.boot.kernelPackages.nvidiaPackages.{name};"
    flavour = f"hardware.nvidia.open = lib.mkForce {'true' if host.wants_open(branch) else 'false'};"
    written = f"echo '{{ config, lib, ... }}: {{ {package} {flavour} }}' | sudo tee {FOLDER}/{FILE}"
    return Lines(f"{written} && {IMPORTED} && sudo nix-channel --update && {REBUILD}", UNDO, kind="set")


def module(host: Distribution) -> Lines:
    """Kernel and module are built for each other; they differ only if a system was built but not booted."""
    return Lines(REBUILD, "sudo nixos-rebuild boot --rollback", kind="set", reboot=True)


def reinstall(host: Distribution) -> Lines:
    return Lines(f"sudo nix-store --verify --check-contents --repair && {REBUILD}", kind="set")


def libraries(host: Distribution) -> Lines:
    return Lines(REBUILD, kind="set", reboot=True)


def fabric_manager(host: Distribution) -> Lines:
    return Lines("")


def toolkit(host: Distribution, release: str) -> Lines:
    return Lines(f"nix-shell -p cudaPackages_{release.replace('.', '_')}.cudatoolkit", kind="set", needs=("network",))


def sign(host: Distribution) -> Lines:
    """NixOS modules are not signed: Secure Boot there checks only the boot loader and the kernel."""
    return Lines("")
