"""Words that identify no one: parts of paths, public domains, usual names of interfaces."""

from __future__ import annotations

import re

_PATH_WORDS_TEXT = """
    srv home homes users user root mnt media data datasets dataset scratch work workspace workspaces project projects share
    shared software apps app cm nfs gpfs lustre storage cluster tmp temp var lib libs libexec bin sbin include etc opt usr
    local src source sources build builds builder dist target targets site packages package python pip conda miniconda
    anaconda miniforge mambaforge micromamba mamba envs env venv venvs virtualenv virtualenvs pyenv versions uv cache caches
    config docker podman containerd singularity apptainer images image containers container overlay merged upper lower nvidia
    cuda cudnn nccl cublas cusparse cusolver cufft curand cutensor toolkit toolkits compat stubs nvvm libdevice torch pytorch
    torchvision torchaudio tensorflow jax jaxlib triton vllm transformers huggingface hub deepspeed bitsandbytes cupy numba
    numpy scipy onnxruntime tensorrt cutlass aten atens native functorch inductor dynamo caffe c10 c10d thc flash attn apex
    xformers ollama llama llm models model checkpoints checkpoint ckpt weights logs log runs run output outputs results train
    trainer training test tests eval inference infer main script scripts notebook notebooks examples example sample samples
    tools tool utils util core common modules module csrc gcc g cc clang llvm cmake make ninja kernel kernels drivers driver
    boot dev proc sys fs cgroup slice scope service session uid job jobs step task tasks system machine init kubepods
    besteffort burstable guaranteed pod pods libpod crio cri lxc lxd snap flatpak slurm slurmd slurmctld spool ecs buildkit
    kubelet kubernetes rancher k3s agent plugins plugin volumes volume api v chat completions generate generations embeddings
    health metrics version tags blobs manifests v1beta info ping json txt md py pyc so a o h hpp hxx cpp cxx cu cuh ptx cubin
    fatbin c out err yaml yml toml conf cfg ini sh bash csv tsv xml html gz tar tgz zip whl egg link pt pth safetensors onnx
    sif simg sock socket ipynb pid lock tmpl bz zst xz ko deb rpm d bc in inf dll exe s ll rs go js ts x86 amd64 arm64 aarch64
    linux gnu windows win system32 program files programdata desktop documents downloads appdata roaming the and of with for
    to no new old default base latest current stable release debug cpu gpu gpus rank node worker workers server client serve
    serving launch launcher launchers start entry entrypoint update setup install installer pyproject requirements environment
    manifest index configuration daemon dockerfile compose devcontainer settings state ports port net class subsystem devices
    device bus pci platform firmware efi efivars mapper disk by ctl nvidiactl uvm caps render dri dxg wsl shm mqueue pts null
    uevent zero mem mps pipe nvlog backends backend engine engines executor ops op optim nn autograd distributed elastic
    multiprocessing runtime runtimes compiler codegen contrib vendor third party math functions gemm conv attention embedding
    layers loss loader dataloader collect report snapshot baseline nvml smi nsight systems compute profile profiles profiler
    trace traces dmesg syslog journal messages kern xorg bug fabric manager fabricmanager bashrc zshrc ssh known hosts
    authorized keys ld preload gnupg certs certificates ssl tmux screen vscode cursor jupyter ipykernel ipython kaggle colab
    content input working autodl ephem wheel wheels feedstock artifacts bld pkgs lib64 lib32 host guest grub vmlinuz initrd
    d3cold allowed power control initramfs img modprobe akmods
    dkms updates extra misc video arch family face hf xdg private public bin64 meta history
    helpers helper hook hooks rootfs binary binaries mpi openmpi ucx hpcx mellanox ofed doca gdrcopy nvshmem nvtx cupti nvrtc
    nvjitlink sanitizer gdb crash dump dumps oci bundle bundles shim address stdout stderr process processes thread threads
    netns torchrun platlib open physical cpython all reduce perf fwd bwd bf16 fp16 fp8 fp32 slurmstepd htcondor pbs
    controllers contexts labels benchmarks benchmark code vision nodes webui execution minimal finetune spawn queue compile
    custom patched geforce quadro tesla rtx gtx extras nsys dockerd portable embedded embeded diag nvcc ptxas nvlink cudafe
    cicc ncu nerdctl ctk cli vector types half information ldconfig modinfo systemctl dpkg query lspci journalctl nano
    xwayland accelerate uvicorn gunicorn your my path here file some nv computecache torchinductor condarc login clean fresh
    before after registry export exports onedrive swapfile swap extensions extension rh toolset enable activate azure vmext
    microsoft hpccompute nvidiagpudriverlinux iommu groups apt yum more others tf reset cn mine
    nvcuda nvsmi corporation computing snapshots ceph beegfs
    x11 unix argus gstreamer nomad fd comm wchan environ
    flashinfer npm lxss seen try ubuntu debian launchpad slurmdspooldir driverstore filerepository dispi off control
"""
PATH_WORDS = frozenset(_PATH_WORDS_TEXT.split())
PATH_WORD_FORMS = re.compile(
    r"""
    [a-z]?\d+[a-z]{0,2}
    | (?: cp | py | cu | sm | rc | post | amd | el | fc )\d+t?
    | [a-z]
    | (?: selfgz | ollama | torchelastic )\d*
    """,
    re.VERBOSE,
)
SPLIT_WORDS = re.compile(r"[\W_]+")
MADE_BY_TOOLS = re.compile(
    r"""
    \[?[*?]+\]? | \.singularity\.d | __\w+__
    | (?: pip- | nccl- | nvidia )[\w.+-]*
    | lib(?: cu | nv | nccl | torch )[\w.+-]* | lib[\w.+-]*\.(?:so|a)[\w.*]*
    | \$[\w{}]+ | [\w.]*\[[a-z0-9-]+\][\w.*]*
    | (?: cuda | cudnn | nvidia | NVIDIA | libnv\w* | nccl )[\w.+-]*\.(?:deb|rpm|run|pin)
    | apt-dpkg-install-\w+
    | (?: vmlinuz | initrd\.img | initramfs | linux-headers )-[\w.+-]+
    | TryCompile-\w+ | CMake\w* | \.cargo | index\.crates\.io-\w+
    | tmp[a-z0-9][a-z0-9_]{7}
    """,
    re.VERBOSE,
)

_ROOTS = r"""
    usr(?!/(?:local|home)) | lib | lib32 | lib64 | libx32 | bin | sbin | etc | proc | sys(?!/fs/cgroup/[^/]+/)
    | boot | nix | gnu | snap | init | \.\w[\w.]*
    | dev(?!/(?:mapper|disk|shm)/) | run(?!/(?:media|user)/)
    | pytorch | aten | __w | onnxruntime_src | vllm-workspace
    | var/(?:lib|cache|run|snap)(?!/(?:docker/volumes|kubelet/pods|libvirt)/)
    | opt/(?:
        conda | nvidia | cuda | hpcx | pytorch | torch | rocm | amazon | aws | mellanox | intel | microsoft | tritonserver
        | gcc | google | vllm
    )
    | usr/local/(?: cuda | nvidia | lib | lib64 | bin | sbin | include | share | mpi | ucx )
"""
KNOWN_ROOTS = re.compile(rf"/(?: {_ROOTS} )(?![\w.])", re.VERBOSE)
"""Folders of the system, of a distribution or a public image: their content does not identify the owner."""
KNOWN_VERSIONED_ROOTS = re.compile(r"/(?:usr/local|opt)/(?:cuda|nvidia)-[\w.]+")
RELATIVE_ROOTS = frozenset({"third_party", "aten", "c10", "torch", "csrc", "vllm", "src", "gpudoctor", "transport", "nvidia"})
NAMED_AFTER = re.compile(r"/(?:envs|volumes|machines|venvs|virtualenvs|worktrees)/([^/]+)")
PACKAGES = re.compile(
    r"""
    /(?:
        site-packages | dist-packages
        | lib/python3(?:\.\d+)?t?(?=/(?!site-packages|dist-packages))
        | lib-dynload
        | \.cargo/registry/src/index\.crates\.io-\w+
    )(?=/|$)
    """,
    re.VERBOSE,
)

_DOMAINS_TEXT = """
    nvidia.com nvcr.io nvidia.cn geforce.com nvidia.github.io docker.io docker.com github.com github.io githubusercontent.com
    gitlab.com pytorch.org tensorflow.org python.org pypi.org pythonhosted.org pypa.io anaconda.org anaconda.com conda.io
    conda-forge.org ubuntu.com launchpad.net canonical.com debian.org kernel.org x.org redhat.com fedoraproject.org centos.org
    rockylinux.org almalinux.org archlinux.org opensuse.org suse.com proxmox.com rpmfusion.org nixos.org gnu.org
    mathworks.com sudo.ws juliagpu.org
    freedesktop.org flatpak.org microsoft.com google.com huggingface.co hf.co quay.io ghcr.io gcr.io k8s.io kubernetes.io
    mcr.microsoft.com ngc.nvidia.com jax.dev cupy.dev vllm.ai sglang.ai sglang.io onnxruntime.ai schedmd.com man7.org
    cmake.org astral.sh wikipedia.org oasis-open.org arxiv.org techpowerup.com paddlepaddle.org.cn mullet.se deepspeed.ai
    cnblogs.com baseten.co stackexchange.com stackoverflow.com askubuntu.com triton-lang.org swtch.com rootlesscontaine.rs
    opengroup.org openxla.org git-lfs.com
    python-poetry.org numpy.org readthedocs.io readthedocs.org no-color.org json-schema.org go.dev containers.dev fixstars.com
    phoronix.com open-mpi.org open-mmlab.com tsinghua.edu.cn aliyun.com wandb.ai openai.com ollama.com ollama.ai
    pypi.python.org amd.com intel.com mellanox.com oracle.com vmware.com xrdp.org w3.org example.com example.org example.net
    discord.com discordapp.com slack.com
    hashicorp.com podman.io firewalld.org linux-kvm.org vpc.amazonaws.com k3s.io rapids.ai ray.io pyg.org lightning.ai
    launchpadcontent.net
    virginia.edu storage.googleapis.com aws.amazon.com public.ecr.aws research.google nist.gov
"""
DOMAINS = frozenset(_DOMAINS_TEXT.split())
_NAMESPACES_TEXT = """
    library nvidia nvidia-ai-enterprise pytorch tensorflow rapidsai vllm lmsysorg huggingface continuumio jupyter rocm
"""
NAMESPACES = frozenset(_NAMESPACES_TEXT.split())
_IMAGES_TEXT = """
    ubuntu debian fedora rockylinux almalinux centos alpine busybox python archlinux hello-world registry cuda pytorch
    tensorflow scratch nginx redis postgres node golang
"""
IMAGES = frozenset(_IMAGES_TEXT.split())
_NUMBERED = r"""
    eth | ib | bond | team | wlan | wwan | tun | tap | wg | ppp | dummy | veth | docker | podman | virbr | vmbr | lxdbr | lxcbr
    | br | cni | cbr | cilium | flannel | vxlan | rdma | kube-ipvs | nodelocaldns | hsn | usb | sit | gre | ipvl | macvtap
    | macvlan | nerdctl | vmnet | vnet | tailscale | zt | utun | can | ifb | tunl | ip6tnl | gretap | erspan | ip_vti | ip6_vti
    | ip6gre | nlmon | bridge
"""
INTERFACES = re.compile(
    rf"""
    lo | bonding_masters
    | (?: {_NUMBERED} )\d*
    | cilium_\w+ | flannel\.\d+ | vxlan\.calico
    | (?: mlx | ens | ocp )\w*\d
    | (?: en | eth | wl | ww | ib | sl )(?:
        p\d+ | P\d+ | o\d+ | s\d+ | f\d+ | n\d*p?\d* | d\d+ | i\d+ | v\d+ | u\d+ | c\d+ | b\d+
    )+
    | (?: cali | veth | lxc | br- | azv | eni | gke | enx )[0-9a-f]{{6,}}
    """,
    re.VERBOSE,
)
"""Interface names given by kernels, drivers and engines. A user chose any other name, such as a site's bond."""
