"""Problems that only two outputs of a text show together: what is configured or requested against what is there."""

from __future__ import annotations

from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Fix, Problem, Status

SMI_IN_JOB = "srun --gres=gpu:1 nvidia-smi -L"
OFFERED = "kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'"
LOAD_PEERMEM = "sudo modprobe nvidia-peermem && echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf"
UNLOAD_PEERMEM = "sudo rm /etc/modules-load.d/nvidia-peermem.conf && sudo modprobe -r nvidia-peermem"

NOT_CONSTRAINED = Problem(
    id="slurm-devices-not-constrained",
    title="Slurm does not confine jobs to their GPUs",
    why="Slurm sets CUDA_VISIBLE_DEVICES for a job, but only ConstrainDevices=yes in cgroup.conf keeps it from the other GPUs. "
    "Jobs that set the variable themselves, or start a container, use GPUs of other jobs.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look(
            "Set ConstrainDevices=yes in cgroup.conf and TaskPlugin=task/cgroup in slurm.conf, then restart slurmd on the nodes",
            "grep -iE 'ConstrainDevices|TaskPlugin' /etc/slurm/cgroup.conf /etc/slurm/slurm.conf",
            verify=SMI_IN_JOB,
        ),
    ),
    references=("https://slurm.schedmd.com/cgroup.conf.html", "https://github.com/NVIDIA/pyxis/issues/47"),
)
ANOTHER_NAME = Problem(
    id="k8s-resource-has-another-name",
    title="The pod requests a GPU resource that the node does not offer",
    why='With MIG in the strategy "mixed", each profile is a separate resource (nvidia.com/mig-1g.10gb), and nvidia.com/gpu '
    "counts only GPUs without MIG. Time slicing can rename it to nvidia.com/gpu.shared. The scheduler compares names.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Request the resource that the node offers, in resources.limits of the pod", OFFERED),
        Fix(
            "Let the device plugin offer all instances as nvidia.com/gpu: MIG strategy single, which needs instances of one "
            "profile only"
        ),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html",),
)
TOO_MANY = Problem(
    id="k8s-request-larger-than-node",
    title="The pod requests more GPUs than the node has",
    why="A pod runs on one node, so its request must fit on one. The scheduler does not combine GPUs of several nodes.",
    action=Action.FIX_CONFIG,
    fixes=(
        look(
            "Lower the request to what one node has, or start several pods (PyTorchJob, JobSet)",
            "kubectl describe nodes | grep -E '^Name:|nvidia.com/'",
        ),
    ),
    references=("https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",),
)
NOT_ADDED = Problem(
    id="lxd-container-without-gpu",
    title="The LXD or Incus container is not set up for the GPU",
    why="A device of type gpu adds the GPU's nodes, and nvidia.runtime=true adds the libraries and nvidia-smi of the host's "
    "driver. Without both, programs in the container find no GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "On the host: add the GPU and the driver's libraries, then restart the container",
            "<container_tool> config device add <chosen_name> gpu gpu; <container_tool> config set <chosen_name> "
            "nvidia.runtime=true && <container_tool> restart <chosen_name>",
            risk="disruptive",
            verify="<container_tool> exec <chosen_name> -- nvidia-smi -L",
            kind="restart",
        ),
    ),
    references=(
        "https://documentation.ubuntu.com/lxd/latest/reference/devices_gpu/",
        "https://github.com/canonical/lxd/issues/3642",
    ),
)
NOT_DIRECT = Problem(
    id="nccl-without-gpudirect-rdma",
    title="The network adapter does not access the GPU's memory directly",
    why="Without GPUDirect RDMA, NCCL copies all data through host memory, which costs bandwidth. It needs nvidia-peermem on "
    'each node, or DMA-BUF (open kernel modules and Linux 5.12). NCCL logs "GDRDMA" where it is used.',
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "On each node without it: load the module, now and at each boot",
            LOAD_PEERMEM,
            undo=UNLOAD_PEERMEM,
            verify="lsmod | grep peermem",
            where="host",
            kind="set",
            needs=("root",),
        ),
        Fix("If it does not load: reinstall the NVIDIA driver after the adapter's driver (MLNX_OFED, DOCA), which it needs"),
    ),
    references=(
        "https://github.com/NVIDIA/nccl/issues/897",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
)
SLOW_LINK = Problem(
    id="ib-link-slow",
    title="One InfiniBand or RoCE port is slower than the others",
    why="A link trains at a lower speed or width with a bad cable, transceiver or switch port. NCCL's collectives run at the "
    "pace of the slowest one.",
    action=Action.REPLACE_HARDWARE,
    status=Status.WARN,
    fixes=(
        look(
            "Show speed, width and error counters of the link",
            "sudo mlxlink -d <adapter> -m -c",
            root=True,
            verify="ibstat <adapter>",
        ),
        Fix("Reseat or replace its cable, then its switch port; compare the port's configured speed on the switch"),
    ),
    references=("https://docs.nvidia.com/networking/display/mftv4270/mlxlink+utility",),
)
ONE_SUBNET = Problem(
    id="interfaces-share-subnet",
    title="Two network interfaces are in the same subnet",
    why="Linux answers ARP for both addresses on either interface and routes through the first, so packets for one adapter "
    "arrive at the other. RoCE connections then time out or share one link.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Give each adapter a different subnet, on all nodes", "ip -br addr; ip route"),
        Fix(
            "If they must share one: answer ARP only for the own address, and add a routing table for each interface",
            "sudo sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
            undo="sudo sysctl -w net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0",
            where="host",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://www.kernel.org/doc/Documentation/networking/ip-sysctl.txt",),
)
MTU = Problem(
    id="network-mtu-differs",
    title="Nodes of the same network have different MTUs",
    why="Small messages pass, and large ones from the node with the larger MTU are dropped: jobs start, then hang in the first "
    "large collective.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "On the nodes that differ: set the MTU of the others, and write it to the network's configuration",
            "sudo ip link set dev <interface> mtu <mtu>",
            verify="ip link show dev <interface>",
            where="host",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://man7.org/linux/man-pages/man8/ip-link.8.html",),
)
BUSY_RANK = Problem(
    id="rank-busy-before-collective",
    title="One rank does long work while the others wait in a collective",
    why="Only one rank scans, caches or tokenizes the data, and the others wait for it in a collective. NCCL aborts them after "
    "its timeout: 10 minutes by default, 30 in older PyTorch.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Do the work in one process before the job starts, so that all ranks find its result (a cache, a prepared data set)"),
        Fix(
            'Raise the timeout: init_process_group("nccl", timeout=datetime.timedelta(hours=2)); ddp_timeout in Transformers, '
            "InitProcessGroupKwargs in Accelerate"
        ),
    ),
    references=("https://docs.pytorch.org/docs/stable/distributed.html",),
)
LARGE_BUFFER = Problem(
    id="nccl-buffer-too-large",
    title="NCCL_BUFFSIZE is so large that its buffers cannot be registered",
    why="NCCL registers a buffer of this size for each channel and peer with the network adapter. The default is 4 MiB; with "
    "hundreds of MiB the adapter's translation tables or the GPU's address window are full, "
    "although memory is free and may be locked.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Unset NCCL_BUFFSIZE on all nodes, then start the job again", "unset NCCL_BUFFSIZE", kind="set", where="shell"),
        look(
            "Permanently: find the file that sets it",
            "grep -sn NCCL_BUFFSIZE /etc/nccl.conf ~/.nccl.conf ~/.bashrc /etc/environment || echo 'in none of these files'",
        ),
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-buffsize",),
)
HUGE_PAGES = Problem(
    id="huge-pages-unused",
    title="Reserved huge pages that nothing uses take the memory",
    why="vm.nr_hugepages and hugepages= on the kernel's command line take memory away at once, whether a program uses the pages "
    "or not. Without it, programs and page cache run out of memory on a machine that looks large enough.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Give the unused pages back until the next boot",
            "echo 0 | sudo tee /sys/kernel/mm/hugepages/hugepages-*/nr_hugepages",
            verify="grep -i huge /proc/meminfo",
            where="host",
            kind="set",
            needs=("root",),
        ),
        look(
            "Permanently: find what reserves them",
            "grep -rn nr_hugepages /etc/sysctl.conf /etc/sysctl.d; grep -o 'hugepages=[^ ]*' /proc/cmdline",
        ),
    ),
    references=("https://docs.kernel.org/admin-guide/mm/hugetlbpage.html",),
)
PROBLEMS = (
    *(NOT_CONSTRAINED, ANOTHER_NAME, TOO_MANY, NOT_ADDED, NOT_DIRECT, SLOW_LINK, ONE_SUBNET, MTU, BUSY_RANK),
    *(LARGE_BUFFER, HUGE_PAGES),
)
