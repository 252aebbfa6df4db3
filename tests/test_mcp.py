"""An MCP client sees six tools that read, change nothing and return redacted text."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import machine
import pytest
import yaml
from each import each
from stand_in import environment, run

from gpudoctor import remembered
from gpudoctor.cli import mcp, mcp_tools
from gpudoctor.errors import UserError
from gpudoctor.files import snapshot
from gpudoctor.fleet import cluster

TOOLS = {"check", "replay", "explain", "diff", "list", "fix"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("mcp")
    for name, case in (("bad", "driver-library-version-mismatch"), ("good", "h100")):
        (where / f"{name}.json").write_bytes(snapshot.dump(machine.load(case)))
    return where


async def talk(*calls: tuple[str, dict[str, Any]]) -> tuple[Any, list[Any]]:
    from mcp import Client, StdioServerParameters  # here, since it takes a second, which one worker needs to spend

    started = StdioServerParameters(command=sys.executable, args=["-m", "gpudoctor", "mcp"], env=environment())
    async with Client(started) as client:
        tools = await client.list_tools()
        return tools, [await client.call_tool(name, given) for name, given in calls]


@pytest.mark.slow
def test_a_client_over_stdio(folder: Path) -> None:
    bad, good = str(folder / "bad.json"), str(folder / "good.json")
    tools, answers = asyncio.run(
        talk(
            ("replay", {"file": bad}),
            ("diff", {"a": bad, "b": good}),
            ("fix", {"file": bad}),
            ("explain", {"what": "Xid 79"}),
            ("list", {"words": "ecc", "kind": "problems"}),
            ("check", {"only": ["gpu-on-bus"]}),
            ("replay", {"file": "/no/such/file.json"}),
            ("fix", {"file": bad, "problem": "no-such-problem"}),
        )
    )
    assert {tool.name for tool in tools.tools} == TOOLS
    assert all(tool.annotations.read_only_hint for tool in tools.tools)
    texts = [answer.content[0].text for answer in answers]
    expected = (
        *("driver-library-version-mismatch", "driver", "sudo reboot", "fallen off the bus"),
        *("ecc-uncorrected-errors", "gpudoctor", "Error: ", "Error: "),
    )
    for text, words in zip(texts, expected, strict=True):
        assert words in text
    assert [text.count("\n") for text in texts[-2:]] == [1, 1]


@each("tool", ["replay", "fix"])
def test_what_leaves_is_redacted(tool: str, tmp_path: Path) -> None:
    secret = "zanzibar-cluster"
    taken = machine.load("driver-library-version-mismatch")
    taken.replies["uname"].value["node"] = secret
    file = tmp_path / "machine.json"
    file.write_bytes(snapshot.dump(taken))
    assert secret in file.read_text()
    assert secret not in mcp_tools.TOOLS[tool](file=str(file))


def test_a_long_answer_is_cut_at_a_line() -> None:
    text = mcp_tools._cut("a line\n" * 20_000)
    assert len(text) < mcp_tools.MOST_CHARACTERS + 100
    assert "\na line\n[cut: " in text


@each(("tool", "words"), [("replay", ["pipe"]), ("explain", ["pipe"]), ("diff", ["pipe", "pipe"]), ("fix", [None, "pipe"])])
def test_a_pipe_is_not_waited_for(tool: str, words: list[str | None], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
    with pytest.raises(UserError, match="is not a regular file"):
        mcp_tools.TOOLS[tool](*(word and str(pipe) for word in words))


def test_a_program_that_a_client_names_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    started, program = tmp_path / "started", tmp_path / "env" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(0o755)
    for named in (str(program), str(tmp_path / "env")):
        with pytest.raises(UserError, match="starts no other program that a client names"):
            mcp_tools.check(python=named)
    assert not started.exists()
    mcp_tools._must_be_known("python3")
    mcp_tools._must_be_known(sys.executable)
    remembered.remember("2026-01-01T00:00:00Z", str(program))
    mcp_tools._must_be_known(str(tmp_path / "env"))


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "mcp" or name.startswith("mcp.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = run("mcp")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("Error: gpudoctor mcp requires a package that is not installed: ")
    assert result.stderr.endswith(f" '{mcp.REQUIRED}'\n")
    assert sys.executable in result.stderr


def test_the_packages_to_install_are_those_of_the_extras() -> None:
    """gpudoctor is on no index yet, so that its extras cannot be installed by name."""
    extras = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    for name, requirement in (("mcp", mcp.REQUIRED), ("kubernetes", cluster.REQUIRED)):
        assert f'{name} = ["{requirement}"]\n' in extras


def test_the_list_for_language_models_names_every_page() -> None:
    docs = Path(__file__).parent.parent / "docs"
    nav = yaml.safe_load((docs.parent / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    spec = importlib.util.spec_from_file_location("llms", docs / "llms.py")
    assert spec
    assert spec.loader
    llms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(llms)
    lines = [line for line in llms.text(nav, docs).splitlines() if line.startswith("- ")]
    linked = {line.partition("](")[2].partition(")")[0] for line in lines}
    assert {path.stem for path in docs.glob("*.md")} <= {address.removesuffix(".html") for address in linked}
    assert all(len(line) > 30 for line in lines if "index.html" not in line), lines
