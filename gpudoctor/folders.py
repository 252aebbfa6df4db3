"""Folders: what is installed with gpudoctor, and what it keeps for a user."""

from __future__ import annotations

import os
from pathlib import Path

from gpudoctor.errors import UserError


def package() -> Path:
    return Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The path of `checks` or `images`: in the installed package, or next to it in a checkout."""
    here = package()
    return here / name if (here / name).is_dir() else here.parent / name


class NoHome(UserError):
    """This user has no home folder, as in a container with a random user id."""


def state() -> Path:
    """Data to keep, such as the baseline and the private map: $XDG_STATE_HOME/gpudoctor."""
    return _base("XDG_STATE_HOME", ".local/state") / "gpudoctor"


def cache() -> Path:
    """Data that can be made again: $XDG_CACHE_HOME/gpudoctor."""
    return _base("XDG_CACHE_HOME", ".cache") / "gpudoctor"


def config() -> Path:
    """Settings: $XDG_CONFIG_HOME."""
    return _base("XDG_CONFIG_HOME", ".config")


def data() -> Path:
    """Data of other programs, such as uv: $XDG_DATA_HOME."""
    return _base("XDG_DATA_HOME", ".local/share")


def home() -> Path:
    found = os.path.expanduser("~")  # noqa: PTH111 (Path.home raises without one)
    if not found.startswith("/"):
        raise NoHome("this user has no home folder: set HOME")
    return Path(found)


def _base(variable: str, below: str) -> Path:
    """A relative path is ignored: https://specifications.freedesktop.org/basedir-spec/latest/#variables"""
    given = os.environ.get(variable, "")
    return Path(given) if given.startswith("/") else home() / below
