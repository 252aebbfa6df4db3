"""The gate in a real Slurm cluster: an unfit node is drained with the reason, a fit one runs the job."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import machine
import pytest
import slurm_lab
from slurm_lab import Cluster

from gpudoctor.files import snapshot

SCRIPT = Path(__file__).parent.parent / "deploy/slurm/gpudoctor-gate.sh"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm_lab.is_missing()), reason=slurm_lab.is_missing() or "-")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """gpu02 has lost a GPU, and on gpu03 gpudoctor itself is broken."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "good.json").write_bytes(snapshot.dump(machine.load("hgx-h200-x8")))
    (folder / "bad.json").write_bytes(snapshot.dump(machine.load("xid-79-fallen-off-bus")))
    program = folder / "gpudoctor"
    root = shlex.quote(str(Path(__file__).parent.parent))
    program.write_text(f"""#!/bin/sh
case $SLURMD_NODENAME in gpu02) file=bad ;; gpu03) exit 3 ;; *) file=good ;; esac
PYTHONPATH={root} exec {shlex.quote(sys.executable)} -m gpudoctor "$@" --replay {shlex.quote(str(folder))}/$file.json
""")
    program.chmod(0o755)
    (folder / "defaults").write_text(f"GPUDOCTOR={program}\nPATH={slurm_lab.PATH}\nexport SLURM_CONF={folder}/slurm.conf\n")
    wrapper = folder / "gate.sh"  # Slurm gives its scripts no variables of ours
    wrapper.write_text(f"#!/bin/sh\nGPUDOCTOR_DEFAULTS={folder}/defaults exec {SCRIPT}\n")
    wrapper.chmod(0o755)
    with slurm_lab.cluster(folder, 3, f"Prolog={wrapper}\nEpilog={wrapper}\nPrologFlags=Alloc") as made:
        yield made


def test_a_fit_node_runs_the_job(cluster: Cluster) -> None:
    done = cluster.run("srun", "-w", "gpu01", "echo", "it ran")
    assert done.stdout == "it ran\n"
    slurm_lab.wait(lambda: cluster.node("gpu01")["State"] == "IDLE", "gpu01 does not become idle")


def test_an_unfit_node_is_drained_with_the_reason(cluster: Cluster) -> None:
    output = cluster.folder / "job.out"
    submitted = cluster.run("sbatch", "-w", "gpu02", "-o", str(output), "--wrap", "echo it ran")
    assert submitted.returncode == 0, submitted.stderr
    slurm_lab.wait(lambda: "DRAIN" in cluster.node("gpu02")["State"], "gpu02 is not drained")
    assert cluster.node("gpu02")["Reason"].startswith("gpudoctor: gpu-lost: GPU 1 (0000:00:07.0)")
    assert not output.exists()


def test_a_broken_gate_drains_nothing(cluster: Cluster) -> None:
    done = cluster.run("srun", "-w", "gpu03", "echo", "it ran")
    assert done.stdout == "it ran\n"
    slurm_lab.wait(lambda: cluster.node("gpu03")["State"] == "IDLE", "gpu03 does not become idle")
