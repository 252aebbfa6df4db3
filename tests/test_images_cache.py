"""`gpudoctor images cache`: the caches that containers leave, and removing them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from stand_in import run

from gpudoctor.containers.run import caches, kept_caches

DIGEST = "sha256:0123456789abcdef0123456789abcdef"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gpudoctor" / "containers"


def used(root: Path) -> caches.Caches:
    """The caches of one image, with 1 MiB of downloads, and a link that leads out of them."""
    made = caches.of(root, DIGEST, "ann")
    assert made.prepare() == ""
    (made.shared / "hf").write_bytes(os.urandom(1 << 20))
    (made.shared / "out").symlink_to(root.parent.parent)
    return made


def test_they_are_listed_the_largest_first(root: Path) -> None:
    made = used(root)
    rows = json.loads(run("images", "cache", "--format", "json").stdout)
    assert [(row["path"], row["user"], row["image"]) for row in rows] == [
        (str(made.shared), "ann", None),
        (str(made.image), "ann", "0123456789abcdef"),
    ]
    assert 1 << 20 <= rows[0]["bytes"] < 2 << 20
    text = run("images", "cache").stdout
    assert "ann    downloads, for all images" in text
    assert f"1 MiB in {root}. Remove them: gpudoctor images cache --clear" in text


def test_clearing_leaves_what_is_outside(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    used(root)
    assert run("images", "cache", "--clear").stderr == "Removed 2 caches, 1 MiB.\n"
    assert outside.read_text() == "kept"
    assert kept_caches.found(root) == []
    assert run("images", "cache", "--clear").stdout == f"No caches in {root}.\n"


def test_what_cannot_be_removed_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used(root)
    monkeypatch.setattr(kept_caches, "remove", lambda kept: f"{kept.path}: Permission denied")
    result = run("images", "cache", "--clear")
    assert result.exit_code == 3
    assert f"Permission denied; remove it with: sudo rm -r {root}" in result.stderr
