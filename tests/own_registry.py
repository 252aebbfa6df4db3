"""Registries that a test starts for what the lab's has not: tokens, TLS, answers that are none."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import lab_registry
import requests
import yaml
from lab_registry import LOGIN
from waiting import HOPELESS_SECONDS

Respond = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextmanager
def docker_registry(folder: Path, data: Path, host: str = "127.0.0.1", **settings: Any) -> Iterator[str]:
    """Debian's docker-registry with what `data` holds; gives HOST:PORT."""
    folder.mkdir(exist_ok=True)
    all_settings = {"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(data)}}, **settings}
    process, address = lab_registry.tried(lambda: _served(folder, all_settings, host))
    try:
        yield address
    finally:
        process.terminate()
        process.wait()


def _served(folder: Path, settings: dict[str, Any], host: str) -> tuple[subprocess.Popen[bytes], str]:
    port = lab_registry.free_port(host)
    http_settings = {"addr": f"{host}:{port}", **settings.get("http", {})}
    (folder / "config.yml").write_text(yaml.safe_dump({**settings, "http": http_settings}))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stdout=log, stderr=log)

    def answers() -> bool:
        with socket.socket() as door:
            return door.connect_ex((host, port)) == 0

    lab_registry.wait_for_start(process, answers, folder / "log")
    return process, f"{host}:{port}"


def certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """One that signs itself, for an address."""
    key, made = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=IP:{host}"]
    command: list[str | Path] = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        key,
        "-out",
        made,
        *subject,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return key, made


@contextmanager
def answers(respond: Respond) -> Iterator[str]:
    """An HTTP server that says one thing; gives localhost:PORT."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            respond(self)

        do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *of: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def say(status: int, body: str, **headers: str) -> Respond:
    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body.encode())

    return respond


@contextmanager
def tokens(key: Path, made: Path) -> Iterator[str]:
    """A login service as NGC and Docker Hub have one: it gives user lab, password lab a signed token, others none that reads."""
    chain = base64.b64encode(
        subprocess.run(["openssl", "x509", "-in", made, "-outform", "DER"], check=True, capture_output=True).stdout
    )

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        known = request.headers.get("Authorization") == "Basic " + base64.b64encode(b"lab:lab").decode()
        if request.headers.get("Authorization") and not known:
            say(401, '{"details": "incorrect username or password"}')(request)
            return
        kind, name, actions = asked["scope"].split(":")
        access = [{"type": kind, "name": name, "actions": actions.split(",") if known else []}]
        now = int(time.time())
        claims = {"iss": "lab", "aud": asked["service"], "sub": "", "exp": now + 60, "nbf": now - 60, "iat": now, "jti": "1"}
        head = {"typ": "JWT", "alg": "RS256", "x5c": [chain.decode()]}
        text = b".".join(_base64(json.dumps(part).encode()) for part in (head, {**claims, "access": access}))
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=text, check=True, capture_output=True).stdout
        say(200, json.dumps({"token": (text + b"." + _base64(signed)).decode()}))(request)

    with answers(respond) as host:
        yield f"http://{host}/token"


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def htpasswd(folder: Path) -> dict[str, Any]:
    """The settings of a registry that wants user lab, password lab."""
    (folder / "htpasswd").write_text(LOGIN)
    return {"htpasswd": {"realm": "lab", "path": str(folder / "htpasswd")}}


def put(host: str, repository: str, tag: str, body: bytes, kind: str) -> str:
    """Gives a tag a manifest or an index; its digest."""
    headers = {"Content-Type": kind}
    requests.put(
        f"http://{host}/v2/{repository}/manifests/{tag}", data=body, headers=headers, timeout=HOPELESS_SECONDS
    ).raise_for_status()
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def changed(host: str, repository: str, tag: str, **settings: str) -> None:
    """Gives an image of a registry another configuration."""
    base = f"http://{host}/v2/{repository}"
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = requests.get(f"{base}/manifests/{tag}", headers={"Accept": kind}, timeout=HOPELESS_SECONDS).json()
    found = requests.get(f"{base}/blobs/{manifest['config']['digest']}", timeout=HOPELESS_SECONDS).json()
    blob = json.dumps({**found, **settings}).encode()
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    upload = requests.post(f"{base}/blobs/uploads/", timeout=HOPELESS_SECONDS).headers["Location"]
    headers = {"Content-Type": "application/octet-stream"}
    requests.put(f"{upload}&digest={digest}", data=blob, headers=headers, timeout=HOPELESS_SECONDS).raise_for_status()
    manifest["config"] |= {"size": len(blob), "digest": digest}
    put(host, repository, tag, json.dumps(manifest).encode(), kind)


@contextmanager
def tiny_images(repository: str) -> Iterator[tuple[str, str]]:
    """Two images of one file each, in the machine's daemon."""
    repository += f"-{os.getpid()}"  # each worker imports its own, which are never the same twice
    names = (f"{repository}:1", f"{repository}:2")
    for name in names:
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as made:
            made.addfile(tarfile.TarInfo(name.replace("/", "-")))
        subprocess.run(["docker", "import", "-", name], input=tar.getvalue(), capture_output=True, check=True)
    try:
        yield names
    finally:
        subprocess.run(["docker", "image", "rm", "--force", *names], capture_output=True)


def prune(label: str) -> None:
    """What builders leave without a name."""
    subprocess.run(["docker", "image", "prune", "--force", f"--filter=label={label}"], capture_output=True)


def forget(repository: str) -> None:
    """What was pulled by digest."""
    command = ["docker", "image", "ls", "--digests", "--format={{.Repository}}@{{.Digest}}", repository]
    names = subprocess.run(command, capture_output=True, text=True).stdout.split()
    subprocess.run(["docker", "image", "rm", "--force", *names], capture_output=True)
