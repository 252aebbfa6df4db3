"""A Kubernetes API server of a few nodes, with answers in the form of a real one. Each Job runs its shell on this machine.

`notready`, `pending`, `unplaced`, `unschedulable`, `quota`, `deleted`, `full` and `evicted` in the name of a node say what
becomes of its pods.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Values = dict[str, Any]


class Cluster(ThreadingHTTPServer):
    """nodes: name -> GPUs. jobs, inputs: what was created and not deleted. created: all Jobs that there ever were.

    refused: method and kind, such as "POST configmaps" -> the status and the message of the refusal.
    """

    def __init__(self, nodes: dict[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.nodes = nodes
        self.jobs: dict[str, Values] = {}
        self.inputs: dict[str, Values] = {}
        self.logs: dict[str, bytes] = {}
        self.created: list[Values] = []
        self.refused: dict[str, tuple[int, str]] = {}
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def config(self) -> str:
        address = f"http://127.0.0.1:{self.server_address[1]}"
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "fake",
                "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
                "clusters": [{"name": "fake", "cluster": {"server": address}}],
                "users": [{"name": "fake", "user": {}}],
            }
        )

    def pod(self, job: Values) -> Values:
        name = job["metadata"]["name"]
        node = node_of(job)
        labels = {**job["spec"]["template"]["metadata"]["labels"], "job-name": name}
        found: Values = {"metadata": {"name": f"{name}-x1", "labels": labels}, "status": {"phase": "Pending"}}
        if "pending" in node:
            reason = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
            found["status"]["containerStatuses"] = [{"name": "gpudoctor", "state": {"waiting": reason}}]
        elif "unschedulable" in node:
            words = {"reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}
            found["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **words}]
        elif "deleted" in node:
            del self.jobs[name]
        elif "unplaced" in node:
            pass
        elif "full" in node:
            found["status"] = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
        elif "evicted" in node:
            self.logs[name] = b""
            found["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        elif name in self.inputs:
            self.logs.setdefault(name, self._run(job))
            found["status"]["phase"] = "Succeeded"
        return found

    def _run(self, job: Values) -> bytes:
        """As kubelet would, but without the container: the shell with its arguments and its input."""
        command = job["spec"]["template"]["spec"]["containers"][0]["command"]
        given = gzip.decompress(base64.b64decode(self.inputs[job["metadata"]["name"]]["binaryData"]["input.gz"]))
        return subprocess.run(["sh", *command[4:]], input=given, capture_output=True, check=False).stdout


def node_of(job: Values) -> str:
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    name: str = term["matchFields"][0]["values"][0]
    return name


class _Handler(BaseHTTPRequestHandler):
    server: Cluster

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, value: Any, code: int = 200) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _is_refused(self) -> bool:
        length = int(self.headers.get("Content-Length") or 0)
        kind = next((each for each in ("nodes", "jobs", "configmaps", "log", "pods", "events") if f"/{each}" in self.path), "")
        code, message = self.server.refused.get(f"{self.command} {kind}", (0, ""))
        if code:
            self.rfile.read(length)
            self._answer({"kind": "Status", "message": message}, code)
        return bool(code)

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        if self._is_refused():
            return
        if where.path.endswith("/events"):
            message = (
                'Error creating: pods "x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=9, limited: pods=9'
            )
            self._answer({"kind": "EventList", "items": [{"type": "Warning", "message": message}]})
        elif where.path == "/api/v1/nodes":
            self._answer({"kind": "NodeList", "items": [_node(*each) for each in self.server.nodes.items()]})
        elif log := re.fullmatch(r".*/pods/(.*)-x1/log", where.path):
            message = f'container "gpudoctor" in pod "{log[1]}-x1" is not available'
            written = self.server.logs.get(log[1])
            self._answer({"kind": "Status", "message": message} if written is None else written, 400 if written is None else 200)
        elif where.path.endswith("/pods"):
            key, _, value = parse_qs(where.query)["labelSelector"][0].partition("=")
            jobs = [job for job in list(self.server.jobs.values()) if job["metadata"]["labels"][key] == value]
            jobs = [job for job in jobs if "quota" not in node_of(job)]
            self._answer({"kind": "PodList", "items": [self.server.pod(job) for job in jobs]})

    def do_POST(self) -> None:
        if self._is_refused():
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = body["metadata"]["name"]
        if self.path.startswith("/api/v1/namespaces/closed/") or "/namespaces/closed/" in self.path:
            self._answer({"kind": "Status", "message": 'jobs.batch is forbidden: User "me" cannot create resource'}, 403)
            return
        (self.server.jobs if body["kind"] == "Job" else self.server.inputs)[name] = body
        if body["kind"] == "Job":
            self.server.created.append(body)
        self._answer({**body, "metadata": {**body["metadata"], "uid": f"uid-{name}"}}, 201)

    def do_DELETE(self) -> None:
        if self._is_refused():
            return
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        name = urlsplit(self.path).path.rpartition("/")[2]
        assert name, "a request without a name deletes all"
        held = self.server.jobs if "/jobs/" in self.path else self.server.inputs
        self._answer({"kind": "Status", "status": "Success"}, 200 if held.pop(name, None) else 404)


def _node(name: str, gpus: int) -> Values:
    ready = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    if "notready" not in name:
        ready = {"type": "Ready", "status": "True"}
    capacity = {"cpu": "8", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {"metadata": {"name": name, "labels": {}}, "status": {"capacity": capacity, "conditions": [ready]}}
