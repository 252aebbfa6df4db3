"""Jobs at work: times of training steps, rows of GPU memory, `ollama ps`, and the GPU request of a container."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

# "Time 9.612 (12.403)	Data 9.310 (11.602)" of PyTorch's examples; "time: 1.92, data_time: 1.61" of MMEngine and Detectron2
_STEP = re.compile(
    r"""
    \bTime:?\s+(?P<time>\d+\.\d+)\s*(?:s\s*)?\(\s*(?P<mean>\d+\.\d+)\).*?\bData:?\s+\d+\.\d+\s*(?:s\s*)?\(\s*(?P<data>\d+\.\d+)\)
    | \btime:\ (?P<step>\d+\.\d+)\b.*?\bdata_time:\ (?P<loading>\d+\.\d+)\b
    """,
    re.VERBOSE,
)
_MEMORY = re.compile(r"\|\s*(?P<used>\d+)\s?MiB\s*/\s*(?P<total>\d+)\s?MiB\s*\|")
_OLLAMA = re.compile(r"^NAME\s+ID\s+SIZE\s+PROCESSOR\s+")
_ON_CPU = re.compile(r"\s(?:100% CPU|\d+%/\d+% CPU/GPU)\s")
_SHARE = re.compile(r"\s(?P<size>[\d.]+) (?P<unit>[GM])B\s+(?P<cpu>\d+)%(?:/\d+% CPU/GPU| CPU)\s")
_COMPUTE = re.compile(
    r"""
    msg="inference\ compute".*\ library=cuda\b
    .*total="(?P<total>[\d.]+)\ GiB"\ available="(?P<free>[\d.]+)\ (?P<unit>[GM])iB"
    """,
    re.VERBOSE,
)
_OFFLOAD = re.compile(
    r"""
    msg=offload\ .*\blayers\.model=(?P<layers>\d+)\ layers\.offload=(?P<placed>\d+)\b
    .*memory\.required\.full="(?P<required>[\d.]+)\ GiB"
    """,
    re.VERBOSE,
)
_REQUEST = re.compile(r"\"DeviceRequests\":\s*(?P<json>null|\[)|docker inspect\b.*DeviceRequests")


def _steps(text: str) -> dict[str, Reply] | None:
    """The last step: the means of a whole epoch where the program prints them."""
    found = [match for line in text.splitlines() if (match := _STEP.search(line))]
    if not found:
        return None
    last = found[-1]
    return {
        "shown-step": Reply(
            "ok", {"seconds": float(last["mean"] or last["step"]), "loading": float(last["data"] or last["loading"])}
        )
    }


def _memory(text: str) -> dict[str, Reply] | None:
    match = _MEMORY.search(text)
    return {"shown-gpu-memory": Reply("ok", {"used": int(match["used"]), "total": int(match["total"])})} if match else None


def _ollama(text: str) -> dict[str, Reply] | None:
    _, *rows = text.splitlines()
    if not rows:
        return None
    share = _SHARE.search(rows[0])
    found = {"shown-ollama": Reply("ok", bool(_ON_CPU.search(rows[0])))}
    if share:
        gib = float(share["size"]) / (1 if share["unit"] == "G" else 1000)
        found["shown-ollama-share"] = Reply("ok", {"gb": gib, "cpu": int(share["cpu"]), "name": rows[0].split()[0]})
    return found


def _compute(text: str) -> dict[str, Reply] | None:
    match = _COMPUTE.search(text)
    if not match:
        return None
    free = float(match["free"]) / (1 if match["unit"] == "G" else 1024)
    return {"shown-ollama-gpu": Reply("ok", {"total": float(match["total"]), "free": free})}


def _offload(text: str) -> dict[str, Reply] | None:
    match = _OFFLOAD.search(text)
    return {"shown-offload": Reply("ok", {key: float(value) for key, value in match.groupdict().items()})} if match else None


def _request(text: str) -> dict[str, Reply] | None:
    """null where the container was started without --gpus and without CDI."""
    first, *rest = text.splitlines()
    match = _REQUEST.search(first)
    answer = (match["json"] if match else None) or next((line.strip() for line in rest if line.strip()), "")
    answer = re.sub(r"^runc\s+|\s+runc$", "", answer)  # of another runtime than NVIDIA's
    return {"shown-request": Reply("ok", answer not in ("null", "[]"))} if re.match(r"null|\[", answer) else None


def _toolkits(command: str, output: str) -> dict[str, Reply] | None:
    found = re.findall(r"/usr/local/cuda(?:-[\d.]+)?(?=[\s@:/]|$)", output)
    return {"shown-toolkits": Reply("ok", list(dict.fromkeys(found)))} if found else None


_ONE_LINE = re.compile("")
READERS = (
    prompts.reader(
        "ls of toolkits",
        ("ls -d /usr/local/cuda", "ls /usr/local/cuda"),
        r"ls\ (?:-\w+\ )*/usr/local/cuda[*-]\S*",
        _toolkits,
        most_lines=40,
    ),
    Reader(
        "times of training steps",
        ("Data ", "Data:", "data_time: "),
        _STEP,
        _steps,
        re.compile(r"^(?!.*(?:Data:? |data_time: ))"),
        2000,
    ),
    Reader("", ("MiB / ",), _MEMORY, _memory, _ONE_LINE, 1),
    Reader("", ('msg="inference compute"',), _COMPUTE, _compute, _ONE_LINE, 1),
    Reader("", ("msg=offload ",), _OFFLOAD, _offload, _ONE_LINE, 1),
    Reader("ollama ps", ("PROCESSOR",), _OLLAMA, _ollama, re.compile(r"^\s*$|^\S*[$#>] "), 3),
    Reader("docker inspect", ("DeviceRequests",), _REQUEST, _request, re.compile(r"^\s*\S*[$#>] \S"), 2),
)
