"""Names revealed by the text next to them: hosts, users, pods, jobs, containers, arguments of processes."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpudoctor.redaction import interfaces
from gpudoctor.redaction.beside import ARGUMENTS, BESIDE, beside
from gpudoctor.redaction.common import SYSTEM_GROUPS
from gpudoctor.redaction.places import Places
from gpudoctor.redaction.tokens import Tokens, is_token
from gpudoctor.redaction.unmatched import Rule, remembering

_NO_NAMES_TEXT = """
    localhost localhost.localdomain none null nil true false yes no unknown info warn warning error err debug trace fatal
    critical notice kernel default kube-system kube-public gpu-operator nvidia-gpu-operator nvidia all any self root and or is
    was in on of the a an to for with by not name names id ids type host hosts user users pod pods container containers job
    jobs node nodes sandbox image process runtime toolkit device gpu cuda nccl driver started stopped exited running failed
    created removed present other context eof permission http https tcp udp unix ssh systemd audit init sshd stdout stderr
    docker podman containerd log logs exec linux x86_64 aarch64 nobody daemon nvidia-persistenced new this that it at from as
    normal batch short long account project partition queue
    set unset required optional peer existing cluster server
"""
_NO_NAMES = frozenset(_NO_NAMES_TEXT.split())
_LISTED = re.compile(r"(?<![^, \t])[A-Za-z0-9][\w.-]*")  # nodes in a list, with or without :ranks
# Pods of Kubernetes, its networks and NVIDIA's operator: every cluster has them.
_PUBLIC_PODS = re.compile(
    r"""
    (?:
        nvidia | gpu-(?:operator|feature-discovery) | node-feature-discovery | k8s-device-plugin | dcgm
        | kube | kubernetes | coredns | calico | cilium | flannel | etcd | network-operator | istio | cert-manager
        | metrics-server | local-path | longhorn | rook-ceph | volcano | kubeflow | ray-system
    )(?:-.*)?
    """,
    re.VERBOSE,
)


class Names(Rule):
    """Replaces names in such a position."""

    def __init__(self, tokens: Tokens, places: Places) -> None:
        self._tokens = tokens
        self._places = places
        self._putters = {word: self._putter(word) for word, _, _ in BESIDE}

    @remembering
    def replaced(self, text: str) -> str:
        for word, pattern in beside(text.lower()):
            if self._tokens.keeps(word):
                self.matched += 1
            else:
                text = self._sub(pattern, self._putters[word], text)
        if (not self._tokens.keeps("arguments") and (":" in text or "MiB |" in text)) or "<process_name>" in text:
            for pattern in ARGUMENTS:
                text = self._sub(pattern, self._without_arguments, text)
        elif self._tokens.keeps("arguments"):
            self.matched += 1
        return text

    def _without_arguments(self, found: re.Match[str]) -> str:
        return (
            found[0] if found[2].strip().startswith("<redacted:") else f"{found[1]} {self._tokens('arguments', found[2].strip())}"
        )

    def _putter(self, word: str) -> Callable[[re.Match[str]], str]:
        def put(found: re.Match[str]) -> str:
            group = next((number for number in range(1, len(found.groups()) + 1) if found[number]), 0)
            name = found[group] if group else ""
            if not name:
                return found[0]
            start, end = found.start(group) - found.start(), found.end(group) - found.start()
            shown = _LISTED.sub(lambda one: self._one(word, one[0]), name) if word == "host" else self._one(word, name)
            return found[0][:start] + shown + found[0][end:]

        return put

    def _one(self, word: str, name: str) -> str:
        return self._token(word, name) if is_name(name, word) else name

    def _token(self, word: str, name: str) -> str:
        if word == "host":
            return self._places.host(name)
        if word == "image":
            return self._places.image(name)
        if word == "iface":
            return interfaces.replaced(self._tokens, name)
        return self._tokens(word, re.sub(r"^job_?(?=\d)", "", name) if word == "job" else name)


def is_name(name: str, word: str) -> bool:
    """Whether a user can have chosen it: not a number, a token or a word that is usual in this position."""
    if name.lower() in _NO_NAMES or (word == "group" and name in SYSTEM_GROUPS) or any(map(is_token, (name, *name.split(".")))):
        return False
    if word in ("pod", "namespace") and _PUBLIC_PODS.fullmatch(name):
        return False
    return word == "job" or not re.fullmatch(r"[\d.:]+|0x[0-9a-f]+|(?:x86_64|aarch64|i686|ppc64le)-.*", name)
