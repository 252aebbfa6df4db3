"""References are read as Docker reads them; where an engine is at hand, it is asked for its opinion."""

from __future__ import annotations

import re
import subprocess

import pytest
from each import each

from gpudoctor.containers.images.reference import Reference, parse
from gpudoctor.errors import UserError

SHA256 = "sha256:" + "0123456789abcdef" * 4
GOOD = {
    "debian": ("docker.io", "library/debian", "latest", ""),
    "debian:12": ("docker.io", "library/debian", "12", ""),
    "docker.io/debian": ("docker.io", "library/debian", "latest", ""),
    "index.docker.io/pytorch/pytorch": ("docker.io", "pytorch/pytorch", "latest", ""),
    "nvidia/cuda:12.6.3-base-ubuntu24.04": ("docker.io", "nvidia/cuda", "12.6.3-base-ubuntu24.04", ""),
    "nvcr.io/nvidia/pytorch:24.08-py3": ("nvcr.io", "nvidia/pytorch", "24.08-py3", ""),
    f"nvcr.io/nvidia/pytorch@{SHA256}": ("nvcr.io", "nvidia/pytorch", "", SHA256),
    f"localhost:5000/a/b/c:1@{SHA256}": ("localhost:5000", "a/b/c", "1", SHA256),
    "localhost/image": ("localhost", "image", "latest", ""),
    "127.0.0.1:5000/image": ("127.0.0.1:5000", "image", "latest", ""),
    "[::1]:5000/image": ("[::1]:5000", "image", "latest", ""),
    "Host/image": ("Host", "image", "latest", ""),
    "my-host.example:80/a__b/c-d.e---f:_T.1-2": ("my-host.example:80", "a__b/c-d.e---f", "_T.1-2", ""),
    "localhost:5000": ("docker.io", "library/localhost", "5000", ""),
    "a/b": ("docker.io", "a/b", "latest", ""),
    "x:" + "t" * 128: ("docker.io", "library/x", "t" * 128, ""),
}
BAD = {
    "": "missing",
    ":12": "missing",
    "Debian": "'Debian' must be in lower case",
    "nvcr.io/NVIDIA/pytorch": "'NVIDIA/pytorch' must be in lower case",
    "nvcr.io/": "missing",
    "https://nvcr.io/nvidia/pytorch": "'https:' is not a registry",
    "debian:": "'' is not a valid tag",
    "debian:1:2": "'1:2' is not a valid tag",
    "debian:-1": "'-1' is not a valid tag",
    "debian:é": "'é' is not a valid tag",
    "x:" + "t" * 129: "is not a valid tag",
    "debian@": "'' is not a digest",
    "debian@sha256:abc": "'sha256:abc' is not a digest",
    f"debian@{SHA256.upper()}": "is not a digest",
    f"debian@{SHA256}@{SHA256}": "is not a digest",
    "a b": "'a b' is not an image name",
    "a//b": "is not an image name",
    "a..b": "is not an image name",
    "a/b/": "is not an image name",
    "_a": "is not an image name",
    "a___b": "is not an image name",
    "host_name.example/a": "is not a registry",
    "host:port/a": "is not a registry",
    "0123456789abcdef" * 4: "the id of an image",
    "a/" * 120 + "x" * 20: "longer than 255",
    "--help": "is not an image name",
}
NEWER = {"[::1]:5000/image", "Host/image"}  # than Docker 20.10


@each("text", GOOD)
def test_parts(text: str) -> None:
    assert parse(text) == Reference(*GOOD[text])


@each("text", BAD)
def test_what_is_none_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(text)
    line = str(refused.value)
    assert line.startswith(f"{text!r} is not an image reference: ")
    assert BAD[text] in line
    assert "\n" not in line


@each("text", GOOD)
def test_what_is_written_is_what_was_read(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)
    assert parse(parse(text).short) == parse(text)


def test_short_and_pinned() -> None:
    assert parse("docker.io/library/debian:12").short == "debian:12"
    assert parse("docker.io/nvidia/cuda:12").short == "nvidia/cuda:12"
    assert parse("nvcr.io/nvidia/pytorch:24.08-py3").short == "nvcr.io/nvidia/pytorch:24.08-py3"
    assert str(parse("debian:12").pinned(SHA256)) == f"docker.io/library/debian@{SHA256}"
    assert parse("debian:12").wanted == "12"
    assert parse(f"debian:12@{SHA256}").wanted == SHA256


@pytest.mark.docker
@pytest.mark.parametrize("text", sorted(GOOD.keys() - NEWER))
def test_docker_takes_it(text: str) -> None:
    done = subprocess.run(["docker", "image", "inspect", "--", text], capture_output=True, text=True)
    assert "invalid reference format" not in done.stderr


@pytest.mark.docker
@pytest.mark.parametrize("text", sorted(BAD.keys() - {"host_name.example/a"}))  # with that it asks for https:/v2/
def test_docker_refuses_it(text: str) -> None:
    done = subprocess.run(["docker", "pull", "--quiet", "--", text], capture_output=True, text=True)
    assert re.search("invalid reference format|must be lowercase|cannot specify 64-byte|more than 255", done.stderr)
