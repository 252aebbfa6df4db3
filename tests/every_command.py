"""`python every_command.py FILE`: every command that opens a file opens this one. Prints a JSON list of what came of it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from click.testing import CliRunner

from gpudoctor.cli import main


def commands(file: str, folder: str) -> list[list[str]]:
    out = ["-o", str(Path(folder, "out"))]
    return [
        ["report", file],
        *(["report", file, "-o", str(Path(folder, name))] for name in ("r.html", "r.json", "r.md", "r.tar.gz", "r.xml")),
        ["report", file, "--for", "pytorch"],
        ["check", "--replay", file, "-v"],
        ["check", "--replay", file, "--log", file],
        ["check", "--replay", file, "--baseline", file],
        ["fix", "--replay", file, *out],
        ["diff", file, file, "-v"],
        ["profile", "--compare", file, file],
        ["explain", file],
        ["explain", file, "--format", "json"],
        ["verify", file],
        ["baseline", "save", file],
        *(["images", "lint", "--kind", kind, file] for kind in ("dockerfile", "compose", "devcontainer")),
        ["images", "lock", "--file", file],
        ["images", "pull", "pytorch-24.08", "--locked"],
    ]


def came_of(args: list[str]) -> dict[str, object]:
    result = CliRunner().invoke(main, args)
    failure = "" if result.exception is None or isinstance(result.exception, SystemExit) else traceback.format_exc()
    if failure and result.exc_info:
        failure = "".join(traceback.format_exception(*result.exc_info))
    return {"args": args, "code": result.exit_code, "stderr": result.stderr, "failure": failure}


def of_file(file: str) -> list[dict[str, object]]:
    """What came of each command, in a folder and with a home of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"HOME": folder, "XDG_STATE_HOME": folder, "PATH": "/nonexistent", "HTTPS_PROXY": "http://127.0.0.1:1"}
        found = [came_of(args) for args in commands(file, folder)]
        os.chdir("/")
        return found


def print_all() -> None:
    json.dump(of_file(os.path.realpath(sys.argv[1])), sys.stdout)


if __name__ == "__main__":
    print_all()
