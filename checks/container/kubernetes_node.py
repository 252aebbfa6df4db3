"""On a Kubernetes node, containerd or CRI-O can give the GPU to pods.

What it means
Kubernetes learns about GPUs from a device plugin, which is itself a pod. Unless containerd starts the plugin through NVIDIA's
runtime or with CDI, the plugin finds no driver library and waits forever. The node then has no nvidia.com/gpu.

How it is judged
On a node with a kubelet, one of these must exist: a runtime named nvidia in containerd's configuration, in a file that it
imports or in that of k3s; or a CDI specification for the GPU. containerd and CRI-O read their files only when they start, so the
files must not be newer than the start of the daemon.

Known exceptions
CRI-O needs no runtime named nvidia if NVIDIA's hook is among its OCI hooks, so only its restart is judged. A changed file is
only a warning if the toolkit is older than the daemon's start. A runtime that is not the default is enough for pods that name a
RuntimeClass, so it passes.

References
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
RUNTIME = re.compile(
    r"""
    ^[^#\n]* \bruntimes\.["']?nvidia["']?
    | ^\s*default_runtime_name \s*=\s* ["']nvidia
    """,
    re.MULTILINE | re.VERBOSE,
)
CDI_GPU = re.compile(r'"?kind"?\s*:\s*"?nvidia\.com/gpu\b')

ALLOCATABLE = "kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'"

NO_RUNTIME = Problem(
    id="k8s-device-plugin-no-nvml",
    title="NVIDIA's runtime is not configured in the node's containerd",
    why="The device plugin starts without the driver's libraries ('Detected non-NVML platform: could not load NVML library'). "
    "The node therefore offers no nvidia.com/gpu: 'Insufficient nvidia.com/gpu'.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Register NVIDIA's runtime as containerd's default, and restart containerd",
            "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl restart containerd",
            risk="disruptive",
            verify=ALLOCATABLE,
            kind="restart",
            needs=("root",),
        ),
        Fix(
            "Restart k3s, which detects an installed toolkit when it starts",
            "sudo systemctl restart k3s",
            risk="disruptive",
            kind="restart",
            needs=("root",),
        ),
    ),
    references=(GUIDE,),
)


IMPORT = Fix(
    "Add the drop-in files to the imports of config.toml, and restart containerd",
    "sudo sed -i.bak -E -e <first_line> -e '/^ *imports *=[^]]*$/,/]/d' -e '/^ *imports *=/d' "
    "/etc/containerd/config.toml && sudo systemctl restart containerd",
    risk="disruptive",
    verify="containerd config dump | grep -A3 nvidia",
    kind="restart",
    needs=("root",),
)

OF_K3S = "/rancher/k3s/"
SERVICES = {"containerd": "sudo systemctl restart containerd", "crio": "sudo systemctl restart crio"}
K3S = "sudo systemctl restart k3s || sudo systemctl restart k3s-agent"
NAMES = {"containerd": "containerd", "crio": "CRI-O"}
PLUGIN = Fix(
    "Restart the device plugin, which looks for the driver only when it starts",
    "for label in name=nvidia-device-plugin-ds app=nvidia-device-plugin-daemonset app.kubernetes.io/name=nvidia-device-plugin; "
    "do kubectl delete pod -A -l $label; done",
    risk="disruptive",
    verify=ALLOCATABLE,
)
WHY = (
    "containerd and CRI-O read their configuration only when they start. Until a restart, pods get the old runtime: the device "
    "plugin starts without the driver's libraries, and the node offers no nvidia.com/gpu."
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if not facts.engines.kubernetes_node:
        raise Skip("this is not a Kubernetes node")
    if not facts.system.wsl and facts.driver.module_version is None:
        raise Skip("no NVIDIA driver is loaded for pods to use")
    texts, of_crio = facts.engines.containerd_config, facts.engines.crio_config
    if not texts and not of_crio:
        raise Skip("no configuration of containerd or CRI-O was found", Skip.NOT_INSTALLED)
    if any(CDI_GPU.search(text) for text in facts.engines.cdi_specs.values()):
        return
    if of_crio or any(RUNTIME.search(text) for text in texts.values()):
        finding = not_restarted(facts, "crio" if of_crio else "containerd", of_crio or texts)
        yield from [finding] if finding else []
        return
    if finding := not_imported(facts):
        yield finding
        return
    files = sorted(texts)
    words = f"no runtime named nvidia in {', '.join(files)}, and no CDI specification"
    yield NO_RUNTIME.found(words, {"files": files}, confidence=Confidence.LIKELY)


def not_restarted(facts: Facts, daemon: str, files: Mapping[str, str]) -> Finding | None:
    """A failure if the toolkit is also newer than the start; else a warning, as the runtime may have been known before."""
    named = sorted(path for path, text in files.items() if RUNTIME.search(text))
    if not known(lambda: facts.engines.written_after_start(named, daemon)):
        return None
    status = Status.FAIL if facts.engines.toolkit_newer_than(daemon) else Status.WARN
    restart = K3S if any(OF_K3S in path for path in named) else SERVICES[daemon]
    fixes = (
        Fix("Restart it (pods keep running)", restart, risk="disruptive", verify=ALLOCATABLE, kind="restart", needs=("root",)),
        PLUGIN,
    )
    title = f"The node's {NAMES[daemon]} started before NVIDIA's runtime was configured"
    told = f"{', '.join(named)} has NVIDIA's runtime, but was written after {NAMES[daemon]} started, which reads it only then"
    about = replace(NO_RUNTIME, title=title, why=WHY, status=status, fixes=fixes)
    return about.found(told, {"files": named, "daemon": daemon}, confidence=Confidence.LIKELY)


def not_imported(facts: Facts) -> Finding | None:
    """A drop-in file has the runtime, but config.toml (usually because it was regenerated) does not import it."""
    unread, imports = facts.engines.containerd_not_imported, facts.engines.containerd_imports or ()
    files = [path for path, text in unread.items() if RUNTIME.search(text)]
    if not files:
        return None
    wanted = ", ".join(f'"{pattern}"' for pattern in (*imports, f"{files[0].rpartition('/')[0]}/*.toml"))
    problem = replace(NO_RUNTIME, fixes=(IMPORT, *NO_RUNTIME.fixes))
    words = f"{', '.join(files)} has NVIDIA's runtime, but config.toml does not import it, so containerd does not read it"
    return problem.found(words, {"files": files, "first_line": f"1i imports = [{wanted}]"})


def summary(facts: Facts) -> str:
    if facts.engines.crio_config:
        return "CRI-O has read its configuration"
    return "containerd has NVIDIA's runtime or its CDI devices"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_RUNTIME,),
    tags=("kubernetes",),
)
