"""Folders: what is installed with gpudoctor, and what it keeps for a user."""

from __future__ import annotations

from pathlib import Path


def package() -> Path:
    return Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The path of `checks` or `images`: in the installed package, or next to it in a checkout."""
    here = package()
    return here / name if (here / name).is_dir() else here.parent / name


def state() -> Path:
    """Data to keep, such as the baseline and the private map: $XDG_STATE_HOME/gpudoctor."""
    from platformdirs import user_state_path

    return user_state_path("gpudoctor")


def cache() -> Path:
    """Data that can be made again: $XDG_CACHE_HOME/gpudoctor."""
    from platformdirs import user_cache_path

    return user_cache_path("gpudoctor")
