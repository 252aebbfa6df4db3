"""Containers: every engine is told by its own signs, and the kernel's texts are read right."""

from __future__ import annotations

from typing import Any

import pytest
from each import each

from gpudoctor.facts.container import Container, capability_names
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Reply, Skip, Unavailable

MISSING = Reply("missing")
ROOT = {"point": "/", "type": "ext4", "options": "rw,relatime"}
OVERLAY = {"point": "/", "type": "overlay", "options": "rw,relatime"}
HOST: dict[str, Any] = {
    "container-marks": {},
    "environment": {},
    "mounts": [ROOT],
    "file:/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-2.scope\n",
    "file:/proc/1/cgroup": "0::/init.scope\n",
    "file:/proc/2/comm": "kthreadd\n",
    "file:/proc/self/uid_map": "         0          0 4294967295\n",
    "file:/proc/sys/kernel/cap_last_cap": "40\n",
    "file:/proc/self/status": "CapEff:\t000001ffffffffff\nSeccomp:\t0\n",
    "file:/run/systemd/container": MISSING,
    "file:/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory\n",
}
DOCKER = {
    "container-marks": {"/.dockerenv": True},
    "mounts": [OVERLAY],
    "file:/proc/self/cgroup": "0::/\n",
    "file:/proc/1/cgroup": "0::/\n",
    "file:/proc/2/comm": MISSING,
    "file:/proc/self/status": "CapEff:\t00000000a80425fb\nSeccomp:\t2\nSeccomp_filters:\t1\n",
}
KUBEPODS = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c1.slice/cri-containerd-9f.scope\n"
LIBPOD = "0::/machine.slice/libpod-6a5b.scope/container\n"
DOCKER_V1 = "12:devices:/docker/3f4e\n1:name=systemd:/docker/3f4e\n"


def container(*changes: dict[str, Any]) -> Container:
    answers = dict(HOST)
    for change in changes:
        answers.update(change)
    return Container(Replies({q: a if isinstance(a, Reply) else Reply("ok", a) for q, a in answers.items()}))


@each(
    ("engine", "changes"),
    [
        (None, {}),
        ("docker", DOCKER),
        ("docker", {"file:/proc/1/cgroup": DOCKER_V1, "file:/proc/2/comm": MISSING}),
        ("podman", {"container-marks": {"/run/.containerenv": True}}),
        ("podman", {"file:/proc/1/cgroup": LIBPOD}),
        ("kubernetes", {"file:/proc/self/cgroup": KUBEPODS}),
        ("kubernetes", {**DOCKER, "environment": {"KUBERNETES_SERVICE_HOST": "present"}}),
        ("kubernetes", {"container-marks": {"/var/run/secrets/kubernetes.io": True}}),
        ("apptainer", {"container-marks": {"/.singularity.d": True}}),
        ("apptainer", {"environment": {"SINGULARITY_CONTAINER": "/images/torch.sif"}}),
        ("enroot", {"container-marks": {"/etc/rc": True}}),
        ("lxc", {"file:/run/systemd/container": "lxc"}),
        ("lxc", {"file:/proc/1/cgroup": "0::/lxc.payload.gpu/init.scope\n"}),
        ("docker", {**DOCKER, "file:/run/systemd/container": "lxc"}),
        ("unknown", {"file:/run/systemd/container": "systemd-nspawn", "file:/proc/2/comm": MISSING}),
        ("unknown", {"mounts": [OVERLAY], "file:/proc/2/comm": "sh\n", "file:/proc/1/cgroup": "0::/\n"}),
        (None, {"mounts": [OVERLAY]}),  # an image-based host: its root is an overlay too
        (None, {"container-marks": {"/.dockerenv": True}, "file:/run/systemd/container": "docker"}),  # a VM made of an image
        (None, {"file:/run/systemd/container": "wsl\n"}),
        (None, {"file:/proc/self/cgroup": "0::/system.slice/docker.service\n"}),
        (None, {"environment": Reply("timeout")}),
    ],
)
def test_engine(engine: str | None, changes: dict[str, Any]) -> None:
    assert container(changes).engine == engine


@pytest.mark.parametrize("question", ["container-marks", "mounts", "file:/proc/1/cgroup"])
def test_what_was_denied_is_no_host(question: str) -> None:
    with pytest.raises(Unavailable) as refusal:
        _ = container({question: Reply("denied", detail="Permission denied")}).engine
    assert refusal.value.kind == Skip.NOT_PERMITTED


@each(
    ("mask", "some", "count"),
    [
        (0x00000000A80425FB, {"CAP_CHOWN", "CAP_MKNOD", "CAP_AUDIT_WRITE", "CAP_SETFCAP"}, 14),  # Docker's default
        (0x000001FFFFFFFFFF, {"CAP_SYS_ADMIN", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE"}, 41),
        (1 << 21, {"CAP_SYS_ADMIN"}, 1),
        (1 << 23, {"CAP_SYS_NICE"}, 1),
        (1 << 45, {"CAP_45"}, 1),
        (0, set(), 0),
    ],
)
def test_capability_names(mask: int, some: set[str], count: int) -> None:
    names = capability_names(mask)
    assert names >= some
    assert len(names) == count


@pytest.mark.parametrize(
    ("uid_map", "remapped"),
    [
        ("         0          0 4294967295\n", False),
        ("         0     100000      65536\n", True),
        ("         0       1000          1\n         1     100000      65536\n", True),
    ],
)
def test_user_namespace(uid_map: str, remapped: bool) -> None:
    assert container({"file:/proc/self/uid_map": uid_map}).user_namespace is remapped


def test_cgroup_version() -> None:
    assert container().cgroup_version == 2
    assert container({"file:/sys/fs/cgroup/cgroup.controllers": MISSING}).cgroup_version == 1
