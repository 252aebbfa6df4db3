"""On a Kubernetes node, containerd or CRI-O can hand the GPU to pods.

What it means
Kubernetes learns of GPUs from a device plugin, which is itself a pod. Unless containerd starts it through NVIDIA's runtime (or
by CDI) it finds no driver library, waits for ever, and the node has no nvidia.com/gpu.

How it is judged
Where there is a kubelet: a runtime named nvidia in containerd's configuration, in the parts that it imports, or in k3s' own
one, or a CDI specification of the GPU on the node. containerd and CRI-O read their files only when they start: those must not be
younger than the daemon.

Known exceptions
CRI-O needs no runtime named nvidia where NVIDIA's hook is among its OCI hooks: only its restart is judged. A file that was
changed after the toolkit had long been there only warns. A runtime that is not the default one is enough where pods name a
RuntimeClass, so it is healthy here.

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
    title="Kubernetes' containerd does not know NVIDIA's runtime",
    why="The device plugin starts without the driver's libraries ('Detected non-NVML platform: could not load NVML library'), so "
    "that the node offers no nvidia.com/gpu: 'Insufficient nvidia.com/gpu'.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Register the runtime with containerd as the default one, and restart it",
            "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl restart containerd",
            risk="disruptive",
            verify=ALLOCATABLE,
            kind="restart",
            needs=("root",),
        ),
        Fix(
            "k3s finds an installed toolkit by itself when it starts",
            "sudo systemctl restart k3s",
            risk="disruptive",
            kind="restart",
            needs=("root",),
        ),
    ),
    references=(GUIDE,),
)


IMPORT = Fix(
    "Let config.toml import the drop-in files again, and restart containerd",
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
    "Then let the device plugin start anew, which looks for the driver only at its start",
    "for label in name=nvidia-device-plugin-ds app=nvidia-device-plugin-daemonset app.kubernetes.io/name=nvidia-device-plugin; "
    "do kubectl delete pod -A -l $label; done",
    risk="disruptive",
    verify=ALLOCATABLE,
)
WHY = (
    "containerd and CRI-O read their configuration only when they start. Until then pods get the old runtime: the device plugin "
    "starts without the driver's libraries, and the node offers no nvidia.com/gpu."
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if not facts.engines.kubernetes_node:
        raise Skip("this is no Kubernetes node")
    if not facts.system.wsl and facts.driver.module_version is None:
        raise Skip("no NVIDIA driver is loaded that pods could use")
    texts, of_crio = facts.engines.containerd_config, facts.engines.crio_config
    if not texts and not of_crio:
        raise Skip("there is no configuration of containerd or CRI-O", Skip.NOT_INSTALLED)
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
    """Told as a failure where the toolkit came after the start, too: else the runtime may have been there before."""
    named = sorted(path for path, text in files.items() if RUNTIME.search(text))
    if not known(lambda: facts.engines.written_after_start(named, daemon)):
        return None
    status = Status.FAIL if facts.engines.toolkit_newer_than(daemon) else Status.WARN
    restart = K3S if any(OF_K3S in path for path in named) else SERVICES[daemon]
    fixes = (
        Fix("Restart it (running pods go on)", restart, risk="disruptive", verify=ALLOCATABLE, kind="restart", needs=("root",)),
        PLUGIN,
    )
    title = f"Kubernetes' {NAMES[daemon]} was not restarted since it was told of NVIDIA's runtime"
    told = f"{', '.join(named)} has NVIDIA's runtime, and was written after {NAMES[daemon]} had started, which reads it only then"
    about = replace(NO_RUNTIME, title=title, why=WHY, status=status, fixes=fixes)
    return about.found(told, {"files": named, "daemon": daemon}, confidence=Confidence.LIKELY)


def not_imported(facts: Facts) -> Finding | None:
    """A drop-in file has the runtime, and config.toml (made anew, mostly) does not import it."""
    unread, imports = facts.engines.containerd_not_imported, facts.engines.containerd_imports or ()
    files = [path for path, text in unread.items() if RUNTIME.search(text)]
    if not files:
        return None
    wanted = ", ".join(f'"{pattern}"' for pattern in (*imports, f"{files[0].rpartition('/')[0]}/*.toml"))
    problem = replace(NO_RUNTIME, fixes=(IMPORT, *NO_RUNTIME.fixes))
    words = f"{', '.join(files)} has NVIDIA's runtime, but the imports of config.toml do not name it: containerd does not read it"
    return problem.found(words, {"files": files, "first_line": f"1i imports = [{wanted}]"})


def summary(facts: Facts) -> str:
    if facts.engines.crio_config:
        return "CRI-O has read its configuration"
    return "containerd has NVIDIA's runtime or its CDI devices"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_RUNTIME,),
)
