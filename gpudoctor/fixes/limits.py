"""Fixes that raise a resource limit where it is set: for logins, in the unit of a service, in Slurm, for containers.

A program inherits its limits from what started it. limits.conf is read by PAM, at a login: it changes nothing for what systemd,
slurmd or a container engine starts. Docker has no ulimit for address space, and the spec of a pod cannot set limits.

https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#Process%20Properties
https://slurm.schedmd.com/faq.html#memlock
https://docs.docker.com/reference/cli/docker/container/run/#ulimit
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpudoctor.facts.launcher import CONTAINER, LOGIN, SERVICE, SLURM
from gpudoctor.filling import Written
from gpudoctor.fixes.engines import BY_COMMAND, POD
from gpudoctor.model import Fix

# In limits.conf, the asterisk does not include root; the kernel does not apply nproc to root.
_FILE = "/etc/security/limits.d/90-<item>.conf"
_DROP_IN = "sudo mkdir -p /etc/systemd/system/{0}.d && printf '[Service]\\n<directive>=<unit_value>\\n' | sudo tee {1}"
_RESTART = "sudo systemctl daemon-reload && sudo systemctl restart {0}"

CAPABILITY = Fix(
    "Add the capability IPC_LOCK to the container's securityContext: no limit on locked memory applies to it",
    on=("container",),
    engines=POD,
    started_by=(CONTAINER,),
)


class ResourceLimit(NamedTuple):
    """item: of limits.conf and `docker run --ulimit`. letter: of ulimit. soft, hard: what it is raised to."""

    item: str
    letter: str
    soft: str = "unlimited"
    hard: str = "unlimited"

    @property
    def slurm(self) -> str:
        """The name in slurm.conf and `srun --propagate`."""
        return self.item.upper()

    @property
    def directive(self) -> str:
        """The name in a systemd unit."""
        return f"Limit{self.slurm}"

    @property
    def _words(self) -> Mapping[str, Written]:
        """What stands in the commands below. <unit_value>, <ulimit>: both limits, as a systemd unit and as Docker write them."""
        is_unlimited = self.hard == "unlimited"
        return {
            "item": Written(self.item),
            "letter": Written(self.letter),
            "slurm_name": Written(self.slurm),
            "directive": Written(self.directive),
            "soft": Written(self.soft),
            "hard": Written(self.hard),
            "unit_value": Written("infinity" if is_unlimited else f"{self.soft}:{self.hard}"),
            "ulimit": Written("-1" if is_unlimited else f"{self.soft}:{self.hard}"),
        }

    def _fix(self, fix: Fix) -> Fix:
        return fix.filled(self._words)

    @property
    def in_shell(self) -> Fix:
        line, shown = "ulimit -<letter> hard", "ulimit -<letter>"
        return self._fix(Fix("Raise the limit in this shell to its hard limit", line, verify=shown, where="shell"))

    @property
    def for_logins(self) -> Fix:
        rows = "'* soft <item> <soft>' '* hard <item> <hard>'"
        root = "" if self.item == "nproc" else " 'root soft <item> <soft>' 'root hard <item> <hard>'"
        return self._fix(
            Fix(
                "Raise it for all users, from the next login",
                f"printf '%s\\n' {rows}{root} | sudo tee {_FILE}",
                verify="ulimit -<letter>",
                kind="set",
                needs=("root",),
                undo=f"sudo rm {_FILE}",
                started_by=(LOGIN,),
            )
        )

    @property
    def for_service(self) -> Fix:
        title = f"In a systemd service: raise it in its unit ({self.directive}), which restarts the service"
        return self._in_unit(title, "<unit>", SERVICE)

    @property
    def for_slurmd(self) -> Fix:
        title = f"In Slurm jobs: raise it in slurmd's unit on each node ({self.directive}); running jobs go on"
        return self._in_unit(title, "slurmd.service", SLURM)

    def _in_unit(self, title: str, unit: str, started_by: str) -> Fix:
        file = f"/etc/systemd/system/{unit}.d/90-<item>.conf"
        restart = _RESTART.format(unit)
        return self._fix(
            Fix(
                title,
                f"{_DROP_IN.format(unit, file)} && {restart}",
                "disruptive",
                verify=f"systemctl show {unit} -p <directive>",
                kind="restart",
                needs=("root",),
                undo=f"sudo rm {file} && {restart}",
                started_by=(started_by,),
            )
        )

    @property
    def without_propagation(self) -> tuple[Fix, Fix]:
        """Slurm gives a job the soft limits of the shell that submitted it."""
        in_job = Fix(
            "In Slurm jobs: use the node's limits, not those of the submitting shell (sbatch has this option, too)",
            "srun --propagate=NONE bash -c 'ulimit -<letter>'",
            started_by=(SLURM,),
        )
        in_cluster = Fix(
            f"For all Slurm jobs: set PropagateResourceLimitsExcept={self.slurm} in slurm.conf, then run scontrol reconfigure",
            started_by=(SLURM,),
        )
        return self._fix(in_job), in_cluster

    @property
    def for_containers(self) -> tuple[Fix, ...]:
        """The container again with a higher limit; a pod has the limits of its node's runtime."""
        pod = Fix(
            f"On the node: raise {self.directive} in containerd's unit, whose limits pods inherit (CRI-O: default_ulimits)",
            on=("container",),
            engines=POD,
            started_by=(CONTAINER,),
        )
        if self.item == "as":
            return (pod,)
        run = Fix(
            "Restart the container with a higher limit",
            f"<docker> run <all_gpus> --ulimit <item>=<ulimit>{' --cap-add=IPC_LOCK' * (self.item == 'memlock')} <image>",
            "disruptive",
            verify="ulimit -<letter>",
            on=("container",),
            engines=BY_COMMAND,
            started_by=(CONTAINER,),
        )
        all_of_host = Fix(
            f"For all containers of the host: add {self.item} to default-ulimits in /etc/docker/daemon.json, then restart Docker",
            on=("container",),
            engines=("docker",),
            started_by=(CONTAINER,),
        )
        return self._fix(run), all_of_host, *((CAPABILITY,) if self.item == "memlock" else ()), pod

    @property
    def ways(self) -> tuple[Fix, ...]:
        """For everything that starts programs; fitting() leaves out what does not apply."""
        return self.raised(0, 1)

    def raised(self, soft: int | None, hard: int | None) -> tuple[Fix, ...]:
        """soft, hard: of the program; None is unlimited. Slurm hands on only soft limits: the hard one is the node's."""
        is_lower = hard is None or (soft is not None and hard > soft)
        in_slurm = (*self.without_propagation * is_lower, *(self.for_slurmd,) * (hard is not None))
        return (self.for_logins, self.for_service, *in_slurm, *self.for_containers)


BY_NAME: Mapping[str, ResourceLimit] = {
    "memlock": ResourceLimit("memlock", "l"),
    "open_files": ResourceLimit("nofile", "n", "65536", "1048576"),
    "processes": ResourceLimit("nproc", "u", "65536", "65536"),
    "stack": ResourceLimit("stack", "s"),
    "address_space": ResourceLimit("as", "v"),
    "data": ResourceLimit("data", "d"),
    "file_size": ResourceLimit("fsize", "f"),
    "cpu_seconds": ResourceLimit("cpu", "t"),
}
MEMLOCK, OPEN_FILES, PROCESSES = (BY_NAME[name] for name in ("memlock", "open_files", "processes"))
