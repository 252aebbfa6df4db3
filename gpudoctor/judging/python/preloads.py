"""Fixes that remove a library from the list that the loader preloads."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.facts.libraries import Preload
from gpudoctor.fixes.common import look
from gpudoctor.model import Fix, Problem

FILES = "~/.bashrc ~/.profile ~/.zshrc /etc/environment /etc/profile.d/*.sh /etc/systemd/system/*.service.d/*.conf"
FORGET = (
    Fix("Remove it from LD_PRELOAD in this shell", "export LD_PRELOAD=<without_it>", verify="echo $LD_PRELOAD", where="shell"),
    look("Permanently: find and delete the line that sets it", f"grep -sn LD_PRELOAD {FILES} || echo 'in none of these files'"),
)
OUT_OF_FILE = Fix(
    "Remove it from /etc/ld.so.preload, which applies to every program on this machine",
    "sudo sed -i.bak 's#<library>##' /etc/ld.so.preload",
    verify="cat /etc/ld.so.preload",
    undo="sudo mv /etc/ld.so.preload.bak /etc/ld.so.preload",
    kind="set",
    needs=("root",),
)


def without(problem: Problem, preload: Preload) -> Problem:
    """The problem with the fixes for the variable or the file that names the library."""
    if preload.source.startswith("/"):
        return replace(problem, fixes=(OUT_OF_FILE,))
    ways = (
        replace(
            fix, title=fix.title.replace("LD_PRELOAD", preload.source), command=fix.command.replace("LD_PRELOAD", preload.source)
        )
        for fix in FORGET
    )
    return replace(problem, fixes=tuple(ways))
