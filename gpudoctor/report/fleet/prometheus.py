"""A fleet as metrics, for the textfile collector of node_exporter on the machine that asked."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpudoctor.fleet.model import Fleet
from gpudoctor.model import Status
from gpudoctor.plain import plain
from gpudoctor.report.prometheus import STATUSES


class _Metrics(Collector):
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[GaugeMetricFamily]:
        fleet = self._fleet
        yield GaugeMetricFamily("gpudoctor_fleet_nodes", "Nodes that were asked.", fleet.total)
        yield GaugeMetricFamily("gpudoctor_fleet_nodes_answered", "Nodes that answered.", fleet.answered)
        yield GaugeMetricFamily("gpudoctor_fleet_nodes_agreeing", "Nodes that answered and differ in nothing.", fleet.agree)
        yield GaugeMetricFamily("gpudoctor_fleet_gpus", "GPUs that the nodes should have.", fleet.gpus)
        yield GaugeMetricFamily("gpudoctor_fleet_gpus_lost", "GPUs that cannot be used.", fleet.lost_gpus)
        node = GaugeMetricFamily("gpudoctor_fleet_node", "The verdict: 0 pass, 1 warn, 2 fail.", labels=("node", "state"))
        lost = GaugeMetricFamily("gpudoctor_fleet_node_gpus_lost", "GPUs of a node that cannot be used.", labels=("node",))
        problem = GaugeMetricFamily(
            "gpudoctor_fleet_problem", "1 for each problem of a node.", labels=("node", "problem", "gpu", "status")
        )
        seen = set()
        for each in fleet.nodes:
            verdict = Status.FAIL if each.is_bad else each.status or Status.FAIL
            node.add_metric((plain(each.name), each.state.value), STATUSES[verdict])
            lost.add_metric((plain(each.name),), each.lost_gpus)
            for found in each.problems:
                gpu = "" if found.gpu is None else str(found.gpu)
                labels = plain(each.name), plain(found.id), gpu, found.status.value
                if labels not in seen:
                    seen.add(labels)
                    problem.add_metric(labels, 1)
        yield from (node, lost, problem)


def render(fleet: Fleet) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(fleet))
    return generate_latest(registry).decode()
