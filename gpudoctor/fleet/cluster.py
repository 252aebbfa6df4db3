"""A Kubernetes cluster: its nodes with GPUs, and one Job on a node, by the official client."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpudoctor.errors import MissingPackage, UserError, WorkError

GPU = "nvidia.com/gpu"
PRESENT = "nvidia.com/gpu.present"
RUN, NODE = "gpudoctor.io/run", "gpudoctor.io/node"
LABELS = {"app.kubernetes.io/name": "gpudoctor"}
KEPT_SECONDS = 600  # of a Job that has ended, if this program was killed before it removed it
ROOTS = {"host": "/host", "driver": "/host/run/nvidia/driver"}
IMAGES = {"host": "busybox:1.36", "driver": "busybox:1.36", "pod": "python:3.12-slim"}
MOST_LOG_BYTES = 32 << 20
REQUIRED = "kubernetes>=28"
_CHUNK = 1 << 16
UNAUTHORIZED, GONE, TOO_MANY, SERVER_ERROR = 401, 404, 429, 500
API = "the Kubernetes API"
NOT_PLACED = "the pod was not scheduled"
# Reasons why a pod does not run that say nothing about the GPUs of its node: queues, quotas, other pods, or its shutdown.
OF_CLUSTER = (
    "Unschedulable",
    "Scheduling",
    "SchedulerError",
    "Evicted",
    "Preempt",
    "OutOf",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
    "NodeAffinity",
)
EXPIRED = "; does kubectl get nodes work? A token may have expired"


class Refusal(WorkError):
    """The API refused a request. status: of HTTP. passes: the next attempt may work."""

    def __init__(self, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.status = status
        self.passes = status == 0 or status == TOO_MANY or status >= SERVER_ERROR


@dataclass(frozen=True)
class Place:
    """view: "host" (its root), "driver" (the root of a driver container) or "pod" (all GPUs of the node in a container)."""

    namespace: str = "default"
    context: str | None = None
    view: str = "host"
    image: str = ""


@dataclass(frozen=True)
class GpuNode:
    """ready: "" if it is; otherwise why it is not."""

    name: str
    gpus: int
    ready: str


class Cluster:
    """The parts of the API that are needed. Everything it creates has the label RUN with the value `run`."""

    def __init__(self, place: Place, run: str) -> None:
        try:
            from kubernetes import client, config
        except ImportError:
            raise MissingPackage("--engine kubernetes", REQUIRED) from None
        self._place = place
        self._run = run
        how = client.Configuration()
        how.retries = False  # urllib3 would print a warning for each
        where = os.environ.get("KUBECONFIG") or "~/.kube/config"
        try:
            if place.context is None and "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(client_configuration=how)
            else:  # the client reads KUBECONFIG only when it is imported
                config.load_kube_config(os.environ.get("KUBECONFIG"), place.context, how)
        except config.ConfigException as failure:
            raise UserError(f"no Kubernetes cluster is configured: {_first_line(failure)}") from None
        except Exception as failure:  # whatever its parser does with a file of another kind
            raise UserError(f"this is not a configuration of Kubernetes ({type(failure).__name__}): {where}") from None
        api = client.ApiClient(how)
        self._core, self._batch = client.CoreV1Api(api), client.BatchV1Api(api)

    def nodes(self) -> dict[str, GpuNode]:
        """Name -> each node of the cluster."""
        found = self._asked(self._core.list_node)["items"]
        return {node.name: node for node in map(_node, found)}

    def name(self, number: int) -> str:
        """Of a Job."""
        return f"gpudoctor-{self._run}-{number}"

    def start(self, name: str, node: GpuNode, arguments: list[str], given: bytes, seconds: float) -> None:
        """Runs a shell on the node, as a Job of this name, with these arguments and this input."""
        body = self._job(name, node, arguments, seconds)
        job = self._asked(self._batch.create_namespaced_job, self._place.namespace, body)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        self._asked(self._core.create_namespaced_config_map, self._place.namespace, self._input(name, owner, given))

    def pods(self) -> dict[str, dict[str, Any]]:
        """Name of a Job -> its pod."""
        found = self._asked(self._core.list_namespaced_pod, self._place.namespace, label_selector=f"{RUN}={self._run}")
        return {pod["metadata"]["labels"].get("job-name", ""): pod for pod in found["items"]}

    def lines(self, pod: str) -> Iterator[bytes]:
        """What a pod printed, up to MOST_LOG_BYTES."""
        answer = self._call(self._core.read_namespaced_pod_log, pod, self._place.namespace, _preload_content=False)
        size, rest = 0, b""
        try:
            while size < MOST_LOG_BYTES and (data := answer.read(_CHUNK)):
                size += len(data)
                *lines, rest = (rest + data).split(b"\n")
                yield from lines
        finally:
            answer.release_conn()
        yield rest

    def why_no_pod(self, name: str) -> str:
        """What the cluster says about a Job without a pod, such as a quota that it exceeds; "" if it may not be asked."""
        try:
            events = self._asked(
                self._core.list_namespaced_event, self._place.namespace, field_selector=f"involvedObject.name={name}"
            )["items"]
        except Refusal:
            return ""
        return next((_line(each["message"]) for each in reversed(events) if each.get("type") == "Warning"), "")

    @property
    def removal(self) -> str:
        """What removes everything that this run created."""
        context = ["--context", self._place.context] if self._place.context else []
        words = ["kubectl", *context, "-n", self._place.namespace, "delete", "job,configmap", "-l", f"{RUN}={self._run}"]
        return shlex.join(words)

    def remove(self, name: str) -> None:
        """A Job with its pod and its input."""
        self._quietly(self._batch.delete_namespaced_job, name, self._place.namespace, propagation_policy="Background")
        self._quietly(self._core.delete_namespaced_config_map, name, self._place.namespace)

    def _job(self, name: str, node: GpuNode, arguments: list[str], seconds: float) -> dict[str, Any]:
        root = ROOTS.get(self._place.view)
        shell = ["sh", "-c", 'gzip -dc /gpudoctor/input.gz | chroot "$0" sh "$@"', root] if root else None
        command = shell or ["sh", "-c", 'gzip -dc /gpudoctor/input.gz | "$0" "$@"', "sh"]
        volumes: list[dict[str, Any]] = [{"name": "input", "configMap": {"name": name}}]
        mounts: list[dict[str, Any]] = [{"name": "input", "mountPath": "/gpudoctor", "readOnly": True}]
        container: dict[str, Any] = {
            "name": "gpudoctor",
            "image": self._place.image or IMAGES[self._place.view],
            "command": [*command, *arguments],
        }
        if root:
            volumes.append({"name": "host", "hostPath": {"path": "/"}})
            mounts.append({"name": "host", "mountPath": "/host", "mountPropagation": "HostToContainer"})
            container["securityContext"] = {"privileged": True}
        elif node.gpus:
            container["resources"] = {"limits": {GPU: str(node.gpus)}}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "hostPID": bool(root),
            "affinity": {"nodeAffinity": required},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{**container, "volumeMounts": mounts}],
            "volumes": volumes,
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._named(name),
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": KEPT_SECONDS,
                "activeDeadlineSeconds": int(seconds) + 1,
                "template": {"metadata": {"labels": self._labels()}, "spec": spec},
            },
        }

    def _input(self, name: str, owner: Mapping[str, str], given: bytes) -> dict[str, Any]:
        """Belongs to its Job, so that it goes with it."""
        data = base64.b64encode(gzip.compress(given)).decode()
        metadata = {**self._named(name), "ownerReferences": [dict(owner)]}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {"input.gz": data}}

    def _named(self, name: str) -> dict[str, Any]:
        return {"name": name, "labels": self._labels()}

    def _labels(self) -> dict[str, str]:
        return {**LABELS, RUN: self._run}

    def _asked(self, call: Any, *args: Any, **how: Any) -> Any:
        return json.loads(self._call(call, *args, _preload_content=False, **how).data)

    def _call(self, call: Any, *args: Any, **how: Any) -> Any:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return call(*args, _request_timeout=30, **how)
        except ApiException as failure:
            words = f"{API} refused a request: {failure.status} {_message(failure)}"
            raise Refusal(words + EXPIRED * (failure.status == UNAUTHORIZED), failure.status) from None
        except HTTPError as failure:
            raise Refusal(f"{API} cannot be reached: {_unreached(failure)}") from None

    def _quietly(self, call: Any, *args: Any, **how: Any) -> None:
        """What is gone already need not be removed."""
        try:
            self._call(call, *args, **how)
        except Refusal as failure:
            if failure.status != GONE:
                raise


def _node(found: Mapping[str, Any]) -> GpuNode:
    status = found.get("status", {})
    gpus = str(status.get("capacity", {}).get(GPU, "0"))
    is_labelled = found["metadata"].get("labels", {}).get(PRESENT) == "true"
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    ready = conditions.get("Ready", {})
    why = "" if ready.get("status") == "True" else f"not ready: {ready.get('message') or ready.get('reason') or 'unknown'}"
    return GpuNode(found["metadata"]["name"], int(gpus) if gpus.isdecimal() else int(is_labelled), why)


def waits_for(pod: Mapping[str, Any]) -> str:
    """Why a pod does not run, such as ImagePullBackOff; "" if it does."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") != "ContainerCreating":
            return f"{waiting.get('reason')}: {waiting.get('message', '')}".rstrip(": ")
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason')}: {condition.get('message', '')}".rstrip(": ")
    is_placed = status.get("phase") != "Pending" or pod.get("spec", {}).get("nodeName") or status.get("containerStatuses")
    return "" if is_placed else NOT_PLACED


def ended_by(pod: Mapping[str, Any]) -> str:
    """Why the cluster ended a pod, such as Evicted; "" if its program ended."""
    status = pod.get("status", {})
    return _line(f"{status.get('reason')}: {status.get('message', '')}".rstrip(": ")) if status.get("reason") else ""


def _line(words: str) -> str:
    return " ".join(words.split())[:200]


def _unreached(failure: Any) -> str:
    """The last cause, without the names of Python's objects: `Connection refused`."""
    cause = getattr(failure, "reason", None) or failure
    return _line(re.sub(r"<[^>]*>: |^\w+\(.*?\): ", "", str(cause)))


def _message(failure: Any) -> str:
    try:
        return str(json.loads(failure.body)["message"])[:200]
    except (TypeError, ValueError, LookupError):
        return str(failure.reason)


def _first_line(failure: Exception) -> str:
    return next(iter(str(failure).splitlines()), type(failure).__name__)
