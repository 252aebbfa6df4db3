"""Locations in texts: URLs, paths of Unix and Windows, user@host, domain names, images of registries."""

from __future__ import annotations

import re

from gpudoctor.redaction.paths import SOURCE, Paths, says_nothing
from gpudoctor.redaction.tokens import Tokens, is_token
from gpudoctor.redaction.unmatched import Rule, remembering
from gpudoctor.redaction.vocabulary import DOMAINS, IMAGES, NAMESPACES

_END = r"\s\"'`<>|;,(){}\\"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
# Top-level domains that are rarely the end of a name in a program; others can be.
_SURE = "com|org|edu|gov|mil|eu|de|ch|fr|uk|jp|cn|au|ca|nl|se|fi|dk|cz|kr|tw|sg|br|ru|es|ac"
_UNSURE_TEXT = """
    local lan internal corp intranet home localdomain private cluster hpc lab net io ai dev cloud tech at be it no gr hu il us
    xyz ie nz mx science systems arpa priv intern
"""
_UNSURE = "|".join(_UNSURE_TEXT.split())
_OF_PROGRAMS = frozenset(
    {"self", "cls", "threading", "model", "module", "encoder", "decoder", "trainer", "args", "cfg", "logger"}
)
_INSIDE = "corp|internal|lan|local|intranet"
_REGISTRY = rf"""
    (?:{_LABEL}\.){{1,12}}(?:{_SURE}|{_INSIDE})
    | (?:{_LABEL}\.){{2,12}}(?:{_UNSURE})
    | [a-z][a-z0-9-]*(?=:\d{{4,5}}/[a-z])
    | (?:docker|nvcr|ghcr|quay|gcr)\.io
"""
_PLACE = re.compile(
    rf"""
    (?P<url>
        \b[a-z][a-z0-9+.-]{{1,20}}://(?:<redacted:secret>@)?
        (?: \[[0-9A-Fa-f:.%]+\][^{_END}\]]* | [^{_END}\]]+ )
    )
    # One path, which may have spaces, and no command line.
    | (?P<quote>["'`])
        (?P<quoted>
            (?! (?:[^"'`\n]*[ ])(?: --?[A-Za-z] | / | && | \|\| ) )
            (?: ~/ | / )(?=[\w.])[^"'`\n:;|<>{{}}]*/[^"'`\n:;|<>{{}}]*
        )
        (?P=quote)
    | (?P<windows>
        (?<![A-Za-z0-9])[A-Za-z]:(?: \\\\? | /(?!/) )
        (?: [^{_END}/:*?]+(?:\ [^{_END}/:*?]+)*(?: \\\\? | / ) )*
        (?: (?: (?<=Users[\\/]) | (?<=Users\\\\) )[^{_END}/:*?]+(?:\ [A-Z][^{_END}/:*?]+)+ | [^{_END}:*?]* )
    )
    | (?P<share> (?<![\\\w])(?: \\\\ | \\\\\\\\ )[\w$.-]+(?: \\\\?[^{_END}:*?]+ )+ )
    | (?P<spaced> (?<![\w.])(?:/mnt/[a-z])?/Users/[^{_END}/]+(?:\ [A-Z][^{_END}/]*)+(?: /[^{_END}:=&\[\]]* | $ ) )
    | (?P<path>
        (?: (?<![\w.~)\]}}<>/\\-]) | (?<=[\s\d]>) | (?<=-[ILBF]) | (?<=-isystem) )
        (?: ~[\w.-]* | \.{{1,2}} | \$\w+ )?/(?![/^])[^{_END}:=&\[\]]+
    )
    | (?P<cut> (?: (?<=\.\.\.) | (?<![\w./~$-])(?=home/[\w.-]+/) )[\w.-]*/[^{_END}:=&\[\]]+ )
    | (?P<image> (?<![\w/.@-])(?: {_REGISTRY} )(?::\d{{2,5}})?/[\w./-]*\w(?::[\w.-]*\w)? )
    | (?<![\w./@+-])(?P<user> [A-Za-z_][\w.+-]* )@(?P<host> {_LABEL}(?:\.{_LABEL}){{0,12}} )(?![\w@])
    | (?P<domain>
        (?: (?<![\w.@/%-]) | (?<=%40) | (?<=[=,\s"'*]\.) )
        (?:{_LABEL}\.){{1,12}}(?: {_SURE} | (?P<unsure> {_UNSURE} ) )(?! [\w(-] | \.\w )
    )
    """,
    re.VERBOSE,
)
_TELLING = re.compile(r"[/\\@]|[A-Za-z0-9]\.[a-z]{2}")
_URL = re.compile(
    r"""
    (?P<scheme> [a-z0-9+.-]+:// )
    (?P<user> [^/@]*@ )?
    (?P<host> \[[^\]]*\] | [^/:?#@]* )
    (?P<port> :\d+ )?
    (?P<rest> .* )
    """,
    re.DOTALL | re.VERBOSE,
)
_BUILT = re.compile(r"[A-Za-z]:/(?:a/_work|actions-runner/_work|cb/pytorch_\d+|a/1/s)/")  # by whoever made a public package
_BUILDERS_TEXT = """
    buildd mockbuild dvs-builder debian-kernel linux-kernel builder oe-user geeko sha256 Microsoft USER
"""
_BUILDERS = frozenset(_BUILDERS_TEXT.split())
_ENDS = ".,!?#$%…"  # end of a sentence or of a prompt
# What can follow an @ that is not before a host: a unit, a version, a symbol's library, a variable, a branch.
_UNITS = re.compile(
    r"""
    .*\.(?: service | slice | scope | socket | target | timer | mount )     # a unit
    | sha256 | v?\d+(?:\.\d+){0,2} | \d{4}-\d\d-\d\dT\d\d                   # a digest, a version, a time
    | lib[\w.+-]*\.so[\d.]* | plt | GOT\w* | 0x[0-9a-f]+                    # a symbol's library or address
    | (?:[A-Za-z]|self)(?:\.\w+)*                                           # a variable
    """,
    re.VERBOSE,
)
_BRANCHES = frozenset({"latest", "main", "master", "stable", "step", "cuda"})
_PROMPT = re.compile(r":[~/]|[$%#]")
_HERE = re.compile(
    r"""
    (?:
        localhost(?:\.localdomain)? | ip6-localhost | host\.docker\.internal | [\d.]+ | registry-1\.docker\.io | nvidia\.com
    )
    """,
    re.VERBOSE,
)
_OF_ACCOUNTS = ("wandb.ai", "app.wandb.ai")  # their paths name people and projects
_MOST_LABELS = max(domain.count(".") for domain in DOMAINS) + 1
_COUNTRY = re.compile(r"(?:co|ac|com|edu|gov|go|or|ne|org|net)\.[a-z]{2}$")
_INTERNAL = re.compile(r"(?:local|lan|internal|corp|intranet|home|localdomain|private|cluster|hpc|lab)$")


class Places(Rule):
    """Replaces locations in texts."""

    def __init__(self, tokens: Tokens, paths: Paths) -> None:
        self._tokens = tokens
        self._paths = paths

    @remembering
    def replaced(self, text: str) -> str:
        return self._sub(_PLACE, self._place, text) if _TELLING.search(text) else text

    def _place(self, found: re.Match[str]) -> str:
        if found["url"]:
            return self._url(found["url"])
        if found["quoted"]:
            return found["quote"] + self._paths.replaced(found["quoted"]) + found["quote"]
        if found["windows"] or found["share"]:
            return self._windows(found[0])
        if found["path"] or found["spaced"]:
            return self._path(found[0])
        if found["cut"]:
            return self._cut(found["cut"])
        if found["image"]:
            return self.image(found["image"])
        if found["user"]:
            is_prompt = _PROMPT.match(found.string, found.end()) is not None
            return self._user_at_host(found["user"], found["host"], is_prompt)
        return self._found_domain(found["domain"], bool(found["unsure"]))

    def _path(self, path: str) -> str:
        path, end = path.rstrip(_ENDS), path[len(path.rstrip(_ENDS)) :]
        return self._unix(path) + end

    def _unix(self, path: str) -> str:
        if path.startswith("~") and not path.startswith("~/"):
            user, slash, rest = path.partition("/")
            return "~" + self._tokens("user", user[1:]) + slash + self._paths.replaced(rest)
        return self._paths.replaced(path)

    def _cut(self, path: str) -> str:
        """A path without its beginning, as in a narrow table: ...me/user-1/train.py."""
        first, _, rest = path.partition("/")
        if first and "/home".endswith(first):
            return first + self._paths.replaced(f"/home/{rest}").removeprefix("/home")
        return self._paths.replaced(f"/{path}").removeprefix("/")

    def _windows(self, path: str) -> str:
        """Processed with /, which Windows accepts too; the separators are restored afterwards."""
        separator = "\\\\" if "\\\\" in path[2:] else "\\" if "\\" in path else "/"
        start = re.match(r"[A-Za-z]:|\\{2,4}[\w$.-]+", path)
        head = start[0] if start else ""
        if _BUILT.match(path.replace("\\\\", "\\").replace("\\", "/")) and SOURCE.search(path):
            return path
        rest = path[len(head) :].replace("\\\\", "/").replace("\\", "/")
        server = head.lstrip("\\")
        if head.startswith("\\") and server.lower() not in ("wsl.localhost", "wsl$"):
            head = head[: len(head) - len(server)] + self.host(server)
        return head + self._paths.replaced(rest).replace("/", separator)

    def _url(self, url: str) -> str:
        parts = _URL.fullmatch(url)
        if parts is None or parts["host"] == "":
            scheme, separator, rest = url.partition("://")
            return scheme + separator + (self._paths.replaced(rest) if rest.startswith("/") else rest)
        if parts["scheme"] in ("docker://", "oci://", "docker-daemon://"):
            return parts["scheme"] + self.image(url[len(parts["scheme"]) :])
        user = parts["user"] or ""
        if user and not user.startswith("<redacted") and user != "git@":
            user = self._tokens("user", user[:-1]) + "@"
        host = self.host(parts["host"])
        path = parts["rest"] if is_public(parts["host"]) and parts["host"] not in _OF_ACCOUNTS else self._rest(parts["rest"])
        return f"{parts['scheme']}{user}{host}{parts['port'] or ''}{path}"

    def _rest(self, rest: str) -> str:
        path, mark, query = rest.partition("?")
        return self._paths.replaced(path) + mark + query

    def _user_at_host(self, user: str, host: str, is_prompt: bool) -> str:
        if user == "git":
            return f"git@{self.host(host)}" if "." in host else f"git@{host}"
        if user in _BUILDERS or _UNITS.fullmatch(host) or (host in _BRANCHES and not is_prompt):
            return f"{user}@{host}"
        return f"{user if user == 'root' else self._tokens('user', user)}@{self.host(host)}"

    def host(self, name: str) -> str:
        """A host by name, with its domain if given: host-1.domain-1. Addresses are handled elsewhere."""
        plain = name.strip("[]").rstrip(".")
        if not plain or ":" in plain or _HERE.fullmatch(plain) or is_public(plain) or is_token(plain):
            return name
        first, _, rest = plain.partition(".")
        if not rest:
            is_container = re.fullmatch(r"(?=[a-f]*\d)[0-9a-f]{12}", first) is not None
            return self._tokens.instead("container" if is_container else "host", name, first.lower())
        return self.domain(plain)

    def domain(self, name: str) -> str:
        """host-1.domain-1, or domain-1 if there is nothing before the registered domain."""
        if all(map(is_token, name.split("."))):
            return name
        labels = name.lower().split(".")
        size = 3 if _COUNTRY.search(name.lower()) and len(labels) > 2 else 2
        if len(labels) > size or (_INTERNAL.search(labels[-1]) and len(labels) == 2):
            if len(labels) == 2:
                return f"{self._tokens('host', labels[0])}.{labels[-1]}"
            return f"{self._tokens('host', labels[0])}.{self._tokens('domain', '.'.join(labels[-size:]))}"
        return self._tokens("domain", ".".join(labels))

    def _found_domain(self, name: str, is_unsure: bool) -> str:
        if is_public(name) or (is_unsure and not _is_host(name)):
            return name
        return self.domain(name) if not is_unsure or re.search(r"[\d-]", name) else self._tokens("domain", name.lower())

    def image(self, reference: str) -> str:
        """An image: one of a public publisher is kept; otherwise only the tag is kept."""
        if self._tokens.keeps("image"):
            return reference
        name, tag = _untagged(reference)
        registry, slash, rest = name.partition("/")
        has_registry = bool(slash) and ("." in registry or ":" in registry or registry == "localhost")
        host, repository = (registry, rest) if has_registry else ("", name)
        if is_public_image(host, repository) or is_token(repository):
            return reference
        told, colon, port = host.partition(":")
        shown = f"{self.host(told)}{colon}{port}/" if host else ""
        return shown + self._tokens("image", repository) + tag


def _untagged(reference: str) -> tuple[str, str]:
    """`registry/name` and `:tag@sha256:…`."""
    name, at, digest = reference.partition("@")
    place = name.find(":", name.rfind("/") + 1)
    return (name, at + digest) if place < 0 else (name[:place], name[place:] + at + digest)


def is_public_image(host: str, repository: str) -> bool:
    """Whether the publisher is well known. A public path of some website counts as such, too."""
    if host and not is_public(host):
        return False
    namespace, slash, _ = repository.partition("/")
    if not slash:
        return bool(host) or namespace in IMAGES
    return namespace.lower() in NAMESPACES or host not in ("", "docker.io", "nvcr.io", "ghcr.io", "quay.io", "gcr.io")


def _is_host(name: str) -> bool:
    """Whether a name does not come from a program: gpu.site.ai is a host, self.encoder.net and threading.local are not."""
    *labels, ending = name.lower().split(".")
    if any(label.isdigit() for label in labels):
        return False
    if re.search(r"[\d-]", ".".join(labels)):
        return True
    is_long = len(labels) > 1 or _INTERNAL.fullmatch(ending) is not None
    return is_long and not says_nothing(labels[-1]) and _OF_PROGRAMS.isdisjoint(labels)


def is_public(domain: str) -> bool:
    """A well-known domain, or one below it."""
    labels = domain.lower().split(".")[-_MOST_LABELS:]
    return any(".".join(labels[place:]) in DOMAINS for place in range(len(labels) - 1))
