"""Folders: of what comes with gpudoctor, and of what it keeps for a user."""

from __future__ import annotations

from pathlib import Path


def package() -> Path:
    return Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """Where `checks` or `images` lies: in the installed package, else beside it in a checkout."""
    here = package()
    return here / name if (here / name).is_dir() else here.parent / name


def state() -> Path:
    """What must outlast a run, such as the baseline and the private map: $XDG_STATE_HOME/gpudoctor."""
    from platformdirs import user_state_path

    return user_state_path("gpudoctor")


def cache() -> Path:
    """What can be made again: $XDG_CACHE_HOME/gpudoctor."""
    from platformdirs import user_cache_path

    return user_cache_path("gpudoctor")
