"""Rules about the outputs in a text: two that do not fit each other, or one value that is wrong for its kind. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gpudoctor.facts import Facts
from gpudoctor.facts.guarded import comparable
from gpudoctor.judging.texts.rules import (
    access,
    apart,
    applied,
    architectures,
    asked,
    assigned,
    batch,
    built,
    chosen,
    cluster,
    cluster_setup,
    compared,
    complained,
    configured,
    containers,
    counts,
    daemons,
    desktops,
    drawing,
    driver,
    effective,
    engines,
    environments,
    fabric,
    gpus,
    guests,
    hosts,
    in_code,
    inputs,
    inside,
    installed,
    interpreters,
    jobs,
    kept,
    kernels,
    links,
    loads,
    misspelt,
    modes,
    networks,
    node_offers,
    node_pools,
    nodes,
    numbering,
    peers,
    picked,
    places,
    pod_shares,
    pods,
    python,
    ranks,
    rates,
    releases,
    scopes,
    siblings,
    starts,
    supplies,
    surroundings,
    tested,
    unused,
    values,
    versions_used,
    virtual,
    workloads,
)
from gpudoctor.model import Finding, Skip

RULES = (
    *(*releases.RULES, *driver.RULES, *gpus.RULES, *python.RULES, *environments.RULES, *places.RULES, *loads.RULES),
    *(*desktops.RULES, *kernels.RULES, *hosts.RULES, *inputs.RULES, *starts.RULES),
    *(*node_offers.RULES, *node_pools.RULES, *pod_shares.RULES, *batch.RULES, *virtual.RULES, *inside.RULES),
    *(
        *cluster_setup.RULES,
        *containers.RULES,
        *cluster.RULES,
        *pods.RULES,
        *networks.RULES,
        *nodes.RULES,
        *jobs.RULES,
        *fabric.RULES,
    ),
    *(*configured.RULES, *versions_used.RULES, *guests.RULES),
    *(*access.RULES, *compared.RULES, *effective.RULES, *picked.RULES, *apart.RULES, *assigned.RULES, *daemons.RULES),
    *(*asked.RULES, *scopes.RULES, *engines.RULES, *drawing.RULES, *siblings.RULES, *built.RULES),
    *(*values.RULES, *links.RULES, *rates.RULES, *supplies.RULES, *unused.RULES, *modes.RULES, *kept.RULES),
    *(*misspelt.RULES, *applied.RULES),
    *(*numbering.RULES, *peers.RULES, *chosen.RULES, *installed.RULES, *counts.RULES),
    *(*architectures.RULES, *interpreters.RULES, *in_code.RULES, *ranks.RULES, *tested.RULES),
    *(*surroundings.RULES, *workloads.RULES),
    *complained.RULES,
)


def findings(facts: Facts) -> Iterator[Finding]:
    """A rule whose facts are not in the text finds nothing. What two rules find is said once, in the words of the first."""
    found: set[tuple[str, int | None]] = set()
    for rule in RULES:
        with suppress(Skip):
            for finding in comparable(rule(facts)):
                if (key := (finding.problem.id, finding.gpu)) not in found:
                    found.add(key)
                    yield finding
