"""gpudoctor beside env-doctor and `rapids doctor`, on the same environments, one after the other in one go.

    sudo python benchmarks/peers.py [--peers FOLDER] [--only NAME,...] [-o RESULTS.json]
    sudo python benchmarks/peers.py --real [--peers FOLDER] [--python PATH] [-o RESULTS.json]     on a machine with a GPU

Installs both peers from PyPI (or takes what is in FOLDER), makes each environment in a mount namespace and runs
every tool there with the environment's Python. Prints what each said. --markdown FILE: the table of saved results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import peer_environments
import peer_machine
import peer_packages
import peer_real
import peer_tools
from peer_environment import Environment
from peer_real import Real
from peer_tools import Said

PEERS = ("env-doctor==0.3.5", "rapids-cli==0.2.0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", type=Path, help="where both are already installed, with pip install --target")
    parser.add_argument("--only", help="names of environments")
    parser.add_argument("--real", action="store_true", help="this machine's GPU, and faults by settings alone")
    parser.add_argument("--python", default=sys.executable, help="with --real: the Python to examine")
    parser.add_argument("-o", "--output", type=Path, help="write the results here")
    parser.add_argument("--markdown", type=Path, metavar="RESULTS", help="print the table of these results")
    parser.add_argument("--inside", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.markdown:
        print(markdown(json.loads(arguments.markdown.read_text())), end="")
        return
    if arguments.inside:
        name, folder = arguments.inside
        case = by_name(name, arguments.real)
        print(json.dumps(examine(case, arguments.python, arguments.peers, Path(folder))))
        return
    if os.geteuid():
        parser.error("only root may mount what an environment is made of: use sudo")
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        peers = arguments.peers or install(Path(folder) / "peers")
        settings = ["--peers", str(peers), "--python", arguments.python, *(["--real"] if arguments.real else [])]
        rows = []
        for name in names(arguments.only, arguments.real):
            rows.append(row(name, Path(folder), settings))
            if arguments.real:
                peer_tools.discount(rows[-1], rows[0])
            peer_tools.show(rows[-1])
            if arguments.output:
                arguments.output.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def names(only: str | None, real: bool) -> list[str]:
    return only.split(",") if only else [case.name for case in cases(real)]


def cases(real: bool) -> Sequence[Environment | Real]:
    return peer_real.CASES if real else peer_environments.ALL


def by_name(name: str, real: bool) -> Environment | Real:
    return next(case for case in cases(real) if case.name == name)


def install(peers: Path) -> Path:
    """Where their code is, beside no interpreter: each environment's Python is given it last on its path."""
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(peers), *PEERS], check=True)
    return peers


def row(name: str, folder: Path, settings: list[str]) -> dict[str, object]:
    """One environment in a process of its own, which it may change."""
    own = folder / name
    own.mkdir()
    done = subprocess.run([sys.executable, __file__, *settings, "--inside", name, str(own)], capture_output=True, text=True)
    if done.returncode:
        return {"name": name, "wrong": f"could not be made: {peer_tools.last_line(done.stderr)}", "tools": {}}
    result: dict[str, object] = json.loads(done.stdout)
    return result


def examine(case: Environment | Real, python: str, peers: Path, folder: Path) -> dict[str, object]:
    if isinstance(case, Real):
        return peer_real.examine(case, python, peers, folder)
    return examine_fake(case, peers, folder)


def examine_fake(environment: Environment, peers: Path, folder: Path) -> dict[str, object]:
    python = peer_packages.environment(folder / "venv", environment.packages)
    for path, text in environment.files.items():
        (folder / path).write_text(text)
    if environment.name == "stub-libcuda":
        stub = folder / "cuda-13.0" / "lib64" / "stubs"
        peer_machine.libraries(environment.machine, peer_machine.H100, stub)
        for file in stub.glob("libnvidia*"):
            file.unlink()
    peer_machine.enter(environment.machine, folder / "machine")
    variables = {name: value.format(folder=folder) for name, value in environment.variables.items()}
    path = os.pathsep.join((str(Path(python).parent), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"))
    base = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "COLUMNS": "80"}
    known = {**base, **environment.machine.environment, **variables}
    return peer_tools.compare(environment, python, peers, folder, known)


def markdown(rows: list[dict[str, object]]) -> str:
    """A row for each environment: what each tool made of it, and how long it took."""
    lines = ["| environment | what is wrong | gpudoctor | env-doctor | rapids doctor |", "|---|---|---|---|---|"]
    for found in rows:
        said = [Said(**tool) for tool in found["tools"].values()]  # type: ignore[attr-defined]
        cells = [cell(each) for each in said]
        lines.append(f"| {found['name']} | {found['wrong'] or 'nothing'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(said: Said) -> str:
    if not said.ran:
        return said.verdict
    return f"{said.verdict} ({said.seconds:.1f} s{'' if said.code is None else f', exit {said.code}'})"


if __name__ == "__main__":
    main()
