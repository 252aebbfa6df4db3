"""Ids of one thing on one machine: UUIDs of GPUs and disks, serial numbers, ids of containers and machines."""

from __future__ import annotations

import re

from gpudoctor.redaction.tokens import Tokens, is_token
from gpudoctor.redaction.unmatched import Rule, remembering

_HEX = r"[0-9a-fA-F]"
_UUID = rf"{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}"
_GPU = re.compile(rf"(?<![A-Za-z0-9])((?:MIG-)?GPU|MIG)-({_UUID})(?!{_HEX})")
_PART_OF_GPU = re.compile(
    rf"""
    (?<![A-Za-z0-9])( (?:MIG-)?GPU | MIG )-
    (?=[a-f-]*\d)( {_HEX}{{4,8}}(?:-{_HEX}{{0,4}}){{0,4}} )(?![\w-])
    """,
    re.VERBOSE,
)
_ANY_PART = re.compile(rf"(?<![A-Za-z0-9])((?:MIG-)?GPU|MIG)-({_HEX}[0-9a-fA-F-]{{0,34}})(?![\w-])")
_PLAIN = re.compile(rf"(?<![A-Za-z0-9])({_UUID})(?![A-Za-z0-9])")
_OF_POD = re.compile(rf"(?<=pod){_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}(?!{_HEX})")
_CONTAINER = re.compile(r"(?<![0-9A-Za-z])(?<!sha256[:= ])(?<!Got {8})[0-9a-f]{64}(?![0-9A-Za-z]|  \S)")
_SHORT_CONTAINER = re.compile(
    r"""
    ( \bcontainers?(?:[ _]id)?[\s:=/"'-]{1,3} )
    (?=[a-f]*\d)( [0-9a-f]{12} )(?![0-9a-z])
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MACHINE = re.compile(
    r"""
    (?<![0-9A-Za-z])
    (?: [0-9a-f]{32} | [0-9a-f]{56} | (?=\d*[A-F])[0-9A-F]{32} )
    (?! [0-9A-Za-z] | \ \ \S )      # md5sum and sha224sum print a file's name after two spaces
    """,
    re.VERBOSE,
)
_SERIAL = re.compile(
    r"""
    (
        (?<![a-z])
        (?:
            (?: id_ | product_ | board_ | chassis_ )?s(?: erial | /?n )(?: [ _-]?(?: number | num | no\.? | short ) )?
            | (?:service|asset|chassis)[ _]tag
        )["']?
        (?: \s*[:=]\s* | > )["']?
    )
    ( [A-Za-z0-9][\w.-]{3,} )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BARE_SERIAL = re.compile(r"((?:\b|_)[Ss]erial[ #]|\bS/N )(?=[A-Z]*\d)([A-Z0-9]{8,})(?![\w-])")
# Of disks, of cloud instances (whose names include the account), of Windows file systems.
_NAMED = re.compile(
    r"""
    (?<![\w-])(
        (?: wwn-0x | eui\. | naa\. )[0-9a-f]{16,32}                     # disks
        | i-(?: [0-9a-f]{8} | [0-9a-f]{17} ) | arn:aws[\w-]*:[\w:/.*-]+  # AWS
        | (?<=UUID=)[0-9A-F]{4}-[0-9A-F]{4}                             # file systems of Windows
        | S-1-5-21(?:-\d+){3,4}                                         # its accounts
        | iqn\.\d{4}-\d\d\.[\w.:-]+ | nqn\.\d{4}-\d\d\.[\w.:-]+          # iSCSI, NVMe over a network
    )(?![\w-])
    """,
    re.VERBOSE,
)
_SIGNS_OF_NAMED = ("S-1-5-", "qn.", "wwn-", "eui.", "naa.", "i-", "arn:", "UUID=")
_OF_DISK = re.compile(r"\b((?:ata|nvme|scsi|usb)-[\w.-]+_)((?=[A-Z]*\d)[A-Z0-9]{8,20})(?![A-Za-z0-9])")
_IN_ROW = re.compile(r"((?:NVIDIA|GPU-\d{8}|Tesla|Quadro)[^\n]*, )(\d{13})(?=,|$)")  # of nvidia-smi --query-gpu
_PDI = re.compile(r"(\bGPU PDI\s+: )(0x[0-9a-f]{16})")
_NO_SERIAL = re.compile(r"(?i)n/?a|none|unknown|\[?not.*|default.*|to be.*|0+|console.*|tty.*|uart.*")
_KEY = re.compile(r"(?m)^(sig_key:\s+)(\S+)$")
_SIGNATURE = re.compile(r"(?m)^(signature:\s+)([0-9A-F:][0-9A-F:\s]*)$")

# Constants of EFI, GPT and Windows that do not identify a machine.
_KNOWN = frozenset({"8be4df61-93ca-11d2-aa0d-00e098032b8c", "d719b2cb-3d3a-4596-a3bc-dad00e67656f"})


class Identifiers(Rule):
    """Replaces ids in texts."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._kept: set[str] = set()  # UUIDs of GPUs that are not redacted

    def learn(self, text: str) -> None:
        """Collects the UUIDs of GPUs in order of occurrence, so that a shortened UUID can be matched to its GPU."""
        for found in _GPU.finditer(text):
            self._of_gpu(found[2])

    @remembering
    def replaced(self, text: str) -> str:
        if "GPU-" in text or "MIG-" in text:
            text = self._sub(_GPU, lambda found: f"{found[1]}-{self._of_gpu(found[2])}", text)
            text = self._sub(_PART_OF_GPU, self._part, text)
        if text.count("-") >= 4 or "pod" in text:
            text = self._sub(_PLAIN, lambda found: self._plain(found[1]), text)
            text = self._sub(
                _OF_POD, lambda found: self._tokens.instead("uuid", found[0], found[0].replace("_", "-").lower()), text
            )
        if len(text) >= 12:
            text = self._numbers(text)
        return text

    def _numbers(self, text: str) -> str:
        text = self._sub(_CONTAINER, lambda found: self.of_container(found[0]), text)
        text = self._sub(_MACHINE, lambda found: self._tokens("serial", found[0]), text)
        if "NVIDIA" in text or "GPU" in text:
            text = self._sub(_PDI, self._serial, self._sub(_IN_ROW, self._serial, text))
        if "ontainer" in text:
            text = self._sub(_SHORT_CONTAINER, lambda found: found[1] + self.of_container(found[2]), text)
        if any(sign in text for sign in _SIGNS_OF_NAMED):
            text = self._sub(_NAMED, lambda found: self._tokens("serial", found[1]), text)
        if "s" in text or "S" in text or "ag:" in text:
            text = self._sub(_BARE_SERIAL, self._serial, self._sub(_SERIAL, self._serial, text))
            text = self._sub(_OF_DISK, self._serial, text)
            text = self._sub(_KEY, lambda found: found[1] + self._tokens("serial", found[2]), text)
            text = self._sub(
                _SIGNATURE, lambda found: found[1] + self._tokens.instead("serial", found[2], "".join(found[2].split())), text
            )
        return text

    def chosen(self, text: str) -> str:
        """GPUs as in CUDA_VISIBLE_DEVICES: by any unambiguous prefix of a UUID."""
        return _ANY_PART.sub(self._part, _GPU.sub(lambda found: f"{found[1]}-{self._of_gpu(found[2])}", text))

    def of_container(self, id: str) -> str:
        """A container's full id, or its first twelve digits, which most tools show."""
        return self._tokens.instead("container", id, id[:12])

    def _of_gpu(self, uuid: str) -> str:
        """A token in the form of a UUID, since programs parse it; its first eight digits distinguish GPUs."""
        value, known = uuid.lower(), self._tokens.known("gpu")
        if self._tokens.keeps("gpu") or is_token(value):
            self._kept.add(value)
            return uuid
        number = known.get(value, "")[:8] or f"{self._tokens.next('gpu'):08d}"
        return self._tokens.give("gpu", value, f"{number}-0000-4000-8000-0000{number}")

    def _part(self, found: re.Match[str]) -> str:
        """The same part of the token; if several GPUs match, the common prefix of their tokens."""
        part = found[2].lower()
        if self._tokens.keeps("gpu") or is_token(part) or re.fullmatch(r"0000\d{0,4}(-0{0,4})*", part):
            return found[0]
        fitting = [token for value, token in self._tokens.known("gpu").items() if value.startswith(part)]
        if len(fitting) > 1:
            length = next(n for n in range(36, -1, -1) if len({token[:n] for token in fitting}) == 1)
            return f"{found[1]}-{fitting[0][:length]}"
        return f"{found[1]}-{(fitting or [self._of_gpu(part)])[0][: max(8, len(part))]}"

    def _plain(self, uuid: str) -> str:
        value = uuid.lower()
        if is_token(value) or value in _KNOWN or value in self._kept:
            return uuid
        return self._tokens.known("gpu").get(value) or self._tokens.instead("uuid", uuid, value)

    def _serial(self, found: re.Match[str]) -> str:
        return found[0] if _NO_SERIAL.fullmatch(found[2]) else found[1] + self._tokens("serial", found[2])
