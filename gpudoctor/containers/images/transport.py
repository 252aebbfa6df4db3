"""Talks to one registry over HTTP like an engine: logs in if required, unencrypted only if that is allowed."""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Mapping
from concurrent.futures import TimeoutError  # the built-in one since Python 3.11
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpudoctor.containers.images import background, login
from gpudoctor.containers.images.answer import Answer
from gpudoctor.containers.images.reference import DOCKER_HUB
from gpudoctor.errors import WorkError
from gpudoctor.version import __version__

if TYPE_CHECKING:
    from requests import RequestException, Response

    from gpudoctor.containers.engine.client import Engine

CONNECT_SECONDS, READ_SECONDS = 5.0, 15.0
WHOLE_SECONDS = 30.0  # for one answer
MOST_BYTES = 16 << 20  # of a manifest or a configuration: real ones have a few KB
DOCKER_HUB_ADDRESS = "registry-1.docker.io"


@dataclass
class Registry:
    """A registry, with the scheme and the login that work for it once they are known."""

    registry: str
    is_insecure: bool = False
    is_podman: bool = False
    scheme: str = field(init=False, default="")
    login: login.Header = field(init=False, default_factory=login.Header)

    @classmethod
    def of(cls, registry: str, engine: Engine | None) -> Registry:
        return cls(registry, is_insecure(registry, engine), bool(engine and engine.is_podman))

    @property
    def address(self) -> str:
        return DOCKER_HUB_ADDRESS if self.registry == DOCKER_HUB else self.registry

    def ask(self, method: str, path: str, accept: tuple[str, ...] = ()) -> Answer:
        """Sends one request, and again with a login if the registry requires one. WorkError if it is unreachable."""
        answer = self._ask(method, path, accept)
        if answer.status == 401 and not self.login.value:
            self.login = login.Header(self._log_in(answer.headers.get("WWW-Authenticate", "")))
            return self._ask(method, path, accept) if self.login.value else answer
        return answer

    def _log_in(self, challenge: str) -> str:
        import requests

        try:
            return login.header(challenge, login.kept(self.registry, self.is_podman), self._send)
        except requests.RequestException as failure:
            raise _unreachable(f"the login service of {self.registry}", failure) from None

    def _ask(self, method: str, path: str, accept: tuple[str, ...]) -> Answer:
        """If TLS is optional, it is still tried first: https://docs.docker.com/reference/cli/dockerd/#insecure-registries"""
        import requests

        schemes = (self.scheme,) if self.scheme else ("https", "http") if self.is_insecure else ("https",)
        failures = []
        for scheme in schemes:
            try:
                url = f"{scheme}://{self.address}{path}"
                response = self._send(method, url, headers={"Accept": ", ".join(accept)} if accept else {}, auth=self.login)
                self.scheme = scheme
                return response
            except requests.RequestException as failure:
                failures.append(failure)
        raise _unreachable(f"the registry {self.registry}", failures[-1])

    def _send(self, method: str, url: str, **options: Any) -> Answer:
        import requests
        import urllib3

        authority, client = login.certificates(self.registry)
        if self.is_insecure:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        options = {"verify": False if self.is_insecure else authority, "cert": client, **options}
        options["headers"] = {"User-Agent": f"gpudoctor/{__version__}", **options.get("headers", {})}
        future = background.started(lambda: _answered(method, url, options))
        try:
            return future.result(WHOLE_SECONDS)
        except TimeoutError:
            raise requests.Timeout("the response does not end") from None


def _answered(method: str, url: str, options: Mapping[str, Any]) -> Answer:
    """Its time limits are for each part of the answer: a registry can send a byte now and then."""
    import requests

    with requests.request(method, url, timeout=(CONNECT_SECONDS, READ_SECONDS), stream=True, **options) as response:
        return Answer(response.status_code, response.headers, _body(response, time.monotonic() + WHOLE_SECONDS))


def _body(response: Response, ends: float) -> bytes:
    """Reads the body; Timeout if it takes too long or is too large."""
    import requests

    pieces, size = [], 0
    for chunk in response.iter_content(1 << 16):
        pieces.append(chunk)
        size += len(chunk)
        if time.monotonic() > ends or size > MOST_BYTES:
            raise requests.Timeout("the response does not end")
    return b"".join(pieces)


def is_insecure(registry: str, engine: Engine | None) -> bool:
    """Whether TLS is optional: for this machine itself, and for registries that the engine is configured to trust without TLS."""
    host = registry.rpartition(":")[0] if registry.rpartition(":")[2].isdigit() else registry
    if host == "localhost" or _is_within(host, ("127.0.0.0/8", "::1/128")):
        return True
    info = engine.info if engine else {}
    trusted = info.get("RegistryConfig") or {}
    named = (trusted.get("IndexConfigs") or {}).get(registry) or {}
    of_podman = (info.get("registries") or {}).get(registry)
    return (
        named.get("Secure") is False
        or _is_within(host, trusted.get("InsecureRegistryCIDRs") or ())
        or (isinstance(of_podman, Mapping) and bool(of_podman.get("Insecure")))
    )


def _is_within(host: str, networks: Any) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(network, strict=False) for network in networks)


_UNRESOLVED = re.compile(r"NameResolution|name resolution|Name or service not known|Failed to resolve")
_NO_ROUTE = re.compile(r"Network is unreachable|No route to host")


def _unreachable(what: str, failure: RequestException) -> WorkError:
    import requests

    words = str(getattr(failure.args[0] if failure.args else failure, "reason", failure))
    if isinstance(failure, requests.exceptions.SSLError):
        why = "its certificate is not trusted, or it does not use TLS"
    elif isinstance(failure, requests.exceptions.ProxyError):
        why = "the proxy does not answer (HTTPS_PROXY, NO_PROXY)"
    elif isinstance(failure, requests.Timeout):
        why = "it timed out"
    elif _UNRESOLVED.search(words):
        why = "its name cannot be resolved: check the network and DNS"
    elif _NO_ROUTE.search(words):
        why = "this machine has no route to it: check the network"
    else:
        why = "check that it is running, and check the network"
    return WorkError(f"{what} is unreachable: {why}\n  {words}")
