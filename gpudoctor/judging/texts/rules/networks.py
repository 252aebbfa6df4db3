"""The network between nodes in a text: adapters, addresses and what NCCL chose."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_interface

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding

_LOCAL = re.compile(r"(?:docker|virbr|br-|cni|flannel|cali|veth|lxc|lxd|podman|vnet)\S*|lo")
_REDACTED = re.compile(r"ip-[a-z]+-\d+\.\d+")
_INDEX = re.compile(r"\bNCCL_IB_GID_INDEX(?:=| set by environment to )[\"']?(\d+)")
_ADAPTER = re.compile(r"\bNCCL_IB_HCA(?:=| set (?:by environment )?to )[\"'^=]*(\w+)")
_TROUBLE = re.compile(
    r"""
    hang | stuck | slow | freez | never | \bfail
    | time.?out | timed\ out | unreachable | completion\ with\ error
    | only\ \d | bandwidth
    """,
    re.IGNORECASE | re.VERBOSE,
)
_RDMA = re.compile(r"(?i)\bnccl\b|\broce\b|\brdma\b|\bmlx5_\d|\bib_write_bw\b|all_reduce")
_MASTER = re.compile(
    r"""
    (?: --master[_-]addr[=\ ] | --rdzv[_-]endpoint[=\ ] | \bMASTER_ADDR= )
    ["']?([A-Za-z][\w.-]*)
    """,
    re.VERBOSE,
)
_WAITS = re.compile(r"(?i)both nodes|two nodes|other node|nodes?\b.*hang|Connection refused, retrying")
_MANY_NODES = re.compile(
    r"""
    --nnodes[=\ ](?:\d+:)?(?:[2-9]|\d{2,})\b
    | --node[_-]rank[=\ ][1-9]
    | \bWORLD_SIZE=(?:[2-9]|\d{2,})\b
    """,
    re.VERBOSE,
)
_NOT_LOADED = re.compile(r"NET/IB ?: GPU Direct RDMA Disabled for HCA")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ((?:tcp|sockets|udp)[\w;]*)")
_HAS_EFA = re.compile(
    r"""
    running\ on\ \S*(?:p[45]|trn|g6e?)\S*\ platform
    | FI_PROVIDER=\S*efa
    | \bp[456](?:d|de|e|en)?\.\d+xlarge
    | \brdmap\d+s\d+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FEWEST_EQUAL = 3
_IP = re.compile(
    r"""
    [$#]\ ip\ (?:-\w+\ )*(?:a|addr|address|l|link)(?:\ show)?[ \t]*\n
    (?:(?![^\n]*[$#]\ )[^\n]+(?:\n|\Z))+
    """,
    re.VERBOSE,
)
_LISTED = re.compile(r"(?m)^(?:\d+: )?([\w@.-]+?):? +(?:<[A-Z,_-]+>|UP|DOWN|UNKNOWN)(?= |$)")
_NCCL_FAILED = re.compile(r"NCCL (?:WARN|failure)|ncclSystemError|unhandled system error")


LARGE_BUFFER = 256 << 20  # bytes
_BUFFER = re.compile(r"\bNCCL_BUFFSIZE(?:=| set by environment to )(\d{1,12})\b")
_NOT_REGISTERED = re.compile(r"Call to ibv_reg_\w*mr\w* failed with error Cannot allocate memory")


def staged_through_host(facts: Facts) -> Iterator[Finding]:
    """Adapters of a node copy through host memory: NCCL's channels lack GDRDMA, and the module is missing there."""
    log = facts.nccl_log
    lacks_module = _has_no_peer_memory(facts)
    if log.direct and log.staged:
        words = f"{', '.join(log.staged)} receives without GDRDMA, and {', '.join(log.direct)} uses it"
    elif lacks_module and (log.staged or any(map(_NOT_LOADED.search, passages(facts))) or _is_only_staged(facts)):
        words = "NCCL uses the adapter without GDRDMA, and lsmod lists no module for peer memory"
    else:
        return
    evidence = {"without": list(log.staged), "with": list(log.direct)}
    yield facts.problems["nccl-without-gpudirect-rdma"].found(words, evidence, confidence=Confidence.LIKELY)


def _is_only_staged(facts: Facts) -> bool:
    """Channels over the adapter, and none of them with GDRDMA."""
    return any("via NET/IB/" in text for text in passages(facts)) and not any("GDRDMA" in text for text in passages(facts))


def _has_no_peer_memory(facts: Facts) -> bool:
    shown = facts.shown.modules
    return any("peer" in word for word in shown["asked"]) and not any("peer" in name for name in shown["loaded"])


def large_buffer(facts: Facts) -> Iterator[Finding]:
    """NCCL registers a buffer of this size per channel and peer with the adapter, and the adapter refuses it."""
    told = [match[1] for text in passages(facts) for match in _BUFFER.finditer(text)]
    size = int(told[0]) if told else 0
    if size >= LARGE_BUFFER and any(_NOT_REGISTERED.search(text) for text in passages(facts)):
        words = f"NCCL_BUFFSIZE is {size >> 20} MiB (default 4 MiB), and the adapter refuses to register such buffers"
        evidence = {"NCCL_BUFFSIZE": told[0]}
        yield facts.problems["nccl-buffer-too-large"].found(words, evidence, confidence=Confidence.LIKELY)


def local_bootstrap(facts: Facts) -> Iterator[Finding]:
    """NCCL's ranks meet over a bridge that exists on one machine only."""
    log = facts.nccl_log
    local = [name for name in log.bootstrap if _LOCAL.fullmatch(name)]
    spans = (log.nodes or 1) > 1 or len(log.hosts) > 1 or any(_MANY_NODES.search(text) for text in passages(facts))
    waits = not log.values.get("completed") and any(_WAITS.search(text) for text in passages(facts))
    if local and (spans or waits):
        words = f"NCCL uses the interface {local[0]}, which other nodes cannot reach"
        yield facts.problems["nccl-network-unreachable"].found(words, {"interface": local[0]}, confidence=Confidence.LIKELY)


def other_releases(facts: Facts) -> Iterator[Finding]:
    """The machines of one job use different releases of NCCL."""
    log = facts.nccl_log
    if len(log.versions) > 1 and len(log.hosts) > 1:
        words = f"the log of {' and '.join(log.hosts)} names NCCL {' and '.join(log.versions)}"
        evidence = {"releases": list(log.versions), "hosts": list(log.hosts)}
        yield facts.problems["nccl-versions-differ"].found(words, evidence)


def missing_interface(facts: Facts) -> Iterator[Finding]:
    """NCCL_SOCKET_IFNAME allows no interface of the machine; its names are prefixes."""
    value = known(lambda: facts.environment.get("NCCL_SOCKET_IFNAME")) or ""
    there = [path.rsplit("/", 1)[-1] for path in known(lambda: facts.replies.value("glob:/sys/class/net/*"), [])]
    wanted = [name for name in value.lstrip("=").split(",") if name]
    if "lo" in there and wanted and not value.startswith("^") and not any(one.startswith(tuple(wanted)) for one in there):
        words = f"NCCL_SOCKET_IFNAME is {value!r}; the interfaces are {', '.join(there)}"
        evidence = {"there": next(name for name in (*there[::-1], "lo") if not _LOCAL.fullmatch(name) or name == "lo")}
        yield facts.problems["nccl-socket-interface-missing"].found(words, evidence, confidence=Confidence.LIKELY)


_OF_GLOO = re.compile(r"\bGLOO_SOCKET_IFNAME=[\"']?([\w,.-]+)")


def missing_interface_of_gloo(facts: Facts) -> Iterator[Finding]:
    """GLOO_SOCKET_IFNAME names no interface of the machine; Gloo takes whole names."""
    told = [match[1] for text in passages(facts) for match in _OF_GLOO.finditer(text)]
    value = known(lambda: facts.environment.get("GLOO_SOCKET_IFNAME")) or (told[-1] if told else "")
    there = [path.rsplit("/", 1)[-1] for path in known(lambda: facts.replies.value("glob:/sys/class/net/*"), [])]
    named = [name for name in value.split(",") if name]
    if "lo" in there and named and not set(named) & set(there):
        words = f"GLOO_SOCKET_IFNAME is {value!r}; the interfaces are {', '.join(there)}"
        evidence = {"there": next((name for name in there[::-1] if not _LOCAL.fullmatch(name)), "lo")}
        yield facts.problems["gloo-socket-interface-missing"].found(words, evidence, confidence=Confidence.LIKELY)


def only_loopback(facts: Facts) -> Iterator[Finding]:
    """`ip addr` lists the loopback alone, and NCCL failed: it ignores the loopback unless it is named."""
    text = "\n".join(passages(facts))
    listed = [set(_LISTED.findall(match[0])) for match in _IP.finditer(text)]
    if listed and listed[-1] == {"lo"} and _NCCL_FAILED.search(text):
        words = "this container or machine has only the loopback interface, which NCCL does not use"
        problem = facts.problems["nccl-no-network-interface"]
        yield problem.found(words, {"interfaces": ["lo"]}, confidence=Confidence.LIKELY)


def slow_provider(facts: Facts) -> Iterator[Finding]:
    """The plugin for EFA took TCP on an instance that has EFA adapters."""
    for text in passages(facts):
        provider = _PROVIDER.search(text)
        if provider and _HAS_EFA.search(text):
            words = f"libfabric's provider is {provider[1]}, although the instance has EFA adapters"
            yield facts.problems["efa-not-usable"].found(words, {"provider": provider[1]}, confidence=Confidence.LIKELY)
            return


def wrong_gid(facts: Facts) -> Iterator[Finding]:
    """NCCL_IB_GID_INDEX names a GID that does not exist, is link-local, or is of RoCE v1 while v2 is there."""
    index = next((match[1] for text in passages(facts) if (match := _INDEX.search(text))), None)
    adapter = next((match[1] for text in passages(facts) if (match := _ADAPTER.search(text))), "")
    for device, gids in facts.shown.gids.items():
        fault = _fault(gids, index) if index and (not adapter or not device or device.startswith(adapter)) else ""
        if fault:
            words = f"NCCL_IB_GID_INDEX is {index}, and {device or 'the adapter'} {fault}"
            yield facts.problems["nccl-roce-gid-wrong"].found(words, {"index": int(index or 0)}, confidence=Confidence.LIKELY)
            return


def _fault(gids: dict[str, str] | object, index: str) -> str:
    known_gids = dict(gids) if isinstance(gids, dict) else {}
    if index not in known_gids:
        return f"has only the GIDs {', '.join(sorted(known_gids, key=int))}"
    gid, _, kind = known_gids[index].partition(" ")
    better = next(
        (other for other, text in known_gids.items() if text.endswith("RoCE v2") and not _is_link_local(text.split()[0])), None
    )
    if _is_link_local(gid) and better:
        return f"has a link-local address there; {better} is routable"
    return f"has {kind} there; {better} is RoCE v2" if kind == "RoCE v1" and better else ""


def _is_link_local(gid: str) -> bool:
    return gid.lower().startswith(("fe80:", "ip-link-"))


def slower_port(facts: Facts) -> Iterator[Finding]:
    """One port of several equal ones has a lower rate."""
    active = {name: (rate, kind) for name, (rate, kind, state) in facts.shown.port_rates.items() if state == "ACTIVE"}
    for name, (rate, kind) in active.items():
        others = [other for each, (other, same) in active.items() if each != name and same == kind]
        if len(others) >= _FEWEST_EQUAL and len(set(others)) == 1 and rate < others[0]:
            words = f"{name} runs at {rate} Gb/s, the other {len(others)} ports at {others[0]} Gb/s"
            evidence = {"port": name, "adapter": name.split()[0], "rate": rate, "others": others[0]}
            yield facts.problems["ib-link-slow"].found(words, evidence, confidence=Confidence.LIKELY)


def narrow_port(facts: Facts) -> Iterator[Finding]:
    """A port of RDMA adapters has four lanes; one alone means a bad cable or port."""
    found = next(filter(None, (_ONE_LANE.search(text) for text in passages(facts))), None)
    if found and not _IS_ETHERNET.search(found.string):
        words = f"a port of InfiniBand runs with 1 of 4 lanes: {found[0].strip()}"
        evidence = {"rate": int(found[1])}
        yield facts.problems["ib-link-slow"].found(words, evidence, confidence=Confidence.LIKELY)


_IS_ETHERNET = re.compile(r"(?i)\blink[_ ]layer:\s+Ethernet")  # which has plugs with one lane: SFP28
_ONE_LANE = re.compile(r"(?i)\brate:\s+(\d+)(?:\.\d+)? Gb/sec \(1X \w+\)|active_width:\s+1X \(1\)")


def shared_subnet(facts: Facts) -> Iterator[Finding]:
    """Two adapters for the same traffic are in one subnet: Linux answers for both on either."""
    rdma = set(facts.shown.rdma_netdevs.values())
    nets: dict[str, list[str]] = {}
    for name, address in facts.shown.addresses.items():
        if not _LOCAL.fullmatch(name) and (not rdma or name in rdma):
            nets.setdefault(_network(address), []).append(name)
    shared = next(((net, names) for net, names in nets.items() if net and len(names) > 1), None)
    told = any(_RDMA.search(text) for text in passages(facts)) and any(_TROUBLE.search(text) for text in passages(facts))
    if shared and told and ":" not in shared[0]:
        words = f"{' and '.join(shared[1])} are both in {shared[0]}"
        evidence = {"network": shared[0], "interfaces": shared[1]}
        yield facts.problems["interfaces-share-subnet"].found(words, evidence, confidence=Confidence.LIKELY)


def _network(interface: str) -> str:
    """The network of 10.1.2.3/24: 10.1.2.0/24; of a redacted address the token of its network; "" if it is neither."""
    try:
        return str(ip_interface(interface).network)
    except ValueError:
        address, _, bits = interface.partition("/")
        return f"{address.rpartition('.')[0]}.0/{bits}" if _REDACTED.fullmatch(address) else ""


def different_mtus(facts: Facts) -> Iterator[Finding]:
    """Nodes of one network have different MTUs."""
    for name, hosts in facts.shown.mtus.items():
        (usual, _), *rest = Counter(hosts.values()).most_common()
        if rest:
            odd = {host: mtu for host, mtu in hosts.items() if mtu != usual}
            words = f"{name} has MTU {usual}, but {', '.join(f'{mtu} on {host}' for host, mtu in odd.items())}"
            evidence = {"interface": name, "mtu": usual, "odd": odd}
            yield facts.problems["network-mtu-differs"].found(words, evidence, confidence=Confidence.LIKELY)
            return


def loopback_rendezvous(facts: Facts) -> Iterator[Finding]:
    """The name of the first node resolves to an address of loopback, so it waits where no other node can reach it."""
    if not any(_MANY_NODES.search(text) for text in passages(facts)):
        return
    for name in (match[1] for text in passages(facts) for match in _MASTER.finditer(text)):
        address = facts.shown.hosts.get(name, "")
        if name != "localhost" and address.startswith("127."):
            words = f"{name} resolves to {address} on its own node, so other nodes cannot reach the rendezvous"
            evidence = {"name": name, "address": address}
            yield facts.problems["rendezvous-unreachable"].found(words, evidence, confidence=Confidence.LIKELY)
            return


RULES = (
    large_buffer,
    staged_through_host,
    local_bootstrap,
    other_releases,
    missing_interface,
    missing_interface_of_gloo,
    only_loopback,
    slow_provider,
    wrong_gid,
    slower_port,
    narrow_port,
    shared_subnet,
    different_mtus,
    loopback_rendezvous,
)
