"""Which file, folder or card a program of a text takes, against the one that it should."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

ELSEWHERE = Problem(
    id="nvidia-runtime-elsewhere",
    title="The container engine is configured with a runtime that does not exist",
    why="The configuration names a file that another installation left behind or was meant to bring, such as an earlier GPU "
    "operator. The installed runtime lies elsewhere and is not used.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Configure containerd with the installed runtime, then restart it",
            "sudo nvidia-ctk runtime configure --runtime=containerd && sudo systemctl restart containerd",
            verify="grep BinaryName /etc/containerd/config.toml /etc/containerd/conf.d/*.toml",
            risk="disruptive",
            where="host",
            kind="restart",
            needs=("root",),
        ),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",),
)
WITH_K3S = (
    Fix(
        "Move the folder that was left behind away; when k3s starts, it takes the first runtime that it finds, also in /usr/bin "
        "(on an agent restart k3s-agent)",
        "sudo mv <folder> <folder>.old && sudo systemctl restart k3s",
        verify="sudo grep BinaryName /var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        undo="sudo mv <folder>.old <folder>",
        risk="disruptive",
        where="host",
        kind="restart",
        needs=("root",),
    ),
)
NOT_SEARCHED = Problem(
    id="cdi-folder-not-searched",
    title="The engine does not search the folder of the CDI specification",
    why="Podman and Docker read the folders of their configuration, by default /etc/cdi and /var/run/cdi. A specification "
    "elsewhere exists, and the engine finds no device.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Name the folder, for one command of Podman",
            "podman --cdi-spec-dir=<folder> run --rm --device nvidia.com/gpu=all <image> nvidia-smi -L",
            engines=("podman",),
            kind="manual",
        ),
        Fix(
            "Write cdi_spec_dirs under [engine] of containers.conf (Podman), or cdi-spec-dirs in daemon.json (Docker), "
            "with this folder, for all"
        ),
        Fix(
            "Write the specification where engines look",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            verify="nvidia-ctk cdi list",
            where="host",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://docs.podman.io/en/latest/markdown/podman.1.html",),
)
OTHER_CARD = Problem(
    id="compositor-uses-other-card",
    title="A variable names a card for the Wayland compositor that is not the GPU",
    why="The numbers of /dev/dri/card* change with the order in which drivers start; the firmware's framebuffer (simpledrm) "
    "often takes card0. The compositor finds no output on it and does not start.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Name the GPU's card (its number can change; a link of your own without colons in its name does not)",
            "export <variable>=<drm_card>",
            kind="set",
            where="shell",
        ),
        Fix("Unset the variable, so that the compositor looks for a card itself", "unset <variable>", kind="set", where="shell"),
    ),
    references=("https://wiki.archlinux.org/title/Hyprland", "https://github.com/hyprwm/Hyprland/issues/6708"),
)
PROBLEMS = (ELSEWHERE, NOT_SEARCHED, OTHER_CARD)

_STUB = re.compile(
    r"""
    (?: libcuda\.so(?:\.1)?\ =>\  | ^[\da-f]+-[\da-f]+\ [^\n]*\s )
    (?P<path> /\S*/stubs/libcuda\.so\S* )
    """,
    re.MULTILINE | re.VERBOSE,
)


_DOES_NOT_START = re.compile(
    r"""
    insufficient | stub\ library | failed\ (?:to\ initialize|call\ to\ cuInit) | no\ (?:usable|CUDA-capable)
    | CUDA\ error | cuInit | is_available\(\)[^\n]*(?:\n[^\n]*)?\bFalse | \b34\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def stub_library(facts: Facts) -> Iterator[Finding]:
    """CUDA fails, and ldd or the maps of a process show the toolkit's stub in place of the driver's libcuda."""
    if not any(_DOES_NOT_START.search(text) for text in passages(facts)):
        return
    for text in passages(facts):
        if found := _STUB.search(text):
            folder = found["path"].rpartition("/")[0]
            words = f"a program loads {found['path']}, the toolkit's stub, in place of the driver's libcuda"
            evidence = {"library": found["path"], "library_path": _without(facts, folder)}
            yield facts.problems["stub-libcuda-loaded"].found(words, evidence, confidence=Confidence.LIKELY)
            return


_VALUE = re.compile(r"(?m)LD_LIBRARY_PATH\}?\"?(?:\n|=)(?P<value>/[^\s\"']*)")


def _without(facts: Facts, folder: str) -> str:
    values = [match["value"] for text in passages(facts) for match in _VALUE.finditer(text)]
    return ":".join(entry for entry in (values[-1].split(":") if values else ()) if entry.rstrip("/") != folder) or "''"


_NOT_THERE = re.compile(
    r"""
    (?:exec|stat)\S*[:\ ]\ ?"?(?P<path>/\S+/nvidia-container-runtime(?:\.\w+)?)"?:?\ [^\n]{0,40}?no\ such\ file
    """,
    re.IGNORECASE | re.VERBOSE,
)
_INSTALLED = re.compile(
    r"""
    ^(?: nvidia-container-runtime(?:\ is|:)\ )?
    (?P<path> /(?:usr|opt)\S*/nvidia-container-runtime )[ \t]*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_K3S = re.compile(r"/var/lib/rancher/k3s|\bk3s\b")


def runtime_elsewhere(facts: Facts) -> Iterator[Finding]:
    """The engine starts a runtime that does not exist, and the shell finds it at another path."""
    text = "\n".join(passages(facts))
    missing = _NOT_THERE.search(text)
    there = next((match["path"] for match in _INSTALLED.finditer(text) if missing and match["path"] != missing["path"]), None)
    if missing and there:
        words = f"the engine starts {missing['path']}, which does not exist; {there} is installed"
        evidence = {"folder": missing["path"].rpartition("/")[0], "installed": there}
        problem = replace(ELSEWHERE, fixes=WITH_K3S) if _K3S.search(text) else ELSEWHERE
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)


_UNRESOLVED = re.compile(r"unresolvable CDI devices|could not select device driver \"cdi\"")
_BY_OPTION = re.compile(r"--cdi-spec-dir[= ](?P<folder>/\S+)")
_GENERATED = re.compile(r"cdi generate\b[^\n]*--output[= ](?P<folder>/\S+)/[\w.-]+\.[jy]")
_DEFAULT = ("/etc/cdi", "/var/run/cdi")


def cdi_elsewhere(facts: Facts) -> Iterator[Finding]:
    """The device is not found, and the specification is in a folder that has to be named."""
    text = "\n".join(passages(facts))
    failed = _UNRESOLVED.search(text)
    named = _BY_OPTION.search(text, failed.end()) if failed else None
    written = [match["folder"] for match in _GENERATED.finditer(text)]
    outside = [folder for folder in written if folder not in (*_DEFAULT, "/run/cdi")]
    if failed and (named or (outside and len(outside) == len(written))):
        folder = named["folder"] if named else outside[-1]
        words = f"the specification is in {folder}, which the engine does not search unless it is named"
        yield NOT_SEARCHED.found(words, {"folder": folder}, confidence=Confidence.LIKELY)


_NAMES = re.compile(
    r"""
    \bcdi\ list\b[^\n]*\n
    (?:[^\n]*\n){0,3}? [^\n]*Found\ [1-9]\d*\ CDI\ devices?\b
    (?P<names> (?:\n[ \t]*nvidia\.com/\S+)+ )
    """,
    re.VERBOSE,
)
_NO_SUCH = re.compile(r"unresolvable CDI devices (?P<name>nvidia\.com/[^\s,:]+)")


def cdi_unread(facts: Facts) -> Iterator[Finding]:
    """nvidia-ctk lists the name, and the engine does not know it afterwards: it cannot read that version of the file."""
    text = "\n".join(passages(facts))
    listed = _NAMES.search(text)
    failed = _NO_SUCH.search(text, listed.end()) if listed and "cdi generate" not in text[: listed.end()] else None
    if listed and failed and failed["name"] in listed["names"].split():
        words = f"nvidia-ctk cdi list shows {failed['name']}, and the engine does not know it"
        yield facts.problems["cdi-spec-too-new"].found(words, confidence=Confidence.LIKELY)


_VARIABLE = re.compile(
    r"""
    (?:echo\ "?\$\{?)?(?P<name>WLR_DRM_DEVICES|AQ_DRM_DEVICES|KWIN_DRM_DEVICES)
    (?:\}?"?[ \t]*\n|[=,]\ ?["']?) (?P<card>/dev/dri/card\d+)
    """,
    re.VERBOSE,
)
_BY_PATH = re.compile(r"(?m)(?P<place>(?:pci|platform)-\S+)-card -> \.\./(?P<card>card\d+)")
_NO_BACKEND = re.compile(
    r"""
    Failed\ to\ open\ any\ DRM\ device | wlr_backend_autocreate\(\)\ failed | CBackend::create\(\)\ failed
    | Found\ 0\ GPUs | no\ (?:suitable|usable)\ (?:DRM|GPU) | Failed\ to\ get\ DRM\ resources
    """,
    re.IGNORECASE | re.VERBOSE,
)


def other_card(facts: Facts) -> Iterator[Finding]:
    """A variable names the card of the firmware's framebuffer, or one that does not exist, and the compositor starts on none."""
    text = "\n".join(passages(facts))
    named, cards = _VARIABLE.search(text), {match["card"]: match["place"] for match in _BY_PATH.finditer(text)}
    if not named or not cards or not _NO_BACKEND.search(text):
        return
    place = cards.get(named["card"].rpartition("/")[2], "")
    real = [card for card, where in cards.items() if where.startswith("pci-")]
    if place.startswith("pci-") or not real:
        return
    what = "the firmware's framebuffer" if place else "no card"
    words = f"{named['name']} names {named['card']}, which is {what}; the GPU is /dev/dri/{real[0]}"
    evidence = {"variable": named["name"], "drm_card": f"/dev/dri/{real[0]}"}
    yield OTHER_CARD.found(words, evidence, confidence=Confidence.LIKELY)


RULES = (stub_library, runtime_elsewhere, cdi_elsewhere, cdi_unread, other_card)
