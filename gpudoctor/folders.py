"""Folders: what is installed with gpudoctor, and what it keeps for a user."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gpudoctor.errors import UserError


class NoHome(UserError):
    """There is no place for what gpudoctor keeps for a user."""


def package() -> Path:
    return Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The path of `checks` or `images`: in the installed package, or next to it in a checkout."""
    here = package()
    return here / name if (here / name).is_dir() else here.parent / name


def state() -> Path:
    """Data to keep, such as the baseline and the private map: $XDG_STATE_HOME/gpudoctor."""
    from platformdirs import user_state_path

    return _of_user(user_state_path, "XDG_STATE_HOME")


def cache() -> Path:
    """Data that can be made again: $XDG_CACHE_HOME/gpudoctor."""
    from platformdirs import user_cache_path

    return _of_user(user_cache_path, "XDG_CACHE_HOME")


def home() -> Path:
    """The home folder; a path that does not exist for a user without one."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111 (Path.home() fails)


def _of_user(path: Callable[[str], Path], variable: str) -> Path:
    """NoHome for a user without one, as in a container with a random user id."""
    try:
        return path("gpudoctor")
    except RuntimeError:
        raise NoHome(f"this user has no home folder: set HOME or {variable} to an absolute path") from None
