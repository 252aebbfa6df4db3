"""containerd's drop-in files count only where its config.toml imports them."""

from __future__ import annotations

from dataclasses import replace

import machine
import pytest
from each import each

from checks.container import kubernetes_node
from gpudoctor.facts import Facts
from gpudoctor.facts.containerd import imports_of
from gpudoctor.model import Reply

CASE = "containerd-config-regenerated-without-imports"


@each(
    ("text", "patterns"),
    [
        ("imports = []\n", ()),
        ("version = 2\n", ()),
        ('# imports = ["/etc/containerd/conf.d/*.toml"]\n', ()),
        ('[plugins]\nimports = ["/a.toml"]\n', ()),
        ('imports = ["/etc/containerd/conf.d/*.toml"]\n', ("/etc/containerd/conf.d/*.toml",)),
        ("imports = [\n  'conf.d/*.toml',  # ours\n  \"/a.toml\",\n]\n", ("/etc/containerd/conf.d/*.toml", "/a.toml")),
    ],
)
def test_imports(text: str, patterns: tuple[str, ...]) -> None:
    assert imports_of(text, "/etc/containerd") == patterns


def facts_with(config: str | None) -> Facts:
    taken = machine.load(CASE)
    reply = Reply("missing") if config is None else Reply("ok", config)
    return Facts(replace(taken, replies={**taken.replies, "file:/etc/containerd/config.toml": reply}))


@pytest.mark.parametrize("config", ['imports = ["/etc/containerd/conf.d/*.toml"]\n', 'imports = ["conf.d/*.toml"]\n', None])
def test_an_imported_drop_in_is_enough(config: str | None) -> None:
    assert list(kubernetes_node.judge(facts_with(config))) == []


def test_other_imports_are_kept_by_the_fix() -> None:
    (found,) = kubernetes_node.judge(facts_with('imports = ["/etc/containerd/certs.toml"]\n'))
    line = '1i imports = ["/etc/containerd/certs.toml", "/etc/containerd/conf.d/*.toml"]'
    assert found.evidence["first_line"] == line
