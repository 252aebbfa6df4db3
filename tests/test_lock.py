"""gpudoctor.lock: what it says, how it is read, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.containers.images import lock
from gpudoctor.containers.images.catalog import Image
from gpudoctor.errors import UserError

DIGEST = "sha256:" + "0" * 64
NO_LOCKS = {
    "images: [": "invalid YAML in line 1",
    "- a": "`images` is missing",
    "images: {}\nx: 1": None,
    "images: {a: 1}": "a must have exactly the fields reference, digest and date",
    "images: {a: {reference: b, digest: c}}": "a must have exactly the fields reference, digest and date",
    "images: {a: {reference: b, digest: c, date: d}}": "the digest of a is invalid: c",
    f"images: {{a: {{reference: b, digest: '{DIGEST}', date: d}}}}": "the date of a is invalid: d",
    f"images: {{a: {{reference: B, digest: '{DIGEST}', date: 2026-01-01}}}}": "'B' is not an image reference",
    "images: {a: {reference: [b], digest: c, date: d}}": "the fields of a must be texts",
    "x: &x [a]\nimages: {a: *x}": "invalid YAML in line 2",
    "[[[[[[]]]]]]": "invalid YAML in line 1",
    "[" * 100_000: "invalid YAML in line 1",
    "images: !!timestamp 2001-99-99": "`images` is missing",
    "images: " + "9" * 6000: "`images` is missing",
    "#" * 1_100_000: "larger than 1 MB",
    "a: \x00": "invalid YAML",
    "a: b\n---\na: b": "invalid YAML",
}


@pytest.mark.parametrize("text", NO_LOCKS, ids=range(len(NO_LOCKS)))
def test_what_is_no_lock_file(text: str, tmp_path: Path) -> None:
    file = tmp_path / "gpudoctor.lock"
    file.write_text(text)
    if NO_LOCKS[text] is None:
        assert lock.read(file) == {}
        return
    with pytest.raises(UserError, match=NO_LOCKS[text]) as refused:
        lock.read(file)
    assert "\n" not in str(refused.value)


def test_a_lock_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    pins = {"b": lock.Pin("nvcr.io/b:1", DIGEST, "2026-01-02"), "a": lock.Pin("a/a", DIGEST, "2026-01-01")}
    (tmp_path / "lock").write_bytes(lock.dump(pins))
    assert lock.read(tmp_path / "lock") == pins
    assert lock.dump(pins) == lock.dump(dict(reversed(pins.items())))
    assert lock.read(tmp_path / "none") == {}


def test_a_pin_holds_in_every_mirror_but_for_one_tag_only(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.write_bytes(lock.dump({"a": lock.Pin("nvcr.io/nvidia/a:1", DIGEST, "2026-01-01")}))
    assert lock.pin("a", "mirror.example:5000/ngc/nvidia/a:1", file) == f"mirror.example:5000/ngc/nvidia/a@{DIGEST}"
    assert lock.pinned(Image("a", "nvcr.io/nvidia/a:2"), False, file) == "nvcr.io/nvidia/a:2"
    with pytest.raises(
        UserError, match=r"pins a as nvcr\.io/nvidia/a:1, which is now nvcr\.io/nvidia/a:2. Update it: gpudoctor images lock a"
    ):
        lock.pinned(Image("a", "nvcr.io/nvidia/a:2"), True, file)
    assert lock.pin("x", f"a/b@{DIGEST}", file) == f"docker.io/a/b@{DIGEST}"
