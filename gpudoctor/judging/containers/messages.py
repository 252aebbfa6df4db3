"""What engines say when a container does not start for reasons that have nothing to do with GPUs. Pure."""

from __future__ import annotations

from gpudoctor.judging.containers import commands, engines, hosts, networks
from gpudoctor.judging.containers.daemon import CONTEXT_MISSING, NOT_PERMITTED
from gpudoctor.judging.containers.words import Message

# What names one cause first; what only names a field (cgroups, options) last.
PLAIN = (
    Message(r"(?i)permission denied while trying to connect to the Docker|permission denied.*docker\.sock", NOT_PERMITTED),
    Message(r'context "(?P<name>[^"]+)": context not found|context (?P<other>\S+) not found', CONTEXT_MISSING),
    *engines.MESSAGES,
    *networks.MESSAGES,
    *hosts.MESSAGES[:-1],
    *commands.MESSAGES,
    hosts.MESSAGES[-1],
    *commands.OF_OPTIONS,
)
PROBLEMS = tuple(dict.fromkeys(message.problem for message in PLAIN))
