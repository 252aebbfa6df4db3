"""Fixes adapted to one machine: its packages, its Python environment, and whether it is a container.

A fix names a recipe if its command depends on the distribution's version, the source of the driver or the GPUs.
https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.launcher import SLURM, launcher
from gpudoctor.facts.overview import readable
from gpudoctor.filling import word
from gpudoctor.fixes import (
    available,
    clusters,
    declared,
    driver,
    engines,
    environment,
    images,
    kernels,
    packages,
    permanent,
    typed,
    windows,
    yum,
)
from gpudoctor.fixes.common import ASK_PROVIDER
from gpudoctor.fixes.distribution import Distribution, distribution
from gpudoctor.fixes.environment import Environment
from gpudoctor.model import Fix

RECIPES: dict[str, Callable[..., Iterator[Fix]]] = {
    "driver": driver.install,
    "module": driver.module,
    "module-at-boot": driver.module_at_boot,
    "without-runfile": driver.without_runfile,
    "one-source": driver.one_source,
    "reinstall": driver.reinstall,
    "libraries": driver.libraries,
    "fabric-manager": driver.fabric_manager,
    "toolkit": driver.toolkit,
    "sign": driver.sign,
}
FAMILY = {"debian": "Debian and Ubuntu", "rhel": "RHEL and Fedora", "suse": "SUSE", "arch": "Arch", "nixos": "NixOS"}
UNKNOWN_BRANCH = {"wanted_branch": driver.LONG_TERM, "last_branch": driver.LONG_TERM}  # for a text that mentions no GPU
ON_THE_HOST = Fix(
    "On the host, outside this container: run this, which shows the commands to paste",
    "gpudoctor check",
    kind="manual",
    where="host",
)
ASK_ADMINISTRATORS = Fix(
    "On a shared node of Slurm: ask the cluster's administrators to drain the node and repair it. What follows is for them: "
    "it ends the jobs there"
)


@dataclass(frozen=True)
class FixContext:
    """What fixes depend on. platform: the tags of `Fix.on`. values: what any fix may name."""

    platform: tuple[str, ...]
    machine: Distribution = field(default_factory=Distribution)
    python: Environment = field(default_factory=Environment)
    values: Mapping[str, Any] = field(default_factory=dict)
    engine: str | None = None  # of the container that gpudoctor runs in
    started_by: str = ""  # what started the program; "" if not known
    cluster: str = ""  # k3s, rke2, microk8s, k0s or crio
    set_in: Callable[[str], tuple[str, ...]] = lambda name: ()  # where a variable is set, such as "/etc/profile.d/a.sh:3"


def context(facts: Facts) -> FixContext:
    return FixContext(
        known(lambda: facts.system.platform, ()),
        distribution(facts),
        environment.of(facts),
        general(facts),
        known(lambda: facts.container.engine, None) or engines.of_text(facts),
        launcher(facts.replies).kind,
        clusters.kubernetes(facts),
        lambda name: known(lambda: facts.environment.set_in(name), ()),
    )


def fitting(fixes: tuple[Fix, ...], where: FixContext, evidence: Mapping[str, Any]) -> tuple[Fix, ...]:
    """The fixes for this machine, with the evidence filled in. A container cannot boot its host or know its distribution."""
    values = {**where.values, **evidence}
    made = (
        replace(fix.filled(values).filled(UNKNOWN_BRANCH), on=(), recipe="")
        for fix in _made(engines.of(fixes, where.engine), where, values)
    )
    translated = packages.without_repeated(one for fix in made for one in packages.translated(fix, where.python))
    kernel = where.machine.kernel or word(str(values.get("kernel") or values.get("kernel_too") or "")) or ""
    translated = list(clusters.spoken(kernels.spoken(translated, where.machine, kernel), where.cluster))
    there = images.spoken(available.installable(translated, where.machine), where.machine)
    spoken = declared.spoken(yum.spoken(there, where.machine), where.platform)
    suited = [fix.shown for fix in (spoken if "file" in evidence else permanent.also_where_set(spoken, where.set_in))]
    if "windows" in where.platform:
        return tuple(one for fix in suited for one in windows.translated(fix))
    if "container" not in where.platform:
        here = tuple(replace(fix, where="here") if fix.where == "host" else fix for fix in suited)
        return (*_asked_of_administrators(here, where), *here, *_asked_of_provider(fixes, where))
    inside = [_in_container(fix, values) for fix in suited if "reboot" not in fix.needs]
    return (*inside, *(ON_THE_HOST for _ in suited[:1] if len(inside) < len(suited)))


def _asked_of_administrators(fixes: tuple[Fix, ...], where: FixContext) -> tuple[Fix, ...]:
    """In a job of Slurm, whose node is not the user's: before a fix that would end every job there."""
    ends_jobs = any({"reboot", "drain"} & set(fix.needs) for fix in fixes[:1])
    return (ASK_ADMINISTRATORS,) if where.started_by == SLURM and ends_jobs else ()


def _asked_of_provider(fixes: tuple[Fix, ...], where: FixContext) -> tuple[Fix, ...]:
    """In a virtual machine: what takes the place of work on the hardware."""
    is_dropped = "vm" in where.platform and any({"physical", "bmc"} & set(fix.on) for fix in fixes)
    return (replace(ASK_PROVIDER, on=()),) if is_dropped and ASK_PROVIDER not in fixes else ()


def _made(fixes: Iterable[Fix], where: FixContext, values: Mapping[str, Any]) -> Iterator[Fix]:
    """A recipe that works here replaces all fixes that name it; otherwise the fix of the platform is used."""
    done: set[tuple[str, str]] = set()
    for fix in fixes:
        key = fix.title, fix.recipe
        if key in done:
            continue
        wanted = fix.filled(values) if fix.recipe else fix
        made = _of_recipe(wanted, where.machine) if wanted.recipe else ()
        if made:
            done.add(key)
            yield from made
        elif fix.suits(where.platform) and not (fix.started_by and where.started_by and where.started_by not in fix.started_by):
            yield _named(fix, where.platform)


def _of_recipe(fix: Fix, machine: Distribution) -> tuple[Fix, ...]:
    """Empty if what the recipe reads of this machine has a form that no machine has."""
    return known(lambda: tuple(recipe(fix, machine)), ())


def _named(fix: Fix, platform: tuple[str, ...]) -> Fix:
    """The fix, with the family in its title if several are possible."""
    families = [FAMILY[tag] for tag in fix.on if tag in FAMILY]
    if len(FAMILY.keys() & set(platform)) > 1 and families and len(families) < len(FAMILY) - 1:
        return replace(fix, title=f"On {' and '.join(families)}: {fix.title[0].lower()}{fix.title[1:]}")
    return fix


def recipe(fix: Fix, machine: Distribution) -> Iterator[Fix]:
    """Runs the recipe of a fix, such as `driver 580`: a name and its arguments."""
    name, *arguments = fix.recipe.split()
    return RECIPES[name](machine, fix, *arguments)


def _in_container(fix: Fix, values: Mapping[str, Any]) -> Fix:
    """Drops sudo if the user is root, as in most images, which have no sudo; a command for the host keeps it."""
    if not values.get("is_root") or fix.where == "host":
        return fix
    needs = tuple(need for need in fix.needs if need != "root")
    return replace(fix, command=fix.command.replace("sudo ", ""), needs=needs, undo=fix.undo.replace("sudo ", ""))


def general(facts: Facts) -> dict[str, Any]:
    """What any fix may name: <branch>, <driver>, <kernel>, <python>, <python_version>."""
    values = readable(
        {
            "branch": lambda: facts.driver.branch,
            "driver": lambda: facts.driver.module_version,
            "kernel": lambda: facts.system.kernel,
            "python": lambda: facts.python.executable,
            "python_version": lambda: "{}.{}".format(*facts.python.version),
            "is_root": lambda: facts.devices.identity.is_root,
            "unit": lambda: launcher(facts.replies).unit or None,
        }
    )
    return {"python": "python", **typed.names(facts), **{name: value for name, value in values.items() if value is not None}}
