"""Fake machines: a folder of tests/machines is a real snapshot, or a base machine with some replies changed.

machine.yaml: `about`, `source`, `base` (another case), `rename` (text -> text, all through the base), `gpus` (how many like
the base's first), `replies` (question -> what it answers here), `measured` (likewise for runs of workloads), `baseline`,
`counters` (of the baseline), `expect_gpus`, `expectation` (`from`: type, or the name of a file), `host` (the machine around a
container: base, rename, gpus, replies likewise), `problems` (what must be diagnosed, written by hand) and `notes` (what costs
nothing, likewise). A reply that is a mapping is merged into the base's;
`!only` replaces it, `!append` adds to a list or a text, `!missing`, `!denied`, `!timeout`, `!died`, `!error`, `!skipped`,
`!stopped`, `!cut` and `!guarded` are replies of that status, with a detail, or with {detail, value}; `!unasked` takes the
question away. A folder may hold the runs of workloads in a file of its own, measured.json. `experiments`: subject ->
`suspects` (each [kind, name, value]) and `trials`: each the places of the suspects that were away, then the words of a
failure, "" if it worked, or [figure, unit] of a slow run.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from gpudoctor.files import snapshot
from gpudoctor.judging.experiments.outcome import Outcome, improved, worked
from gpudoctor.judging.experiments.proof import Proof, Trial
from gpudoctor.judging.experiments.suspect import Suspect
from gpudoctor.model import Reply, Snapshot

MACHINES = Path(__file__).parent / "machines"
every = pytest.mark.xdist_group("every machine")  # tests that read all of them share a worker, which reads each once


class Only(NamedTuple):
    value: Any


class Append(NamedTuple):
    value: Any


class Loader(yaml.CSafeLoader):
    """YAML with the tags above."""


def _plain(loader: Any, node: Any) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    construct = loader.construct_sequence if isinstance(node, yaml.SequenceNode) else loader.construct_mapping
    return construct(node, deep=True)


def _other_than_ok(loader: Any, node: Any) -> Reply:
    told = _plain(loader, node)
    return Reply(node.tag[1:], **told) if isinstance(told, dict) else Reply(node.tag[1:], None, told)


for tag in ("!missing", "!denied", "!timeout", "!died", "!error", "!skipped", "!stopped", "!cut", "!guarded"):
    Loader.add_constructor(tag, _other_than_ok)
Loader.add_constructor("!unasked", lambda loader, node: Reply("unasked"))
Loader.add_constructor("!only", lambda loader, node: Only(_plain(loader, node)))
Loader.add_constructor("!append", lambda loader, node: Append(_plain(loader, node)))


def cases() -> list[str]:
    return sorted(folder.name for folder in MACHINES.iterdir() if folder.is_dir())


@functools.cache
def describe(case: str) -> dict[str, Any]:
    """The machine.yaml of a case."""
    description: dict[str, Any] = yaml.load((MACHINES / case / "machine.yaml").read_text(), Loader)
    return description


@functools.cache
def load(case: str) -> Snapshot:
    """The snapshot of a case."""
    return _built(describe(case), MACHINES / case)


def _built(description: dict[str, Any], folder: Path) -> Snapshot:
    file = folder / "snapshot.json"
    taken = snapshot.load(str(file)) if file.exists() else load(description["base"])
    replies = _renamed(taken.replies, description.get("rename", {}))
    if "gpus" in description:
        multiply(replies, description["gpus"])
    own = folder / "measured.json"
    measured = msgspec.json.decode(own.read_bytes(), type=dict[str, Reply]) if own.exists() else dict(taken.measured)
    for known, changes in ((replies, description.get("replies", {})), (measured, description.get("measured", {}))):
        for question, change in changes.items():
            known[question] = _changed(known.get(question), change)
            if known[question].status == "unasked":
                del known[question]
    expected = {"gpus": description["expect_gpus"]} if "expect_gpus" in description else taken.expected
    baseline = description.get("baseline", taken.baseline)
    host = _built(description["host"], folder / "host").replies if "host" in description else taken.host
    experiments = {id: Reply("ok", _proof(id, told)) for id, told in description.get("experiments", {}).items()}
    return replace(
        taken,
        replies=replies,
        measured=measured,
        expected=expected,
        baseline=baseline,
        host=host,
        experiments=experiments,
        expectation=description.get("expectation", taken.expectation),
        counters=description.get("counters", taken.counters),
    )


def _proof(subject: str, told: dict[str, Any]) -> dict[str, Any]:
    suspects = tuple(Suspect(kind, name, str(value)) for kind, name, value in told["suspects"])
    outcomes = [(tuple(away), _outcome(said)) for away, said in told["trials"]]
    good = improved(outcomes[0][1]) if outcomes[0][1].worked else worked
    trials = tuple(Trial(away, outcome, good(outcome)) for away, outcome in outcomes)
    return Proof(subject, suspects, trials, told.get("ended", ""), tuple(told.get("also", ()))).as_value()


def _outcome(said: Any) -> Outcome:
    if isinstance(said, list):
        return Outcome(True, metric=said[0], unit=said[1])
    return Outcome(False, "error", said) if said else Outcome(True)


def _renamed(replies: dict[str, Reply], names: dict[str, str]) -> dict[str, Reply]:
    if not names:
        return dict(replies)
    text = msgspec.json.encode(replies).decode()
    for old, new in names.items():
        text = text.replace(old, new)
    return msgspec.json.decode(text, type=dict[str, Reply])


def multiply(replies: dict[str, Reply], count: int) -> None:
    """Makes `count` GPUs of the first one, each with its own UUID, bus id, minor number and device node."""
    gpu, context = replies["nvml:gpu0"].value, replies["cuda:context0"]
    device = replies["cuda:devices"].value[0]
    functions, nodes = replies["pci"].value["functions"], replies["devices"].value
    first = device["bus_id"]
    devices, found = [], {}
    for index in range(count):
        bus_id, uuid = f"{first[:5]}{index * 16 + 5:02x}:00.0", f"GPU-{index:08d}-0000-4000-8000-{index:012d}"
        pci = dict(gpu["PciInfo"], bus=index * 16 + 5, device=0, busIdLegacy=bus_id, busId=f"0000{bus_id}")
        replies[f"nvml:gpu{index}"] = Reply("ok", dict(gpu, UUID=uuid, MinorNumber=index, PciInfo=pci))
        replies[f"cuda:context{index}"] = context
        devices.append(dict(device, handle=index, uuid=uuid, bus_id=bus_id))
        if first in functions:  # WSL has neither these nor device nodes
            found[bus_id] = functions[first]
            nodes = {**nodes, f"/dev/nvidia{index}": dict(nodes["/dev/nvidia0"], minor=index)}
    others = {address: function for address, function in functions.items() if function["class"] >> 8 not in (0x0300, 0x0302)}
    replies["pci"] = Reply("ok", dict(replies["pci"].value, functions={**others, **found}))
    replies["devices"] = Reply("ok", nodes)
    replies["cuda:devices"] = Reply("ok", devices)
    replies["cuda"] = Reply("ok", dict(replies["cuda"].value, count=count))
    replies["nvml"] = Reply("ok", dict(replies["nvml"].value, count=count))
    pairs = [(one, other) for one in range(count) for other in range(count) if one != other]
    same_host = {f"{one},{other}": 30 for one, other in pairs if one < other}
    peers = {"p2p": {f"{one},{other}": 0 for one, other in pairs}, "topology": same_host}
    replies["nvml:peers"] = Reply("ok", peers)


def _changed(reply: Reply | None, change: Any) -> Reply:
    if isinstance(change, Reply):
        return change
    return Reply("ok", _merged(reply.value if reply else None, change))


def _merged(base: Any, change: Any) -> Any:
    if isinstance(change, Only):
        return change.value
    if isinstance(change, Append):
        return (base or type(change.value)()) + change.value
    if isinstance(base, dict) and isinstance(change, dict):
        return {**base, **{key: _merged(base.get(key), value) for key, value in change.items()}}
    return change
