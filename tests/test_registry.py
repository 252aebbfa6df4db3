"""Real registries are asked, and each way in which one can refuse is provoked; nothing is pulled."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab_registry
import own_registry
import pytest
import requests
from each import each
from lab import give_up, need
from lab_registry import Registry
from waiting import HOPELESS_SECONDS

from gpudoctor.containers.engine.client import Engine
from gpudoctor.containers.images import registry as registries
from gpudoctor.containers.images import transport
from gpudoctor.containers.images.reference import parse
from gpudoctor.errors import UserError, WorkError

pytestmark = pytest.mark.slow

PYTORCH = "nvidia/pytorch:24.08-py3"
DIGEST = f"sha256:{'0' * 64}"
ARM = Engine("docker", {"Architecture": "aarch64"})


def said(failure: pytest.ExceptionInfo[Any]) -> tuple[str, str]:
    """The line, and the words below it."""
    line, _, words = str(failure.value).partition("\n")
    assert all(word.startswith("  ") for word in words.splitlines())
    return line, words


@pytest.mark.docker
def test_an_image_is_looked_at_without_being_pulled(registry: Registry, ngc: str) -> None:
    found = registries.look(f"{registry.host}/{PYTORCH}")
    assert subprocess.run(["docker", "image", "inspect", f"{registry.host}/{PYTORCH}"], capture_output=True).returncode == 1
    about = json.loads(subprocess.run(["docker", "image", "inspect", ngc], capture_output=True, check=True).stdout)[0]
    assert found.config["config"]["Env"] == about["Config"]["Env"]
    assert found.config["rootfs"]["diff_ids"] == about["RootFS"]["Layers"]
    assert 1e6 < found.size_bytes < about["Size"]
    assert registries.digest(f"{registry.host}/{PYTORCH}") == found.digest
    pinned = parse(f"{registry.host}/{PYTORCH}").pinned(found.digest)
    assert registries.look(pinned) == registries.Remote(pinned, found.digest, found.config, found.size_bytes)


@pytest.mark.docker
def test_unknown_names_and_tags(registry: Registry) -> None:
    with pytest.raises(UserError) as refused:
        registries.look(f"{registry.host}/nvidia/pytorch:24.07-py3")
    line, words = said(refused)
    assert f"{registry.host} has no image {registry.host}/nvidia/pytorch:24.07-py3" in line
    assert "MANIFEST_UNKNOWN" in words
    with pytest.raises(UserError, match="has no image"):
        registries.digest(f"{registry.host}/no/such")
    with pytest.raises(UserError, match="has no image"):
        registries.look(f"{registry.host}/nvidia/pytorch@sha256:{'0' * 64}")


@pytest.mark.docker
def test_the_image_for_the_processor_is_chosen(registry: Registry) -> None:
    base = f"http://{registry.host}/v2/nvidia/pytorch/manifests"
    manifest = requests.get(f"{base}/24.08-py3", headers={"Accept": registries.MANIFESTS[1]}, timeout=HOPELESS_SECONDS)
    one = {
        "mediaType": registries.MANIFESTS[1],
        "size": len(manifest.content),
        "digest": manifest.headers["Docker-Content-Digest"],
    }
    attestation = {**one, "platform": {"os": "unknown", "architecture": "unknown"}}

    def put(tag: str, *images: dict[str, Any]) -> str:
        index = {"schemaVersion": 2, "mediaType": registries.INDEXES[0], "manifests": images}
        return own_registry.put(registry.host, "nvidia/pytorch", tag, json.dumps(index).encode(), registries.INDEXES[0])

    here = registries.processor()
    digest = put("both", attestation, {**one, "platform": {"os": "linux", "architecture": here}})
    found = registries.look(f"{registry.host}/nvidia/pytorch:both")
    assert found.digest == digest == registries.digest(f"{registry.host}/nvidia/pytorch:both")
    assert found.config == registries.look(f"{registry.host}/{PYTORCH}").config
    put("others", attestation, *({**one, "platform": {"os": "linux", "architecture": name}} for name in ("s390x", "riscv64")))
    with pytest.raises(UserError) as refused:
        registries.look(f"{registry.host}/nvidia/pytorch:others", ARM)
    assert said(refused)[0].endswith("is not available for linux/arm64, only for linux/riscv64, linux/s390x")


@pytest.fixture
def no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nobody logged in anywhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / ".docker"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    (tmp_path / ".docker").mkdir()
    return tmp_path


@pytest.fixture
def locked(registry: Registry, tmp_path: Path, no_logins: Path) -> Iterator[str]:
    """What the lab's registry has, behind user lab and password lab."""
    with own_registry.docker_registry(
        tmp_path / "locked", registry.folder / "data", auth=own_registry.htpasswd(tmp_path)
    ) as host:
        yield host


@pytest.mark.docker
def test_a_login_is_wanted_and_taken(locked: str, no_logins: Path) -> None:
    with pytest.raises(UserError) as refused:
        registries.look(f"{locked}/{PYTORCH}")
    line, words = said(refused)
    assert f"denies access to {locked}/{PYTORCH}: it does not exist or requires a login" in line
    assert f"docker login {locked}" in line
    assert "UNAUTHORIZED" in words
    subprocess.run(
        ["docker", "login", "--username=lab", "--password-stdin", locked], input=b"lab", capture_output=True, check=True
    )
    assert registries.look(f"{locked}/{PYTORCH}").config["architecture"]
    (no_logins / ".docker/config.json").write_text(json.dumps({"auths": {locked: {"auth": "bGFiOndyb25n"}}}))
    with pytest.raises(UserError, match="requires a login"):
        registries.digest(f"{locked}/{PYTORCH}")


@pytest.mark.docker
def test_a_credential_helper_is_asked(locked: str, no_logins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = no_logins / "docker-credential-lab"
    helper.write_text("""#!/bin/sh\necho '{"Username": "lab", "Secret": "lab"}'\n""")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(no_logins), prepend=":")
    (no_logins / ".docker/config.json").write_text(json.dumps({"credHelpers": {locked: "lab"}}))
    assert registries.digest(f"{locked}/{PYTORCH}")
    helper.write_text("#!/bin/sh\necho the keyring is locked; exit 1\n")
    with pytest.raises(UserError, match=r"cannot be read: .*the keyring is locked"):
        registries.digest(f"{locked}/{PYTORCH}")


@pytest.mark.docker
def test_podman_keeps_its_logins_elsewhere(locked: str, no_logins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_logins / "auth.json").write_text(json.dumps({"auths": {locked: {"auth": "bGFiOmxhYg=="}}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(no_logins / "auth.json"))
    assert registries.digest(f"{locked}/{PYTORCH}", Engine("podman", {"host": {"arch": "amd64"}}))
    with pytest.raises(UserError, match="requires a login"):
        registries.digest(f"{locked}/{PYTORCH}", Engine("docker", {}))


@pytest.mark.docker
def test_tokens_are_fetched_from_where_the_registry_says(registry: Registry, no_logins: Path) -> None:
    key, made = own_registry.certificate(no_logins, "127.0.0.1")
    with own_registry.tokens(key, made) as realm:
        wanted = {"token": {"realm": realm, "service": "lab registry", "issuer": "lab", "rootcertbundle": str(made)}}
        with own_registry.docker_registry(no_logins / "registry", registry.folder / "data", auth=wanted) as host:
            with pytest.raises(UserError, match="requires a login"):
                registries.look(f"{host}/{PYTORCH}")
            (no_logins / ".docker/config.json").write_text(json.dumps({"auths": {host: {"auth": "bGFiOmxhYg=="}}}))
            assert registries.look(f"{host}/{PYTORCH}").size_bytes > 1e6
            assert registries.digest(f"{host}/{PYTORCH}")
            (no_logins / ".docker/config.json").write_text(json.dumps({"auths": {host: {"auth": "bGFiOndyb25n"}}}))
            with pytest.raises(UserError, match="requires a login"):
                registries.look(f"{host}/{PYTORCH}")


@pytest.fixture
def address() -> str:
    """One of this machine that is not 127.0.0.1: what listens there is for nobody insecure by itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))
        except OSError:
            give_up("this machine has no network")
        return str(route.getsockname()[0])


@pytest.mark.docker
def test_an_unknown_certificate_is_not_trusted(
    registry: Registry, no_logins: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    key, made = own_registry.certificate(no_logins, address)
    tls = {"tls": {"certificate": str(made), "key": str(key)}}
    with own_registry.docker_registry(no_logins / "registry", registry.folder / "data", address, http=tls) as host:
        with pytest.raises(WorkError) as failed:
            registries.look(f"{host}/{PYTORCH}")
        line, words = said(failed)
        assert line == f"the registry {host} is unreachable: its certificate is not trusted, or it does not use TLS"
        assert "self-signed certificate" in words
        trusted = no_logins / ".docker/certs.d" / host
        trusted.mkdir(parents=True)
        (trusted / "ca.crt").write_text(made.read_text())
        assert registries.digest(f"{host}/{PYTORCH}")
        (trusted / "ca.crt").unlink()
        insecure = {"RegistryConfig": {"InsecureRegistryCIDRs": [f"{address}/32"]}}
        assert registries.digest(f"{host}/{PYTORCH}", Engine("docker", insecure))


@pytest.mark.docker
def test_without_tls_only_where_the_engine_allows_it(registry: Registry, tmp_path: Path, address: str) -> None:
    with own_registry.docker_registry(tmp_path / "plain", registry.folder / "data", address) as host:
        with pytest.raises(WorkError, match="or it does not use TLS"):
            registries.look(f"{host}/{PYTORCH}")
        for info in (
            {"RegistryConfig": {"IndexConfigs": {host: {"Name": host, "Secure": False}}}},
            {"host": {"arch": "amd64"}, "registries": {host: {"Insecure": True}, "search": ["docker.io"]}},
        ):
            assert registries.digest(f"{host}/{PYTORCH}", Engine("docker", info))


@pytest.mark.docker
def test_a_registry_that_is_down() -> None:
    need("docker", "docker-registry", "setpriv")
    with lab_registry.registry() as own, own_registry.tiny_images("gpudoctor-test-registry/tiny") as names:
        reference = own.push(names[0], "a/b:1")
        assert registries.digest(reference)
        own.stop()
        with pytest.raises(WorkError) as failed:
            registries.look(reference)
    line, words = said(failed)
    assert line == f"the registry {own.host} is unreachable: check that it is running, and check the network"
    assert "Connection refused" in words


def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(WorkError, match=r"no-such-host\.invalid is unreachable"):
        registries.look("no-such-host.invalid/a/b")


LIMIT = '{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit."}]}'  # Docker Hub's words
ANSWERS = {
    "rate limit": (own_registry.say(429, LIMIT), WorkError, "the rate limit of"),
    "forbidden": (own_registry.say(403, ""), UserError, "requires a login"),
    "broken": (own_registry.say(503, "<html>down</html>"), WorkError, "answers HTTP 503"),
    "a web page": (own_registry.say(200, "<html>Welcome</html>"), WorkError, "does not answer like a registry"),
    "a list": (own_registry.say(200, "[]"), WorkError, "does not answer like a registry"),
    "schema 1": (
        own_registry.say(200, '{"schemaVersion": 1, "fsLayers": []}'),
        WorkError,
        "is not supported: schema 1",
    ),
    "no challenge": (own_registry.say(401, ""), UserError, "requires a login"),
    "an odd challenge": (own_registry.say(401, "", WWW_Authenticate="Negotiate"), UserError, "requires a login"),
    "a realm that is down": (
        own_registry.say(401, "", WWW_Authenticate='Bearer realm="http://localhost:1/token",service="x"'),
        WorkError,
        "is unreachable",
    ),
}


BLOB = {"digest": DIGEST, "size": 1}
LINUX = {"platform": {"os": "linux", "architecture": registries.processor()}}
MALFORMED = {
    "an image without a digest": {"manifests": [{**LINUX, "size": 1}]},
    "an image whose digest is none": {"manifests": [{**LINUX, "digest": "../../x", "size": 1}]},
    "a digest and a line end": {"manifests": [{**LINUX, "digest": f"{DIGEST}\n", "size": 1}]},
    "images by name": {"manifests": {"a": {**LINUX, **BLOB}}},
    "an odd platform": {"manifests": [{**BLOB, "platform": "linux"}]},
    "a size that is none": {"config": BLOB, "layers": [{**BLOB, "size": "many"}]},
    "a size below zero": {"config": BLOB, "layers": [{**BLOB, "size": -1}]},
    "a configuration by name": {"config": DIGEST, "layers": [BLOB]},
    "layers by name": {"config": BLOB, "layers": {"a": BLOB}},
    "an image that is none": {"config": BLOB, "layers": [BLOB], "architecture": 5},  # it is its own configuration as well
    "an odd environment": {"config": {**BLOB, "Env": [1]}, "layers": [BLOB]},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_only_looks_like_an_answer(name: str, no_logins: Path) -> None:
    respond = own_registry.say(200, json.dumps(MALFORMED[name]))
    with own_registry.answers(respond) as host, pytest.raises(WorkError, match="does not answer like a registry"):
        registries.look(f"{host}/a/b:1")


def test_an_answer_without_a_bottom(no_logins: Path) -> None:
    with (
        own_registry.answers(own_registry.say(200, "[" * 100_000)) as host,
        pytest.raises(WorkError, match="does not answer like a registry"),
    ):
        registries.look(f"{host}/a/b:1")


@pytest.mark.parametrize("told", ["--oops: not a digest", "sha256:1", f"{DIGEST}0", DIGEST.upper(), ""])
def test_a_digest_that_is_none_is_not_taken(told: str, no_logins: Path) -> None:
    body = json.dumps({"config": BLOB, "layers": [BLOB]})
    with own_registry.answers(own_registry.say(200, body, Docker_Content_Digest=told)) as host:
        assert registries.digest(f"{host}/a/b:1") == f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"


@pytest.mark.parametrize("name", ANSWERS)
def test_other_answers(name: str, no_logins: Path) -> None:
    respond, kind, text = ANSWERS[name]
    with own_registry.answers(respond) as host, pytest.raises(kind) as failed:
        registries.look(f"{host}/a/b:1")
    assert text in said(failed)[0]
    if name == "rate limit":
        assert said(failed)[1] == "  TOOMANYREQUESTS: You have reached your pull rate limit."


def test_another_image_than_that_of_the_digest_is_not_taken() -> None:
    other = own_registry.say(200, '{"config": {"digest": "sha256:1"}, "layers": []}')
    with own_registry.answers(other) as host, pytest.raises(WorkError, match="does not match sha256:0000"):
        registries.look(f"{host}/a/b@sha256:{'0' * 64}")


def test_an_answer_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "WHOLE_SECONDS", 0.5)

    def dripping(request: Any) -> None:
        request.send_response(200)
        request.end_headers()
        with contextlib.suppress(OSError):  # nobody listens any more
            while True:
                request.wfile.write(b" " * 70_000)
                time.sleep(0.1)

    with own_registry.answers(dripping) as host, pytest.raises(WorkError, match="it timed out") as failed:
        registries.look(f"{host}/a/b:1")
    assert "the response does not end" in str(failed.value)


@each(
    ("registry_name", "insecure"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.9.9.9", True),
        ("[::1]:5000", True),
        ("docker.io", False),
        ("localhost.example", False),
        ("10.0.0.1:5000", False),
    ],
)
def test_where_tls_is_no_must(registry_name: str, insecure: bool) -> None:
    assert transport.is_insecure(parse(f"{registry_name}/a").registry, None) == insecure
