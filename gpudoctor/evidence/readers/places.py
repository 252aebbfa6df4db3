"""Where a text comes from: Windows, a distribution of WSL, or a hosted notebook, by their prompts, paths and tools."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_WINDOWS = re.compile(
    r"""
    ^\s*(?:\([\w./ -]{1,40}\)\s*)* (?: PS\ [A-Za-z]:\\ | [A-Za-z]:\\[^>\n]{0,80}> )
    | ^\s*(?:Out\[\d+\]:\s*)?'win32'\s*$ | \bMicrosoft\ Windows\b | \]\ on\ win32\b | \[MSC\ v\.\d | \bWindows-1[01]-1
    | \\site-packages\b | ^\W*Platform:\W*Windows\b
    | \b[A-Za-z]:\\(?:Users|ProgramData|Program\ Files)\\
    | \|\ GPU\ \ Name\b.*\b(?:TCC/WDDM|WDDM/TCC|Driver-Model)
    | (?i:^(?:\W*(?:os|operating\ system)\b.{0,30}|my\ system\ is\ )?\W*win(?:dows)?\ ?1[01]\b)
    """,
    re.VERBOSE,
)
_LINUX = re.compile(
    r"""
    ^\s*(?:\([\w./ -]{1,40}\)\s*)* \[?[\w.+-]+@[\w.-]+[: ]~?[^$\#%\n\\]{0,80}[$\#%]    # a prompt
    | ^\s*wsl(?:\.exe)?\s+(?!-)\w
    """,
    re.VERBOSE,
)
_NOTEBOOK = re.compile(
    r"""
    (?:[\s"'(=]|^)/(?:content|kaggle/(?:working|input|lib))\b
    | \bgoogle\.colab\b
    | \bmodules/colab\b
    """,
    re.VERBOSE,
)
_CELL = re.compile(r"<ipython-input-\d|/tmp/ipython-input-\d|^\s*File .*ipykernel_\d+/")
_OF_COLAB = re.compile(r"(?m)/usr/local/lib/python3\.\d+/dist-packages/")
_DISTRIBUTION = re.compile(r"^\s*(?P<default>\*)?\s*(?P<name>[\w.-]+)\s+\S.*?\s+(?P<version>[12])\s*$")


def _windows(text: str) -> dict[str, Reply]:
    return {"shown-windows": Reply("ok", True)}


def _linux(text: str) -> dict[str, Reply]:
    return {"shown-linux": Reply("ok", True)}


def _notebook(text: str) -> dict[str, Reply]:
    return {"shown-notebook": Reply("ok", True)}


def _cell(text: str) -> dict[str, Reply] | None:
    """A cell's traceback through the folder in which Colab and Kaggle install, as root, without an environment."""
    return _notebook(text) if _OF_COLAB.search(text) else None


def _distributions(command: str, output: str) -> dict[str, Reply] | None:
    """The version of WSL of each distribution; docker-desktop is not one that a person uses."""
    rows = [match for line in output.splitlines() if (match := _DISTRIBUTION.match(line))]
    own = {row["name"]: int(row["version"]) for row in rows if not row["name"].startswith("docker-desktop")}
    default = next((row["name"] for row in rows if row["default"]), "")
    return {"shown-wsl": Reply("ok", {"versions": own, "default": default})} if own else None


def _mac(text: str) -> dict[str, Reply]:
    return {"shown-mac": Reply("ok", True)}


_MAC = re.compile(
    r"""
    \bmacOS\b | \bApple\ (?:M\d|Silicon) | \bDarwin\b.*\b(?:arm64|x86_64)\b
    | \bmps\.is_available\( | device='mps
    """,
    re.VERBOSE,
)
_ONE_LINE = re.compile("")
READERS = (
    Reader("", ("macOS", "Apple ", "Darwin", "mps.is_available", "device='mps"), _MAC, _mac, _ONE_LINE, 1, once=True),
    Reader(
        "",
        (
            "C:\\",
            "D:\\",
            "E:\\",
            "Windows",
            "windows",
            "on win32",
            "'win32'",
            "\\site-packages",
            "[MSC v.",
            "WDDM",
            "Driver-Model",
            "Win1",
            "win1",
            "WIN1",
        ),
        _WINDOWS,
        _windows,
        _ONE_LINE,
        1,
        once=True,
    ),
    Reader("", (":~", "]$ ", "]# ", "wsl "), _LINUX, _linux, _ONE_LINE, 1, once=True),
    Reader("", ("/content", "/kaggle/", "google.colab", "modules/colab"), _NOTEBOOK, _notebook, _ONE_LINE, 1, once=True),
    Reader("", ("ipython-input-", "ipykernel_"), _CELL, _cell, re.compile(r"^\w*(?:Error|Exception)\b"), 40, once=True),
    prompts.reader(
        "wsl --list --verbose",
        ("wsl -l", "wsl --list", "wsl.exe -l", "wsl.exe --list"),
        r"wsl(?:\.exe)?\ (?:-l\ -v|-lv|--list\ (?:-v|--verbose)|-l\ --verbose)",
        _distributions,
        most_lines=40,
    ),
)
