"""Redaction of texts: what goes, what must not, and what names that are words do."""

from __future__ import annotations

import string

import canaries
import machine
import pytest
from each import each
from process import processor_seconds

from gpudoctor import catalog, doctor
from gpudoctor.errors import UserError
from gpudoctor.knowledge import messages
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot
from gpudoctor.redaction import KEPT_ON_REQUEST, KINDS, own_words, redacted
from gpudoctor.redaction.credentials import Credentials
from gpudoctor.redaction.paths import says_nothing
from gpudoctor.report import explanation, formats
from gpudoctor.worker.probes import runtime, toolchain


def taken(*lines: str, **replies: object) -> Snapshot:
    text = {"lines": [[n, line] for n, line in enumerate(lines, 1)], "total_lines": len(lines), "left_out": 0, "kinds": []}
    more = {question: Reply("ok", value) for question, value in replies.items()}
    return Snapshot(SNAPSHOT_SCHEMA, "1", "2025-01-01T00:00:00Z", {"text:dmesg.txt": Reply("ok", text), **more})


def lines(*given: str, **settings: object) -> list[str]:
    """The lines as they leave the machine."""
    value = redacted(taken(*given), **settings).snapshot.replies["text:dmesg.txt"].value  # type: ignore[arg-type]
    return [line for _, line in value["lines"]]


@each(
    "text",
    [
        "CUDA 12.4.1.0, kernel 5.15.0.1, cuDNN 9.10.2.21, libcurand.so.10.3.9.90",
        "nvidia-curand-cu12==10.3.9.90",
        "nvidia-curand-cu12        10.3.9.90",
        "ii  libcublas-12-4   12.4.5.8-1   amd64",
        "5.15.153.1-microsoft-standard-WSL2 and 6.6.87.2 and 13.580.159.04",
        "upgrade from 12.4.1.0 to 12.5.0.2",
        "VBIOS version 94.02.59.00.05, firmware 35.2002.1.8",
        "listening on 127.0.0.1:8188, 0.0.0.0, ::1, [::]:22, localhost:29500 and 255.255.255.0",
        "NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
        "0000:65:00.0 and 00000000:17:00.0, 10de:2330, BAR 0 [mem 0x102000000000-0x1020ffffffff 64bit pref]",
        "at c10::cuda::device_count and std::vector<int>, 12:34:56, 2025-01-31T03:04:05Z",
        "module at::native, self.model.net(x), torch.nn.functional, os.name, threading.local, x.to",
        "pip install torch --index-url https://download.pytorch.org/whl/cu128",
        "https://docs.nvidia.com/deploy/xid-errors/ https://github.com/NVIDIA/nccl/issues/1",
        "nvcr.io/nvidia/pytorch:25.09-py3 and nvidia/cuda:13.0.1-base-ubuntu24.04 and docker.io/library/ubuntu:24.04",
        'File "/usr/lib/python3.12/subprocess.py", line 5; /opt/conda/lib/python3.11/site-packages/acme/x.py',
        "/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcublas.so.12 /proc/driver/nvidia/version /dev/nvidia0",
        "sha256:" + "ab" * 32 + " commit 70d99e998b4955e0049d13a98d77ae1b14db1f45",
        "max_tokens=4096 eos_token: </s> token: 5 tokens/s KeyError: 'token' auth: no password: required",
        "user: unknown user, container: permission denied, login: Mar 3",
        "1/3 GB/s, and/or, N/A, w/o, 8 x 80GB, https://localhost:8080/v1/chat/completions",
        "nvidia-fabricmanager.service user@1000.service image@sha256:" + "cd" * 32,
        "systemd[1]: user-1000.slice, ping 10 ms",
        "NCCL INFO NET/Socket : Using [0]eth0:127.0.0.1<0>",
        "tensorrt_cu12 10.13.3.9, driver 13.580.159.04, InfoROM G520.0200.00.05, libcuda.so.580.159.04",
        "crw-rw---- 1 root video 195, 0 Mar  3 12:00 /dev/nvidia0",
        "uid=0(root) gid=0(root) groups=0(root),44(video),109(render)",
        "gpu-operator   nvidia-device-plugin-daemonset-w9cqr   0/1   Init:0/1   0   21m",
        "|    0   N/A  N/A      1234      C   python3                                    1234MiB |",
        "docker run --rm --gpus all -w /workspace nvidia/cuda:13.0.1-base-ubuntu24.04 python tools/train.py",
        "comm 0x55d5c0 rank 0 nranks 8 busId 17000 commId 0x1e6b3a5e4f0b6c2d - Init COMPLETE",
        "sshd[1]: Failed password for root, key exchange, TOKENIZERS_PARALLELISM=false MAX_TOKENS=12 SSH_KEY=none",
        "Serial Attached SCSI, serial8250: ttyS0, SN: N/A, Service Tag: Not Specified",
        "deadbeef::operator(), 2.0:cafe, time 12:34:56:78, 1234.5678.9012",
        "projects/ and instances/ and a cookie, wwn and eui, arn and i-beams",
        "0 0 R 1:00 1 and 7 6 5 R 00:10 2 rows",
        "curl -O https://developer.download.nvidia.com/x.deb && sudo apt install ./cuda-keyring_1.1-1_all.deb",
        "sh NVIDIA-Linux-x86_64-580.95.05.run --module-signing-secret-key=/root/nvidia-module.key --signal=B:USR1@300",
        "/home/kubernetes/bin/nvidia/bin/nvidia-smi ~/.cache/torch_extensions /swapfile https://docs.k3s.io/advanced",
        "rm -f /tmp/nvidia-mps/control /tmp/nvidia-mps/nvidia-cuda-mps-control.pid /tmp/nvidia-mps/log",
        "mv /usr/local/lib/python3.12/site-packages.off x; awk '/SlurmdSpoolDir/ {print $3}'",
        "/home/.local/lib/python3.11/site-packages/x.py /home/.cache/torch",
        "HF_TOKEN: not set, the password is wrong, connected to server version 12.4.1.0",
    ],
)
def test_what_tells_nothing_stays(text: str) -> None:
    assert lines(text) == [text]


@each(
    ("text", "redacted_text"),
    [
        ("Connecting to 10.3.9.90:29500", "Connecting to ip-private-1.1:29500"),
        ("inet 192.168.40.12/24 brd 192.168.40.255", "inet ip-private-1.1/24 brd ip-private-1.2"),
        ("10.1.2.3 10.1.2.4 10.1.9.9", "ip-private-1.1 ip-private-1.2 ip-private-2.1"),
        ("from 193.99.144.80 port 22", "from ip-public-1.1 port 22"),
        ("peer fe80::1ff:fe23:4567:890a and 2001:db8:1::5", "peer ip-link-1.1 and ip-private-2.1"),
        ("root@gpu17:/# id", "root@host-1:/# id"),
        ("root@3f2a9c1b7d6e:/# nvidia-smi", "root@container-1:/# nvidia-smi"),
        ("ssh bob@login.hpc.uni-x.edu", "ssh user-1@host-1.domain-1"),
        ("Base lid: 12, LID 0x1f, Port GUID: 0x506b4b0300cbe2f8", "Base lid: lid-1, LID lid-2, Port GUID: guid-1"),
        ("docker run registry.corp.example.de/team/llm:v3", "docker run host-1.domain-1/image-1:v3"),
        ("/home/bob/x and /data/bob/y and ~bob", "/home/user-1/x and /data/user-1/y and ~user-1"),
        ("/mnt/c/Users/Jane Doe/x.py", "/mnt/c/Users/user-1/x.py"),
        ("cat /srv/moonshot/secret-plan.yaml", "cat /srv/dir-1/file-1.yaml"),
        (
            "curl https://u:pw12345@x.acme-corp.com/a?token=abcdef12",
            "curl https://<redacted:secret>@host-1.domain-1/a?token=<redacted:secret>",
        ),
        ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "WANDB_API_KEY=<redacted:secret>"),
        ("signer:         gpu17 Secure Boot Module Signature key", "signer:         host-1 Secure Boot Module Signature key"),
        ("slurmstepd: error: *** JOB 4711 ON gpu17 CANCELLED ***", "slurmstepd: error: *** JOB job-1 ON host-1 CANCELLED ***"),
        (
            "gcc -I/home/bob/moon/include -o x 2>/home/bob/log $HOME/moon",
            "gcc -I/home/user-1/dir-1/include -o x 2>/home/user-1/log $HOME/dir-1",
        ),
        ("store (gpu17, 29500)", "store (gpu17, 29500)"),
        ("login bo password swordfish", "login bo password <redacted:secret>"),
        ("wandb: Using api key 0123456789abcdef0123456789abcdef0123", "wandb: Using api key <redacted:secret>"),
        ("Cookie: sid=abcdef12; csrf=zzzz", "Cookie: <redacted:secret>"),
        ("docker login -u bob -p Sw0rdfish nvcr.io", "docker login -u user-1 -p <redacted:secret> nvcr.io"),
        (
            "redis --requirepass Sw0rdfish, curl -u bob:Sw0rdfish",
            "redis --requirepass <redacted:secret>, curl -u user-1:<redacted:secret>",
        ),
        (
            '"env": ["DB_PASS=x1", "SECRET_SAUCE=ketchup"]',
            '"env": ["DB_PASS=<redacted:secret>", "SECRET_SAUCE=<redacted:secret>"]',
        ),
        ('{"auth": "Ym9iYnk6c3dvcmQ=", "a": 1}', '{"auth": "<redacted:secret>", "a": 1}'),
        (r"{\"password\": \"swordfish1\"}", r"{\"password\": \"<redacted:secret>\"}"),
        ("next=1%26access_token%3Dabcdef0123%26", "next=1%26access_token%3D<redacted:secret>%26"),
        ("r8_" + "a1" * 20 + " xapp-1-A01234-5678-abcdef", "<redacted:secret> <redacted:secret>"),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIabc bob@gpu17", "ssh-ed25519 <redacted:secret> user-1@host-1"),
        ("client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURQ==", "client-key-data: <redacted:secret>"),
        ("/home/李雷/x.py of 李雷", "/home/user-1/x.py of user-1"),
        ("/mnt/c/Users/bob/OneDrive - Initech/x.py", "/mnt/c/Users/user-1/OneDrive - dir-1/x.py"),
        ("Author: Jane Doe <jane.doe@initech.com>", "Author: user-1 <user-2@domain-1>"),
        ("to=jane.doe%40initech.com&p=%2Fhome%2Fzorv%2Fx", "to=user-2%40domain-1&p=%2Fhome%2Fuser-1%2Fx"),
        (r'"\/home\/zorv\/x"', r'"\/home\/user-1\/x"'),
        (
            "uid=1001(zorv) gid=5001(acme-ml) groups=5001(acme-ml),27(sudo)",
            "uid=1001(user-1) gid=5001(group-1) groups=5001(group-1),27(sudo)",
        ),
        ("New session 12 of user zorv.", "New session 12 of user user-1."),
        ("Accepted publickey for zorv from 10.3.4.5 port 51000", "Accepted publickey for user-1 from ip-private-1.1 port 51000"),
        ("drwxr-xr-x 2 zorv acme-ml 4096 Jan  1 12:00 runs", "drwxr-xr-x 2 user-1 group-1 4096 Jan  1 12:00 runs"),
        ("zorv:x:1001:1001:Jane Doe,,,:/home/zorv:/bin/sh", "user-1:x:1001:1001:user-2,,,:/home/user-1:/bin/sh"),
        ("| 70000 / 81559 MB | zorv(70000M) quux(12M)", "| 70000 / 81559 MB | user-1(70000M) user-2(12M)"),
        (
            "|    0   N/A  N/A      1234      C   ...me/zorv/venv/bin/python3   1234MiB |",
            "|    0   N/A  N/A      1234      C   ...me/user-1/venv/bin/python3   1234MiB |",
        ),
        (
            "|    0   N/A  N/A      1234      C   python train.py --plan moon   1234MiB |",
            "|    0   N/A  N/A      1234      C   python <redacted:arguments>   1234MiB |",
        ),
        ("[zeta-x:01234] *** Process received signal ***", "[host-1:01234] *** Process received signal ***"),
        ("mpirun -np 16 -H zeta-a:8,zeta-b:8 ./x", "mpirun -np 16 -H host-1:8,host-2:8 ./x"),
        ("SLURM_NODELIST=zeta-a,zeta-b SLURM_SUBMIT_HOST=eta", "SLURM_NODELIST=host-1,host-2 SLURM_SUBMIT_HOST=host-3"),
        ("zeta,10.1.2.3 ssh-rsa x", "host-1,ip-private-1.1 ssh-rsa x"),
        ("127.0.1.1 zeta", "127.0.1.1 host-1"),
        ("search initech.com hpc.initech.local", "search domain-1 host-1.domain-2"),
        ("no_proxy=.initech.com,localhost", "no_proxy=.domain-1,localhost"),
        ("nas-x:/export/home on /home type nfs4 (rw)", "host-1:/export/home on /home type nfs4 (rw)"),
        ("ip-10-1-2-3 is up", "host-1 is up"),
        ('Ca : 0x506b4b0300cbe2f8 ports 1 "zeta HCA-1"', 'Ca : guid-1 ports 1 "host-1 HCA-1"'),
        ('"Binds": ["zorv_vol:/c"], "Image": "moon/train:1"', '"Binds": ["dir-1:/c"], "Image": "image-1:1"'),
        (
            '"com.docker.compose.project": "moonshot", "Names": ["/moonshot-1"]',
            '"com.docker.compose.project": "container-2", "Names": ["/container-1"]',
        ),
        ("docker run -it -v zorv_vol:/c moon/train:1 sh", "docker run -it -v dir-1:/c image-1:1 sh"),
        (
            '3f2a9c1b7d6e   moon/train:1   "bash"   2 hours ago   Up 2 hours   zorv_box',
            'container-2   image-1:1   "bash"   2 hours ago   Up 2 hours   container-1',
        ),
        ("moonshot   train-7d9f8b6c5-x2k4p   0/1   Pending   0   1m", "namespace-1   pod-1   0/1   Pending   0   1m"),
        ("Successfully assigned moonshot/train-0 to zeta", "Successfully assigned namespace-1/pod-1 to host-1"),
        ("  4711  secretq moonshot   zorv  R   1:00   1 zeta17", "  job-2  account-1 job-1   user-1  R   1:00   1 host-1"),
        ("#SBATCH -A acme-acct", "#SBATCH -A account-1"),
        ("UserId=zorv(1001) GroupId=acme-ml(5001) Account=acme", "UserId=user-1(1001) GroupId=group-1(5001) Account=account-1"),
        ("/var/spool/slurmd/job4711/slurm_script", "/var/spool/slurmd/job-1/slurm_script"),
        ("from 2a02:8071:1::5: refused, eth0:2a02:8071:1::6<0>", "from ip-public-1.1: refused, eth0:ip-public-1.2<0>"),
        (
            "Using [0]eth0:fe80::a00:27ff:fe4e:66a1%eth0<0> %5B2a02:8071::5%5D",
            "Using [0]eth0:ip-link-1.1%eth0<0> %5Bip-public-2.1%5D",
        ),
        ("3cec.ef12.3456 mac=3cecef123456 BOOTIF=01-3c-ec-ef-12-34-56", "mac-1 mac=mac-1 BOOTIF=01-mac-1"),
        ("SN: ABC1234567, Service Tag: 7XKJ2Q3, Serial S6Z2NJ0T12", "SN: serial-1, Service Tag: serial-2, Serial serial-3"),
        ("wwn-0x5002538f00123456 eui.0025385b71b00aaa", "serial-1 serial-2"),
        ("Machine ID: 4D3C2B1A09F8E7D6C5B4A39281706F5E, UUID=1234-ABCD", "Machine ID: serial-1, UUID=serial-2"),
        ("i-0abcd1234ef567890 arn:aws:iam::123456789012:role/moonshot", "serial-1 serial-2"),
        ("projects/moonshot-1/zones/us-central1-a/instances/zeta-1", "projects/account-1/zones/us-central1-a/instances/host-1"),
        ("nfs: server zeta not responding, still trying", "nfs: server host-1 not responding, still trying"),
        ("systemd[1]: Set hostname to <zeta>.", "systemd[1]: Set hostname to <host-1>."),
        (
            "ip=10.1.2.3::10.1.2.1:255.255.255.0:zeta:eth0:none",
            "ip=ip-private-1.1::ip-private-1.2:255.255.255.0:host-1:eth0:none",
        ),
        ("MAC=3c:ec:ef:12:34:56:aa:bb:cc:dd:ee:ff:08:00", "MAC=mac-1"),
        ("Logged in as: zorv (acme-ml).", "Logged in as: user-1 (account-1)."),
        ("CN=Zorv Quux,OU=Users,DC=initech,DC=com", "CN=user-1,OU=Users,domain-1"),
        (
            "NET/IB : Using [0]mlx5_0:1/IB; OOB siteq0:10.1.2.3<0>",
            "NET/IB : Using [0]mlx5_0:1/IB; OOB iface-1.0:ip-private-1.1<0>",
        ),
        ("horovodrun -np 8 -H zeta-a:4,zeta-b:4 python", "horovodrun -np 8 -H host-1:4,host-2:4 python"),
        ("ray start --address='zeta:6379'", "ray start --address='host-1:6379'"),
        ("bo$ ssh -p 22 zeta nvidia-smi", "bo$ ssh -p 22 host-1 nvidia-smi"),
        ("Warning: Permanently added 'zeta' (ED25519)", "Warning: Permanently added 'host-1' (ED25519)"),
        (r"{\"hostname\":\"zeta\",\"user\":\"zorv\"}", r"{\"hostname\":\"host-1\",\"user\":\"user-1\"}"),
        ("https://wandb.ai/initech-ml/moonshot/runs/abc123xy", "https://wandb.ai/dir-1/dir-2/runs/dir-3"),
        ("trying to connect to (gpu17, 29500)", "trying to connect to (host-1, 29500)"),
        ("connect to 18.204.13.7 failed, MASTER_ADDR=3.92.14.7", "connect to ip-public-1.1 failed, MASTER_ADDR=ip-public-2.1"),
        ("any network address of (18.204.13.7, 29500)", "any network address of (ip-public-1.1, 29500)"),
        ("inet 18.1.2.3 peer 4.5.6.7 --master_addr 8.8.4.4", "inet ip-public-1.1 peer ip-public-2.1 --master_addr ip-public-3.1"),
        ("nfs rw,addr=3.4.5.6,clientaddr=18.7.8.9", "nfs rw,addr=ip-public-1.1,clientaddr=ip-public-2.1"),
        ("ping 93.184.216.34", "ping ip-public-1.1"),
        ("18.1.2.3 answers, 18.1.2.3:29500 does not", "ip-public-1.1 answers, ip-public-1.1:29500 does not"),
        ("hf_AbCdefghijklmnopqrstuvwxyzABCDEFGHIJK", "<redacted:secret>"),
        ("AZURE_OPENAI_KEY: 0123456789abcdef0123456789abcdef", "AZURE_OPENAI_KEY: <redacted:secret>"),
        ("--api_key abcDEFghi, the password is Tr0ub4dor", "--api_key <redacted:secret>, the password is <redacted:secret>"),
        ("/home/李雷/代码/train.py /data/проект/x.py", "/home/user-1/dir-1/train.py /data/dir-2/x.py"),
    ],
)
def test_what_tells_something_is_replaced(text: str, redacted_text: str) -> None:
    found = lines(text)
    assert found == [redacted_text]
    assert lines(*found) == found  # a second time changes nothing


def test_a_value_has_the_same_token_everywhere() -> None:
    snapshot = taken(
        "bob logged in on node-x9: bob@node-x9, GPU-0a1b2c3d-1111-2222-3333-444455556666", "node-x9 is bob's, BOB_DIR"
    )
    found = [line for _, line in redacted(snapshot).snapshot.replies["text:dmesg.txt"].value["lines"]]
    assert found == [
        "user-1 logged in on host-1: user-1@host-1, GPU-00000001-0000-4000-8000-000000000001",
        "host-1 is user-1's, user-1_DIR",
    ]


def test_parts_of_uuids_choose_the_same_gpus() -> None:
    one, other = "GPU-5e1f3a20-4a71-4c2e-9b1f-7d2a91c04f10", "GPU-5e1f9999-4a71-4c2e-9b1f-7d2a91c04f11"
    chosen = ("GPU-5e1f3a20", "GPU-5e1f9", "GPU-5e1f", "GPU-77", "0,1")
    snapshots = [taken(f"{one} {other}", environment={"CUDA_VISIBLE_DEVICES": value}) for value in chosen]
    first, second, both, neither, numbers = (
        redacted(snapshot).snapshot.replies["environment"].value["CUDA_VISIBLE_DEVICES"] for snapshot in snapshots
    )
    assert (first, second, numbers) == ("GPU-00000001", "GPU-00000002", "0,1")
    assert all(f"GPU-0000000{number}-".startswith(both) for number in (1, 2))
    assert neither == "GPU-00000003"


@each("name", ["a", "cuda", "root", "max", "driver", "torch", "gpu0", "ubuntu", "12", "node1", "will"])
def test_a_name_that_is_a_word_goes_where_it_is_a_name_and_nowhere_else(name: str) -> None:
    prose = f"{name} is a word: cuda driver error 12 on gpu0 of node1, a max of 12 will do for torch on ubuntu"
    found = lines(f'File "/home/{name}/train.py", line 1', prose)
    assert found[0] == ('File "/home/root/train.py", line 1' if name == "root" else 'File "/home/user-1/train.py", line 1')
    assert found[1] == prose


@each("kind", KEPT_ON_REQUEST)
def test_what_is_kept_is_kept_and_the_rest_is_not(kind: str) -> None:
    given = [value for value, of in canaries.VALUES.items() if of == kind]
    text = "\n".join(lines(*canaries.TEXT.split("\n"), keep=(kind,), words=(canaries.WORD,)))
    for value in given:
        is_more = kind in ("processes", "domains") or value == canaries.CONTAINER  # these hold, or look like, something else
        if value in canaries.TEXT and not is_more:
            assert value in text, value
    others = [value for value, of in canaries.VALUES.items() if of != kind]
    assert [value for value in others if value in text and not any(value in kept for kept in given)] == []


def test_a_word_goes_wherever_it_begins_a_name() -> None:
    text = "apollo01 ApolloTrainer my-apollo apollo_x APOLLO, apollonius"
    assert lines(text, words=("apollo ",)) == ["word-1.01 word-1.Trainer my-word-1 word-1_x word-1, apollonius"]


def test_a_host_that_is_called_after_a_gpu_leaves_the_gpu_its_name() -> None:
    assert lines("bob@l40s: NVIDIA L40S", "Jan 01", "jan@gh200: GH200") == [
        "user-1@host-1: NVIDIA L40S",
        "Jan 01",
        "user-2@host-2: GH200",
    ]


def test_secrets_are_not_kept_and_not_in_the_map() -> None:
    assert "secrets" not in KEPT_ON_REQUEST
    done = redacted(canaries.planted())
    private = str(done.tokens.private())
    assert canaries.USER in private
    for secret in (canaries.TOKEN, canaries.KEY, canaries.PASSWORD, canaries.IN_KEY):
        assert secret not in private


def test_tokens_of_an_earlier_report_are_used_again_and_new_ones_come_after() -> None:
    first = redacted(taken("bob@n-a-1 10.9.9.1"))
    again = redacted(taken("eve@n-b-2 10.9.9.2", "bob@n-a-1 10.9.9.1"), tokens=first.tokens.private())
    assert [line for _, line in again.snapshot.replies["text:dmesg.txt"].value["lines"]] == [
        "user-2@host-2 ip-private-1.2",
        "user-1@host-1 ip-private-1.1",
    ]
    assert lines("eve@n-b-2 10.9.9.2") == ["user-1@host-1 ip-private-1.1"]  # without the map nothing links two reports


def test_tokens_of_a_redacted_snapshot_are_given_to_nobody_else() -> None:
    assert lines("user-1@host-1 and eve@n-b-2", "ip-private-1.1, 10.0.0.9:22, /home/user-1/x") == [
        "user-1@host-1 and user-2@host-2",
        "ip-private-1.1, ip-private-2.1:22, /home/user-1/x",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("text", [string.printable, "\x00\ufffd\udcff".encode("utf-8", "replace").decode(), "(" * 500, "/" * 999])
def test_odd_texts_do_no_harm(text: str) -> None:
    assert len(lines(*text.split("\n"), words=("zorv(", "zorv*", "zo rv"))) == len(text.split("\n"))


@each("odd", [3, True, "bob@n-a-1", [], [3], ["bob@n-a-1"], {"lines": 3}, {"lines": [3, None]}, {"lines": ["bob@n-a-1"]}])
def test_an_answer_of_another_form_is_gone_through_all_the_same(odd: object) -> None:
    questions = (
        "environment",
        "identity",
        "kernel-log",
        "container-start",
        "nccl-log",
        "nvml:gpu0",
        "text:a",
        "glob:/sys/class/net/*",
    )
    found = redacted(
        Snapshot(SNAPSHOT_SCHEMA, "1", "2025-01-01T00:00:00Z", {question: Reply("ok", odd) for question in questions})
    )
    assert "n-a-1" not in str(found.snapshot)


@pytest.mark.slow
def test_long_lines_take_no_long_time() -> None:
    for part in (
        "a.",
        "a-",
        "a:",
        "1.",
        "0:",
        "a@",
        "/a",
        "\\a",
        "ab=",
        "'/",
        "user: ",
        "GPU-",
        "docker run ",
        "x 1 2 ",
        "e:",
        "eth0:",
        "...a/",
        " 1 R",
        "  1",
        "srun ",
        "-p ",
        "mysql -p",
        "A ",
        "%2F",
        "A_",
        ",1(a)",
        "arn:aws:",
        "login x password ",
        "Cookie: ",
        "rw",
        "assigned a/",
        '"a:/',
        "A b. ",
        "curl -u ",
        "/Users/A B",
        "NVIDIA, ",
        "tcp://[",
        "1|a|",
        "name: A_KEY value ",
        "password  ",
    ):
        text = f"docker scp srun key%3d token= {part * (20_000 // len(part))}"
        assert processor_seconds(lambda: lines(text)) < 3, part  # noqa: B023


def test_questions_and_the_names_of_programs_stay() -> None:
    for case in ("h100-measured", "no-gpu"):
        snapshot = machine.load(case)
        assert list(redacted(snapshot).snapshot.replies) == list(snapshot.replies)
    names = (*toolchain._PROGRAMS, *runtime.PROGRAMS, *(part for path in toolchain._HEADERS for part in path.split("/")))
    assert [name for name in names if not says_nothing(name)] == []


@pytest.mark.slow
def test_what_gpudoctor_itself_says_is_not_changed() -> None:
    done = redacted(machine.load("no-gpu"))
    for id, check in catalog.checks().items():
        texts = [*explanation.of_check(check)]
        for problem in catalog.found_by(check):
            texts += explanation.of_problem([check], problem)
        for text in texts:
            assert done.sweep(text) == text, id
    for id, problem in messages.problems().items():
        fixes = [text for fix in problem.fixes for text in (fix.title, fix.command, fix.verify, fix.undo)]
        for text in (problem.title, problem.why, *problem.references, *fixes):
            assert done.sweep(text) == text, id


def test_summary_counts_values_by_kind() -> None:
    done = redacted(taken("bob@n-a-1 10.9.9.1 10.9.9.2"))
    assert done.summary() == "Redacted: 4 values of 3 kinds (1 user, 1 host, 2 addresses)"
    assert redacted(taken("nothing")).summary() == "Redacted: nothing, no private value was found"
    assert all(kind.words for kind in KINDS.values())


@each("word", ["current_link_speed", "Fatal", "gpudoctor", "testsuite", "Link"])
def test_words_of_gpudoctor_itself_are_refused(word: str) -> None:
    with pytest.raises(UserError, match="gpudoctor uses this word in its reports"):
        own_words.refuse([word])


@pytest.mark.parametrize("word", ["apollo", "gpu01", "zorvik", "Æther"])
def test_words_of_remarks_and_examples_are_free(word: str) -> None:
    own_words.refuse([word])


@pytest.mark.slow
@pytest.mark.parametrize("part", ["_TOKEN", "a.coma.com", "A.", "GPU-", "1 -> ", "x.com ", "-----BEGIN PRIVATE KEY-----"])
def test_the_time_grows_with_the_length_and_not_with_its_square(part: str) -> None:
    def seconds(length: int) -> float:
        return processor_seconds(lambda: lines(part * (length // len(part))))

    seconds(100)
    # 16 times as long as a square would be, each time; what else the machine does slows one of the two.
    assert any(seconds(256_000) < 0.1 + 12 * seconds(64_000) for _ in range(4))


@each("text", ["export TOKEN=\\", "DB_PASSWORD=\\", "  --password \\", "api_key: \\", '"token": "', "Cookie: \\", "HF_TOKEN='"])
def test_a_secret_cut_off_at_the_end_of_its_line_is_no_crash(text: str) -> None:
    assert len(lines(text, "RuntimeError: CUDA error: out of memory")) == 2


def test_a_rule_that_fails_costs_the_line_and_not_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def dropped(self: Credentials, text: str) -> str:
        if "oddity" in text:
            raise IndexError(text)
        return text

    monkeypatch.setattr(Credentials, "dropped", dropped)
    assert lines("an oddity of zorv@n-a-1", "zorv@n-a-1 nvidia-smi") == ["<redacted:secret>", "user-1@host-1 nvidia-smi"]


def test_what_stands_at_a_cut_of_a_long_text_is_redacted() -> None:
    for filler in ("x " * 9_000, "x" * 16_300 + " "):
        (text,) = lines(f"{filler}peer 10.77.88.99 of zorv@n-a-1 {filler}10.77.88.99")
        assert "10.77.88.99" not in text
        assert "zorv" not in text
        assert len(text) > 2 * len(filler)


def test_a_sweep_finds_no_secret_in_what_gpudoctor_itself_writes() -> None:
    done = redacted(machine.load("no-gpu"))
    report = doctor.judge(done.snapshot, doctor.select(catalog.checks(), "quick"))
    for form in formats.FORMATS:
        done.sweep(formats.render(form, report, done.snapshot))
    assert "secrets" not in done.tokens.counts()
