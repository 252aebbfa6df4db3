"""What is configured in a text against what uses it: a service's GPU, a notebook's Python, a node's runtime, a file's mode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

OTHER_PYTHON = Problem(
    id="notebook-kernel-of-another-python",
    title="The notebook or service runs another Python than the shell",
    why="Activating an environment changes only the shell. Jupyter starts the Python that its kernel.json names, and systemd the "
    "one of ExecStart, with the packages installed there.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Add a kernel that runs the Python of the shell, then choose it in the notebook",
            "<python> -m pip install ipykernel && <python> -m ipykernel install --user --name gpu",
            verify="jupyter kernelspec list",
            undo="jupyter kernelspec uninstall -y gpu",
            kind="install",
            needs=("network",),
        ),
        Fix("In a service: name the environment's Python in ExecStart, then restart it (systemctl edit --full)"),
    ),
    references=("https://ipython.readthedocs.io/en/stable/install/kernel_install.html",),
)
NOT_READABLE = Problem(
    id="cdi-spec-not-readable",
    title="Only root can read the CDI specification",
    why="A rootless engine reads the specification as its user. It ignores a file that it cannot read, and reports an unknown "
    "device. A file has such a mode if it was written under a strict umask.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Let all users read it; it has no secrets",
            "sudo chmod 644 <file>",
            verify="nvidia-ctk cdi list",
            undo="sudo chmod 600 <file>",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",),
)
NOT_CHOSEN = Problem(
    id="k8s-nvidia-runtime-not-chosen",
    title="containerd has NVIDIA's runtime, but pods do not use it",
    why="containerd starts pods with its default runtime, here runc, unless their RuntimeClass names another. runc adds no "
    "driver, so the device plugin finds no NVML and offers no GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "On each GPU node: make NVIDIA's runtime the default, then restart containerd",
            "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl restart containerd",
            verify="grep -n default_runtime_name /etc/containerd/config.toml",
            risk="disruptive",
            where="host",
            kind="restart",
            needs=("root",),
        ),
        Fix(
            "Start the plugin's pods again",
            "kubectl -n <namespace> rollout restart ds <chosen_name>",
            verify="kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'",
            kind="restart",
        ),
        Fix("Create a RuntimeClass with the handler nvidia instead, and name it as runtimeClassName in the plugin and GPU pods"),
    ),
    references=("https://github.com/NVIDIA/k8s-device-plugin#configure-containerd",),
)
NO_NAMES = Problem(
    id="name-resolution-failed",
    title="Names of servers cannot be resolved, so nothing can be downloaded",
    why="The name server does not answer from here. Package lists stay empty or old, and the next message, that a package or a "
    "kernel is unknown, follows from that.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Show which name server is used, and whether it answers",
            "cat /etc/resolv.conf; getent hosts archive.ubuntu.com",
            kind="read",
        ),
        Fix(
            "In a pod: check the cluster's DNS, its network policies, and whether the node itself has a network",
            "kubectl -n kube-system get pods -l k8s-app=kube-dns; kubectl get networkpolicy -A",
            kind="read",
            on=("kubernetes",),
        ),
        Fix("On nodes without internet access: use a mirror, a proxy or images that contain the packages"),
    ),
    references=("https://kubernetes.io/docs/tasks/administer-cluster/dns-debugging-resolution/",),
)
PROBLEMS = (OTHER_PYTHON, NOT_READABLE, NOT_CHOSEN, NO_NAMES)

_LISTED = re.compile(r"^[ \t]*GPU (?P<index>\d+): [^\n]*\(UUID: (?P<uuid>GPU-[0-9a-f-]{36})\)", re.MULTILINE)
_NAMED = re.compile(
    r"""
    (?P<line> ^[^\n]*? )
    \b(?P<variable> (?:CUDA|NVIDIA)_VISIBLE_DEVICES )["']?\s*[=:]\s*["']?
    (?P<value> GPU-[0-9a-f]{4}[0-9a-f-]*(?:,GPU-[0-9a-f-]+)* )
    """,
    re.MULTILINE | re.VERBOSE,
)
_UNIT = re.compile(r"\bsystemctl (?:show|cat|status|edit|restart)\s+(?:-\S+ )*(?P<unit>[\w@.-]+)")
OF_SERVICE = (
    Fix(
        "In the service: set the variable to the UUID that nvidia-smi -L lists, or delete its line; then restart the service",
        "sudo systemctl edit <unit> && sudo systemctl restart <unit>",
        verify="systemctl show -p Environment <unit>",
        risk="disruptive",
        where="host",
        kind="manual",
        needs=("root",),
    ),
)


def gone_gpu(facts: Facts) -> Iterator[Finding]:
    """A variable names the UUID of a GPU that a whole nvidia-smi -L does not list."""
    text = "\n".join(passages(facts))
    listed = {match["uuid"]: int(match["index"]) for match in _LISTED.finditer(text)}
    if not listed or sorted(set(listed.values())) != list(range(len(set(listed.values())))):
        return
    for named in _NAMED.finditer(text):
        values = named["value"].split(",")
        if any(uuid.startswith(value) for value in values for uuid in listed):
            continue
        words = f"{named['variable']} names {values[0]}, which nvidia-smi -L does not list"
        evidence = {"value": named["value"], "valid": ",".join(listed)}
        problem, unit = facts.problems["cuda-visible-devices-unknown-gpu"], _UNIT.search(text)
        if unit and "Environment=" in named["line"]:
            problem, evidence = replace(problem, fixes=OF_SERVICE), {**evidence, "unit": unit["unit"]}
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)
        return


_OF_KERNEL = re.compile(r'"argv"\s*:\s*\[\s*"(?P<path>/[^"\n]*python[\d.]*)"')
_OF_CELL = re.compile(
    r"""
    Out\[\d+\]:\s*\(?\s*'(?P<path>/[^'\n]*python[\d.]*)'
    | \bIn\ ?\[\d*\]:(?:[^\n]*\n){1,6}?(?P<printed>/[^\s'"]*python[\d.]*)(?=[ \t\n])
    """,
    re.VERBOSE,
)
_OF_UNIT = re.compile(r"(?m)^ExecStart=(?P<path>/\S*python[\d.]*)\s")
_OF_SHELL = re.compile(
    r"""
    (?: \b(?:which|command\ -v|type\ -p|whereis\ -b)[ \t]+python[\d.]*[ \t]*\n
      | \bpython[\d.]*\ -c[^\n]{0,200}?sys\.executable[^\n]{0,200}\n )
    [ \t\n]{0,8}(?P<path>/\S{0,300}python[\d.]{0,12})(?:[ \t]+\S+){0,4}[ \t]*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_BLIND = re.compile(
    r"""
    Out\[\d+\]:[^\n]*\bFalse\b
    | \bFalse\b
    | ModuleNotFoundError
    | No\ module\ named
    | CpuDevice
    | \[\]
    """,
    re.VERBOSE,
)


def other_python(facts: Facts) -> Iterator[Finding]:
    """A notebook's kernel or a service names a Python in another folder than the shell's, and finds less than the shell."""
    text = "\n".join(passages(facts))
    shell = _OF_SHELL.search(text)
    if not shell or not _BLIND.search(text) or "True" not in text:
        return
    kinds = {"the notebook's kernel": (_OF_KERNEL, _OF_CELL), "the service": (_OF_UNIT,)}
    for who, patterns in kinds.items():
        matches = (match for pattern in patterns if (match := pattern.search(text)))
        found = next((path for match in matches for path in match.groups() if path), None)
        if found and found.rpartition("/")[0] != shell["path"].rpartition("/")[0]:
            words = f"{who} runs {found}, the shell {shell['path']}"
            fixes = OTHER_PYTHON.fixes if "kernel" in who else OTHER_PYTHON.fixes[1:]
            problem = replace(OTHER_PYTHON, fixes=fixes)
            yield problem.found(words, {"python": shell["path"], "used": found}, confidence=Confidence.LIKELY)
            return


_FOLDER = re.compile(r"(?P<folder>/etc/cdi|/var/run/cdi|/run/cdi)\b")
_ROOTS_FILE = re.compile(
    r"""
    ^-rw-(?:r--|r-x|---|rw-)---[.+]?\s+\d+\ root\ root\s[^\n]{0,200}?(?P<name>[\w.-]{0,100}\.(?:ya?ml|json))[ \t]*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_UNKNOWN = re.compile(r"unresolvable CDI devices|Found 0 CDI devices")


def unreadable(facts: Facts) -> Iterator[Finding]:
    """ls shows a CDI specification that others cannot read, and an engine or nvidia-ctk finds none."""
    text = "\n".join(passages(facts))
    file = _ROOTS_FILE.search(text)
    folders = [match["folder"] for match in _FOLDER.finditer(text[: file.start()])] if file else []
    if file and folders and _UNKNOWN.search(text):
        heading = re.findall(r"(?m)^(/(?:etc|var/run|run)/cdi)/?:$", text[: file.start()])
        path = f"{(heading or folders)[-1]}/{file['name'].rpartition('/')[2]}"
        words = f"{path} is readable only by root"
        yield NOT_READABLE.found(words, {"file": path}, confidence=Confidence.LIKELY)


_BY_ROOT = re.compile(
    r"""
    ^\S*[$#\ ]*sudo\ podman\ run\b[^\n]*nvidia\.com/gpu[^\n]*\n
    (?:[^\n$#]*\n){0,3}? [^\n]*(?: GPU\ 0: | NVIDIA-SMI\ \d )
    """,
    re.MULTILINE | re.VERBOSE,
)
_BY_USER = re.compile(r"(?m)^(?![^\n]*sudo)[^\n]*\bpodman run\b[^\n]*\n[^\n]*unresolvable CDI devices")


def for_root_only(facts: Facts) -> Iterator[Finding]:
    """podman finds the device as root, and not as the user."""
    text = "\n".join(passages(facts))
    works = _BY_ROOT.search(text)
    if works and _BY_USER.search(text) and not _ROOTS_FILE.search(text):
        words = "podman finds the CDI device as root, and not as this user"
        fixes = (
            Fix(
                "Let all users read the specifications; they have no secrets",
                "sudo find /etc/cdi /var/run/cdi -name '*.yaml' -exec chmod 644 {} +",
                verify="nvidia-ctk cdi list",
                kind="set",
                needs=("root",),
            ),
        )
        yield replace(NOT_READABLE, fixes=fixes).found(words, confidence=Confidence.LIKELY)


_DEFAULT = re.compile(r"""default_runtime_name\s*=\s*["']runc["']""")
_REGISTERED = re.compile(r"\bruntimes\.[\"']?nvidia\b[\s\S]{0,600}?nvidia-container-runtime")
_NO_NVML = re.compile(
    r"""
    Detected\ non-NVML\ platform
    | Incompatible\ (?:platform|strategy)\ detected
    | could\ not\ load\ NVML\ library
    """,
    re.VERBOSE,
)
_CLASS_USED = re.compile(r"runtimeClassName[\"']?:\s*[\"']?nvidia|^nvidia\s+nvidia\s+\d", re.MULTILINE)
_PLUGIN = re.compile(r"kubectl\b[^\n]*?(?:\s-n\s+|--namespace[ =])(?P<namespace>[\w-]+)")
_SET = re.compile(
    r"""
    \bds[/ ](?:-n\ \S+\ )?(?P<name>[\w.-]*device-plugin[\w.-]*)
    | \b(?P<pod>[\w-]*device-plugin[\w-]*?)-[a-z0-9]{5}\b
    """,
    re.VERBOSE,
)


def runtime_not_chosen(facts: Facts) -> Iterator[Finding]:
    """containerd knows NVIDIA's runtime, starts pods with runc, and the device plugin finds no driver."""
    text = "\n".join(passages(facts))
    if not (_DEFAULT.search(text) and _REGISTERED.search(text) and _NO_NVML.search(text)) or _CLASS_USED.search(text):
        return
    words = "containerd's config.toml registers the runtime nvidia, and default_runtime_name is runc"
    namespace, plugin = _PLUGIN.search(text), _SET.search(text)
    evidence = {"namespace": namespace["namespace"]} if namespace else {}
    evidence |= {"chosen_name": plugin["name"] or plugin["pod"]} if plugin else {}
    yield NOT_CHOSEN.found(words, evidence, confidence=Confidence.LIKELY)


_NO_NAME = re.compile(
    r"""
    Temporary\ failure\ resolving\ '(?P<apt>[^']+)'
    | Curl\ error\ \(6\):\ Could(?:n't|\ not)\ resolve\ host(?:name)?[^\n]{0,200}?
      (?P<dnf>(?<![\w-])[\w-]{1,63}(?:\.[\w-]{1,63}){1,12})
    | curl:\ \(6\)\ Could\ not\ resolve\ host:\ (?P<curl>\S+)
    | wget:\ unable\ to\ resolve\ host\ address\ ['‘](?P<wget>[^'’]+)
    | DNS:\ transient\ error\ \(try\ again\ later\)
    | (?:[Pp]ull|manifests)\b[^\n]{0,400}?\ lookup\ (?P<pull>[\w.-]+)(?:\ on\ \S+)?:
      \ (?:no\ such\ host|server\ misbehaving|Temporary\ failure)
    """,
    re.VERBOSE,
)
_FETCHED = re.compile(r"(?m)^(?:Hit|Get):\d+ |^Fetched \d")


def no_names(facts: Facts) -> Iterator[Finding]:
    """A download failed because of the name server, and none succeeded later."""
    text = "\n".join(passages(facts))
    found = list(_NO_NAME.finditer(text))
    if found and not _FETCHED.search(text, found[-1].end()):
        name = next((name for name in found[-1].groups() if name), "")
        words = f"the name {name} cannot be resolved" if name else "names cannot be resolved"
        yield NO_NAMES.found(words, {"name": name} if name else {}, confidence=Confidence.LIKELY)


RULES = (gone_gpu, other_python, unreadable, for_root_only, runtime_not_chosen, no_names)
