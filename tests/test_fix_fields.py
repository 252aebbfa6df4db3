"""What every fix says of itself agrees with its command: a mistake here would run what a person has to decide."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import pytest
from each import try_each
from reading import only_reads

from gpudoctor import catalog
from gpudoctor.fixes import engines
from gpudoctor.judging.containers import failed_start
from gpudoctor.knowledge import messages
from gpudoctor.model import Fix

# Programs and loops that the second opinion does not know, read by a person: they change nothing.
READ = re.compile(
    r"""NCCL_P2P_DISABLE=1[ ]gpudoctor[ ]check | (?:uptime;[ ]nproc;[ ])taskset[ ]-pc[ ]\$\$ | free[ ]-h;.*ulimit[ ]-[lv]
    | \S*python\S*[ ]-m[ ]pip[ ](?:check|list[ ]\|[ ]grep[ ])
    | \S*python\S*[ ]-X[ ]faulthandler[ ]-c | ray[ ]status | .*sudo[ ]py-spy[ ]dump
    | \S*python\S*[ ]-c[ ]"import[ ]sys;[ ]print\(sys\.executable\)"\n\S*python\S*[ ]-m[ ]pip[ ]--version$
    | llama-server[ ]--list-devices$ | TORCH_LOGS=\w+[ ]python[ ]train\.py$
    | show_gids | lsblk[ ]-dn[ ].*[ ]sudo[ ]smartctl[ ]-H[ ] | for[ ]d[ ]in[ ]/sys/kernel/iommu_groups | .*bash[ ]-c[ ]"</dev/tcp
    | .*\|\|[ ]chroot[ ]/run/nvidia/driver[ ]nvidia-smi
    | sudo[ ]sh[ ]-c[ ]'for[ ]p[ ]in[ ]/proc/\[0-9\]\*;[ ]do[ ]echo
    | nvidia-container-cli[ ].*-d[ ]/dev/(?:stderr|tty)[ ]info | sudo[ ]fuser[ ]-v[ ]/dev/vfio | cat[ ]/sys/class/mdev_bus
    | rapids[ ]doctor[ ]--verbose$""",
    re.VERBOSE,
)
OTHER_WORDS = (("On the host: reboot", "sudo apt install x && sudo reboot"), ("See it", "cat x"), ("Set it", "export A=1"))
FIELDS = ("kind", "where", "needs", "risk", "reboot", "engines", "on")
IN_THE_SHELL = re.compile(r"(?:^|&& |; )(?:(?:export|unset|source|conda activate) |ulimit -\w [^;]|taskset -\w+ \S+ \$\$)")


ROWS_OF = (messages.TEXTS, *messages.IN_ORDER)


@functools.cache
def every() -> list[tuple[str, Fix]]:
    checks = ((problem.id, fix) for check in catalog.checks().values() for problem in check.problems for fix in problem.fixes)
    told = ((id, fix) for check in ROWS_OF for id, problem in messages.problems(check).items() for fix in problem.fixes)
    starts = ((id, fix) for id, problem in failed_start.problems().items() for fix in problem.fixes)
    rows = ((row.id, fix) for check in ROWS_OF for row in messages.messages(check) for fix in messages.ways(row.fixes))
    return [(f"{id}: {fix.title}", fix) for id, fix in dict.fromkeys((*checks, *told, *starts, *rows))]


def dummy(command: str) -> str:
    """With something in the place of evidence."""
    return re.sub(r"<([a-z_]+)>", lambda name: "python" if name[1] == "python" else "x1", command)


def test_what_is_read_changes_nothing() -> None:
    def changes_nothing(fix: Fix) -> None:
        [said] = engines.of((fix,), fix.engines[0] if fix.engines else None)
        command = dummy(said.command)
        assert only_reads(command) or READ.match(command)

    try_each(changes_nothing, ((name, fix) for name, fix in every() if fix.kind == "read"))


def test_who_needs_root_says_so() -> None:
    """Where a person does the rest of the title, that may need it too; Windows has no sudo."""

    def says_so(fix: Fix) -> None:
        is_by_sudo = re.search(r"\bsudo\b", fix.command) is not None
        assert ("root" in fix.needs) == is_by_sudo or ("root" in fix.needs and fix.kind not in ("set", "install", "restart"))

    try_each(says_so, every())


def test_a_reboot_is_no_part_of_a_command() -> None:
    def has_none(fix: Fix) -> None:
        assert not re.search(r"(?<!pct )\breboot\b", fix.before_reboot)
        assert not fix.reboot or (fix.risk != "safe" and {"root", "reboot"} <= set(fix.needs))

    try_each(has_none, every())


def test_what_changes_a_shell_is_typed_there() -> None:
    def is_typed_there(fix: Fix) -> None:
        assert (fix.where == "shell") == bool(IN_THE_SHELL.search(fix.command)) or fix.kind == "read"

    try_each(is_typed_there, every())


_BUILDS = re.compile(r"update-initramfs|dracut --force|mkinitcpio|update-grub|grub2?-mkconfig")
_STOPS = re.compile(r"systemctl (?:stop|isolate multi-user\.target)([\w. -]*)")
_REMOVES = re.compile(
    r"nvidia-uninstall|apt(?:-get)? (?:remove|purge) |dnf remove |zypper (?:remove|dup) |--allowerasing|snap disable"
)
_EDITS = re.compile(r"sed -i (?!.*/proc/)[^|;]*(?:/etc/(?:default|containerd|docker|modprobe\.d|apt|X11)/)")
_LOSES = re.compile(
    r"""
    rm[ ]-rf[ ]/(?!var/lib/apt/lists) | rm[ ](?:-f[ ])?/etc/(?:apt|yum\.repos\.d)/ | docker[ ]system[ ]prune
    | delete-emptydir-data | /swapfile(?![-\w])
    """,
    re.VERBOSE,
)
_SHARED = re.compile(r"(?:mkdir -p|venv|CACHE_DIR=|_HOME=|-o)\s*\"?/(?:var/)?tmp/")
_SAYS = re.compile(r"remove|lose|delete", re.IGNORECASE)


def test_a_cautious_administrator_would_run_it() -> None:
    """No step loses what is there without saying so, and what is undone is undone wholly."""

    def is_cautious(fix: Fix) -> None:
        command = fix.command
        assert not _BUILDS.search(command) or not fix.undo or _BUILDS.search(fix.undo), "the undo builds no initramfs or menu"
        services = {name for found in _STOPS.findall(command) for name in found.split() if "start " not in command or fix.undo}
        assert not fix.undo or all(name in fix.undo for name in services - {"docker.socket"}), (
            "the undo starts less than was stopped"
        )
        assert not _REMOVES.search(command) or fix.risk != "safe" or "uninstall -y" in command, "a removal is not safe"
        assert not _SHARED.search(command), "in a shared folder, another user can have made what has this name"
        assert not _EDITS.search(command), "a file of the system is edited without a copy"
        assert not _LOSES.search(command) or (fix.risk != "safe" and _SAYS.search(fix.title)), "it loses something"

    try_each(is_cautious, every())


def test_a_fix_without_a_command_is_for_a_person() -> None:
    def has_a_command(fix: Fix) -> None:
        assert fix.command

    try_each(has_a_command, ((name, fix) for name, fix in every() if fix.kind != "manual" and not fix.reboot))


def test_no_field_is_read_out_of_words() -> None:
    """The same fields with any other words: a fix is what its author said it is."""

    def is_as_written(fix: Fix) -> None:
        for title, command in (
            ("On the host: reboot", "sudo apt install x && sudo reboot"),
            ("See it", "cat x"),
            ("Set", "export A=1"),
        ):
            other = replace(fix, title=title, command=command)
            assert [getattr(other, name) for name in FIELDS] == [getattr(fix, name) for name in FIELDS]

    try_each(is_as_written, every())


@pytest.mark.parametrize("engine", ["docker", "podman", "nerdctl", "kubernetes"])
def test_every_engine_has_words_for_all(engine: str) -> None:
    for _, fix in every():
        assert not re.search(r"<docker>|<all_gpus>", "".join(each.command + each.verify for each in engines.of((fix,), engine)))
