"""Private values of every kind, and a snapshot that has them in every place in which something like them can stand."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import machine

from gpudoctor.model import Reply, Snapshot

# Value -> its kind. None of them is a word that anything else in a report would have.
VALUES = {
    "zorvik": "users",
    "qbelnode17": "hostname",
    "frobnix.example-corp.de": "domains",
    "blorptech": "paths",
    "10.77.88.99": "addresses",
    "193.99.144.80": "addresses",
    "fd12:3456:789a::beef": "addresses",
    "3c:ec:ef:12:34:56": "hardware-addresses",
    "0x506b4b0300cbe2f8": "hardware-addresses",
    "9f8e7d6c-1234-5678-9abc-def012345678": "gpu-uuids",
    "1653922013337": "serials",
    "4d3c2b1a09f8e7d6c5b4a39281706f5e": "serials",
    "6f1d0f53-7f0e-4a7b-9f0a-2f7e3a1c0d11": "serials",
    "8c1f" * 16: "containers",
    "grumplebox": "containers",
    "wumpuspod-7d9f": "pods",
    "wumpusspace": "pods",
    "snarkrun": "jobs",
    "boojumacct": "jobs",
    "snarkbond0": "interfaces",
    "hf_QqWwEeRrTtYyUuIiOoPpAaSs": "secrets",
    "nvapi-ZzXxCcVvBbNnMm1234567890": "secrets",
    "hunter2-swordfish": "secrets",
    "--lr=0.0123 --plan=moonshot": "processes",
    "jabberwock": "words",
}
USER, HOST, DOMAIN, FOLDER, PRIVATE_V4, PUBLIC_V4, V6, MAC, GUID, GPU, SERIAL, MACHINE, DISK, ID, *_ = VALUES
CONTAINER, POD, NAMESPACE, JOB, ACCOUNT, BOND, TOKEN, KEY, PASSWORD, ARGUMENTS, WORD = tuple(VALUES)[14:]

SENTENCES = (
    f"Mar  3 12:00:01 {HOST} kernel: NVRM: loaded",
    f"2025-03-03T12:00:01.123+01:00 {HOST} systemd[1]: Started Session 3 of User {USER}.",
    f"{HOST}:4711:4712 [0] NCCL INFO Bootstrap : Using {BOND}:{PRIVATE_V4}<0>",
    f"{USER}@{HOST}:~$ cd /home/{USER}/{FOLDER} && python train.py",
    f'File "/home/{USER}/{FOLDER}/train.py", line 3, in <module>',
    f"C:\\Users\\{USER}\\{FOLDER}\\train.py and /mnt/c/Users/{USER}/{FOLDER}/x.py",
    f"connect to {HOST}.{DOMAIN} port 22 from {PUBLIC_V4}:51234 failed, peer [{V6}]:29500",
    f"git clone https://{USER}:{PASSWORD}@git.{DOMAIN}/{FOLDER}/x.git",
    f"link/ether {MAC} brd ff:ff:ff:ff:ff:ff, Port GUID: {GUID}, node_guid {GUID}",
    f"GPU 0: NVIDIA H100 (UUID: GPU-{GPU}), Serial Number : {SERIAL}, Machine ID: {MACHINE}",
    f"BOOT_IMAGE=/vmlinuz root=UUID={DISK} ro",
    f"/system.slice/docker-{ID}.scope task_memcg=/kubepods/burstable/pod{DISK}/{ID},task=python,uid=1000",
    f'Conflict. The container name "/{CONTAINER}" is already in use by container "{ID}".',
    f'pod "{NAMESPACE}/{POD}" failed; kubectl logs -n {NAMESPACE} {POD}',
    f"#SBATCH --job-name={JOB} --account={ACCOUNT}",
    f"export HF_TOKEN={TOKEN}; curl -H 'Authorization: Bearer {KEY}' --password {PASSWORD}",
    f"{USER}  4242  3.0  0.1 123456 7890 ?  Rl  12:00  1:23 /home/{USER}/venv/bin/python train.py {ARGUMENTS}",
    f"the {WORD} project of {USER} on {HOST}",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nQmFzZTY0S2V5Qm9keQ==\n-----END OPENSSH PRIVATE KEY-----",
)
TEXT = "\n".join(SENTENCES)
_IN_LISTS = {
    "packages": {"location": f"/home/{USER}/{FOLDER}/lib/python3.12/site-packages"},
    "cdi": {"text": TEXT, "path": f"/var/run/cdi/{USER}.yaml"},
    "mounts": {"point": f"/mnt/nvidia/{USER}/{FOLDER}", "options": f"rw,addr={PRIVATE_V4}"},
}
IN_KEY = "QmFzZTY0S2V5Qm9keQ=="


def planted() -> Snapshot:
    """A measured machine, and a host around it: all sentences in every text, and what replies of their own form hold."""
    taken = machine.load("h100-measured")
    replies = {question: _planted(question, reply) for question, reply in taken.replies.items()}
    measured = {question: _planted(question, reply) for question, reply in taken.measured.items()}
    replies.update(_of_own_form(replies))
    uuid = str(replies["nvml:gpu0"].value["UUID"])
    return replace(taken, replies=replies, measured=measured, host=copy.deepcopy(replies), baseline={uuid: {"copy": 1.0}})


def _planted(question: str, reply: Reply) -> Reply:
    """Numbers, versions and what programs test for stay: the snapshot is to be judged."""
    value = copy.deepcopy(reply.value)
    if question.startswith("command:") and isinstance(value, dict):
        value = {**value, "err": TEXT}
    elif question.startswith(("file:/var/log", "file:/etc/docker", "file:~", "processor")) or question == "torch":
        value = value if isinstance(value, dict) else TEXT
    elif isinstance(value, dict) and question not in ("devices", "kernel-modules", "peer-transfers:all"):
        value = {**value, "said": TEXT, f"/home/{USER}/{FOLDER}/key": TEXT}
    elif question in ("packages", "cdi", "mounts") and value:
        value = [*value, {**value[0], **_IN_LISTS[question]}]
    return replace(reply, value=value, detail=TEXT if reply.status != "ok" else reply.detail)


def _of_own_form(replies: dict[str, Reply]) -> dict[str, Reply]:
    def with_more(question: str, **more: Any) -> Reply:
        return Reply("ok", {**(replies[question].value or {}), **more})

    processes = [{"pid": 1, "name": f"/home/{USER}/bin/python train.py {ARGUMENTS}", "ours": True, "usedGpuMemory": 1}]
    environment = {
        "HF_TOKEN": TOKEN,
        "ACME_SETTING": FOLDER,
        "CUDA_VISIBLE_DEVICES": f"GPU-{GPU[:8]}",
        "NCCL_SOCKET_IFNAME": BOND,
        "CUDA_LAUNCH_BLOCKING": "1",
        "SLURM_JOB_NAME": JOB,
        "SLURM_JOB_ACCOUNT": ACCOUNT,
        "DOCKER_HOST": f"ssh://{USER}@{HOST}",
        "CONDA_PREFIX": f"/home/{USER}/miniconda3/envs/{FOLDER}",
        "LD_LIBRARY_PATH": f"/{FOLDER}/lib:/opt/{FOLDER}/lib64",
    }
    lines = [line for sentence in SENTENCES for line in sentence.split("\n")]
    text = {"lines": [[n, line] for n, line in enumerate(lines, 1)], "total_lines": len(lines), "left_out": 0, "kinds": ["log"]}
    start = {
        "engine": "docker",
        "version": "28.0.0",
        "image": f"registry.{DOMAIN}:5000/{FOLDER}/trainer:1.2",
        "mode": "gpus",
        "arguments": ["--gpus", f"device=GPU-{GPU}"],
        "gpus": f"GPU-{GPU}",
        "container": CONTAINER,
        "replaced": "",
        "entrypoint_failed": TEXT,
        "started": True,
        "message": TEXT,
        "code": None,
    }
    kernel = replies["kernel-log"].value
    return {
        "nvml:gpu0": with_more("nvml:gpu0", UUID=f"GPU-{GPU}", Serial=SERIAL, ComputeRunningProcesses=processes),
        "environment": with_more("environment", **environment),
        "identity": with_more("identity", groups={"1000": USER, "44": "video"}, user=USER, hostname=HOST),
        "glob:/sys/class/net/*": Reply("ok", ["/sys/class/net/eth0", f"/sys/class/net/{BOND}"]),
        "file:/proc/cmdline": Reply(
            "ok", f"BOOT_IMAGE=/vmlinuz root=UUID={DISK} rd.lvm.lv={HOST}/root resume=/dev/mapper/{HOST}-swap"
        ),
        "file:/proc/self/cgroup": Reply("ok", f"0::/slurm/uid_1000/{USER}/docker/{ID}\n"),
        "kernel-log": Reply("ok", {**kernel, "lines": [*kernel["lines"], *lines]}),
        f"file:/home/{USER}/{FOLDER}/nccl.conf": Reply("denied", None, f"/home/{USER}/{FOLDER}: Permission denied"),
        f"text:/scratch/{FOLDER}/{USER}.log": Reply("ok", text),
        f"text:{FOLDER}.log": Reply("ok", text),
        "container-start": Reply("ok", start),
        "nccl-log": Reply("ok", {"interfaces": [BOND], "settings": {"NCCL_SOCKET_IFNAME": BOND}}),
    }
