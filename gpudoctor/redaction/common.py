"""Names that are also words: replaced only if it is clear that a name is meant, not wherever the word occurs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from gpudoctor.redaction.vocabulary import PATH_WORDS

SHORTEST = 3
_SIGNS = re.compile(r"\\[A-Za-z]|\[[A-Z]?([a-z])\]|\(\?[a-zA-Z:!<=]+")  # metacharacters of a pattern; [Dd]etected is detected
_FORMS = re.compile(
    r"""
    \d+(?:[-_.]\d+)?
    | (?:
        gpu | cpu | node | host | server | machine | box | pc | desktop | laptop | workstation
        | cuda | nvidia | nv | rtx | a | h | b | l | v | p | t | card
        | rank | worker | job | step | core | numa
        | eth | ib | mlx | render | port | link | lane
        | slot | user | admin | test | guest | login | head | master | compute | cluster | vm | ct | w | n | srv | hpc
    )[-_]?\d*
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ACCOUNTS_TEXT = """
    root admin administrator user users ubuntu debian fedora centos rocky ec2-user azureuser opc vagrant docker nvidia jovyan
    jupyter conda builder build test guest nobody daemon default python node student runner worker app dev data work home
    public shared project projects model models team lab train trainer main local docker-user slurm gdm lightdm www-data max
    will mark jan feb mar apr may jun jul aug sep oct nov dec mon tue wed thu fri sat sun
"""
_ACCOUNTS = frozenset(_ACCOUNTS_TEXT.split())
_SYSTEM_GROUPS_TEXT = """
    root bin daemon sys adm tty disk lp mem kmem wheel cdrom mail man dialout floppy games tape video ftp lock audio users
    nobody render docker sudo plugdev input kvm sgx utmp ssh ssl-cert staff backup operator src shadow voice fax www-data list
    irc systemd-journal systemd-network systemd-resolve netdev lxd libvirt nvidia nvidia-persistenced rdma vglusers crontab
    messagebus syslog uucp proxy gnats nogroup pulse pulse-access bluetooth scanner lpadmin sambashare podman containerd
    wireshark i2c gpio spi
"""
SYSTEM_GROUPS = frozenset(_SYSTEM_GROUPS_TEXT.split())


def is_common(name: str, words: Iterable[str] = ()) -> bool:
    """words: further words with a meaning on this machine, such as the names of its packages."""
    plain = name.lower()
    if (
        len(plain) < (SHORTEST if plain.isascii() else SHORTEST - 1)
        or plain in _ACCOUNTS
        or _FORMS.fullmatch(plain)
        or plain in words
    ):
        return True
    parts = re.split(r"[^a-z0-9]+", plain)
    told = [part for part in parts if part and not part.isdigit()]
    return bool(told) and all(part in PATH_WORDS or part in _said() for part in told)


def _said() -> frozenset[str]:
    """Every word in gpudoctor's checks and problems, and in the patterns of messages and the names of GPUs."""
    from gpudoctor import catalog

    return _words_of(tuple(catalog.problems()))


@functools.cache
def _words_of(problems: tuple[str, ...]) -> frozenset[str]:
    from gpudoctor import catalog
    from gpudoctor.knowledge import gpus, messages

    texts = [text for check in catalog.checks().values() for text in (check.id, check.explanation)]
    for _, problem in map(catalog.problems().__getitem__, problems):
        texts += [problem.id, problem.title, problem.why]
        texts += [text for fix in problem.fixes for text in (fix.title, fix.command, fix.verify)]
    texts += [gpu.name for gpu in gpus.gpus()]
    for message in (message for table in messages.tables().values() for message in table.messages):
        texts += [_SIGNS.sub(r" \1", pattern) for pattern in (message.pattern, message.over, message.unless)]
    return frozenset(re.findall(r"[a-z0-9]+", " ".join(texts).lower()))
