"""Logins at registries: the credentials that `docker login` stores, and the challenges of registries.

How a token is requested: https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor import folders
from gpudoctor.errors import UserError, WorkError

if TYPE_CHECKING:
    from requests import PreparedRequest

    from gpudoctor.containers.images.answer import Answer

Send = Callable[..., "Answer"]


@dataclass(frozen=True)
class Credentials:
    user: str
    password: str
    identity_token: str = ""  # instead of both, from a login in a browser


class Header:
    """Adds an Authorization header to a request, or no header; prevents requests from using ~/.netrc."""

    def __init__(self, value: str = "") -> None:
        self.value = value

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if self.value:
            request.headers["Authorization"] = self.value
        return request


def kept(registry: str, is_podman: bool = False) -> Credentials | None:
    """The credentials stored on this machine, also in a credential helper; None without a login."""
    import docker.auth
    from docker.errors import DockerException

    for path in _files(is_podman):
        try:
            found = docker.auth.load_config(path).resolve_authconfig(registry)
        except (DockerException, ValueError) as failure:
            raise UserError(f"the logins in {path or 'the Docker configuration'} cannot be read: {failure}") from None
        if credentials := _credentials(found or {}):
            return credentials
    return None


def _files(is_podman: bool) -> list[str | None]:
    """None means Docker's own file, which Podman reads last."""
    if not is_podman:
        return [None]
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    names = (os.environ.get("REGISTRY_AUTH_FILE"), f"{runtime}/containers/auth.json", "/run/containers/0/auth.json")
    return [*(name for name in names if name and os.access(name, os.R_OK)), None]


def _credentials(entry: Mapping[str, Any]) -> Credentials | None:
    """Files write username, helpers Username."""
    lower = {key.lower(): value for key, value in entry.items()}
    if lower.get("identitytoken"):
        return Credentials("", "", lower["identitytoken"])
    return Credentials(lower["username"], lower.get("password") or "") if lower.get("username") else None


def header(challenge: str, credentials: Credentials | None, send: Send) -> str:
    """The Authorization header that answers a registry's challenge; empty if a required login is missing."""
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() == "basic":
        return _basic(credentials) if credentials else ""
    if scheme.lower() != "bearer":
        return ""
    terms = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    if "realm" not in terms:
        return ""
    token = _token(terms.pop("realm"), terms, credentials, send)
    return f"Bearer {token}" if token else ""


def _token(realm: str, terms: dict[str, str], credentials: Credentials | None, send: Send) -> str:
    if credentials and credentials.identity_token:
        form = {**terms, "grant_type": "refresh_token", "refresh_token": credentials.identity_token, "client_id": "gpudoctor"}
        answer = send("POST", realm, data=form)
    else:
        answer = send("GET", realm, params=terms, auth=Header(_basic(credentials) if credentials else ""))
    if answer.status >= 500:
        raise WorkError(f"the registry's login service failed with HTTP {answer.status}: {realm}")
    try:
        given = json.loads(answer.body) if answer.status == 200 else {}
        return str(given.get("token") or given.get("access_token") or "")
    except (ValueError, AttributeError):
        raise WorkError(f"the registry's login service returned no token: {realm}") from None


def _basic(credentials: Credentials) -> str:
    from base64 import b64encode

    return "Basic " + b64encode(f"{credentials.user}:{credentials.password}".encode()).decode()


def certificates(registry: str) -> tuple[str | bool, tuple[str, str] | None]:
    """The CA certificate and the client certificate in the engine's own folder for a registry.

    Otherwise the CA certificates of this system, as engines do: https://docs.docker.com/engine/security/certificates/
    """
    for top in ("/etc/docker/certs.d", "/etc/containers/certs.d", folders.home() / ".docker/certs.d"):
        folder = Path(top) / registry
        authorities = sorted(folder.glob("*.crt"))
        client = (folder / "client.cert", folder / "client.key")
        pair = (str(client[0]), str(client[1])) if all(os.access(path, os.R_OK) for path in client) else None
        if authorities or pair:
            return str(authorities[0]) if authorities else _system(), pair
    return _system(), None


def _system() -> str | bool:
    import ssl

    if os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE"):
        return True
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or True
