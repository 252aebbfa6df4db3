"""Dockerfiles and compose files of up to 1 MB that stand for gigabytes, or whose every part is looked at for every other."""

from __future__ import annotations

BASE = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n"
SERVICES = "services:\n"


def dockerfiles(size: int) -> dict[str, str]:
    """Name -> text of about so many characters."""

    def of(piece: str, head: str = BASE) -> str:
        return head + piece * ((size - len(head)) // len(piece)) + "\n"

    def numbered(piece: str, head: str = BASE) -> str:
        return head + "".join(piece.format(number=number, before=number - 1) for number in range(size // len(piece)))

    return {
        "doubling": numbered("ENV A{number}=$A{before}$A{before}\n", BASE + "ENV A-1=x\n"),
        "one long value in every line": BASE + f"ENV A={'x' * 60_000}\n" + "RUN echo ${A}y\n" * (size // 20),
        "cuts": BASE + f"ENV A={'x' * 900}\n" + "RUN echo ${A%%*a*a*y}\n" * (size // 25),
        "installs": of("RUN pip install torch\n"),
        "installs of cupy": of("RUN pip install cupy-cuda11x\n", "FROM python:3.11\n"),
        "installs in one line": of("pip install torch && ", BASE + "RUN "),
        "system packages in one line": of("apt-get install nvidia-utils && ", BASE + "RUN "),
        "and": of("a&&", BASE + "RUN "),
        "variables": numbered("ENV A{number}=1\n"),
        "stages": numbered("FROM ubuntu AS s{number}\nCOPY --from=s{before} /a /b\n", ""),
        "stages on stages": BASE.replace("\n", " AS s-1\n")
        + numbered("FROM s{before} AS s{number}\nRUN pip install torch\n", ""),
        "substitutions": of("$(", BASE + "RUN "),
        "braces": of("${A:-", "FROM "),
        "quotes": of('\\"', BASE + 'ENV A="'),
        "mounts": of("--mount=a ", BASE + "RUN "),
        "heredocs without an end": of("RUN <<A\n"),
        "heredocs": of("RUN cat <<A\nA\n"),
        "names of installers": of("cuda_1_", "FROM python:3.11\nRUN pip install flash-attn cupy-cuda11x; "),
        "spaces": BASE + f'RUN pip install "a{" " * size}!"\n',
        "continued": of("\\\n", BASE + "RUN "),
        "minus": BASE + f"RUN python -c '{'-' * 9000}1'\n",
        "brackets": BASE + f"RUN python -c '{'(' * 9000}1'\n",
        "attributes": BASE + f"RUN python -c 'a{'.b' * 9000}()'\n",
        "programs": of("RUN python -c 'import torch; torch.cuda.current_device()'\n"),
        "list in a list": BASE + "RUN " + "[" * size,
    }


def composes(size: int) -> dict[str, str]:
    table = "{" + ",".join(f"k{number}: 1" for number in range(size // 40)) + "}\n"
    ninefold = "".join(f"a{number}: &a{number} [{','.join([f'*a{number - 1}'] * 9)}]\n" for number in range(1, 20))
    return {
        "lists": "[" * (size // 2),
        "mappings": "{a: " * (size // 4),
        "sequences": "- " * (size // 2),
        "services": SERVICES + "".join(f" s{number}: {{image: 'nvidia/cuda:12.0', gpus: all}}\n" for number in range(size // 50)),
        "extends": SERVICES + "".join(f" s{number}: {{extends: s{number - 1}, gpus: all}}\n" for number in range(size // 40)),
        "braces": f"{SERVICES} a: {{image: '{'${A:-' * (size // 6)}'}}\n",
        "one list in every service": f"{SERVICES} a: {{image: x, environment: &e [{'a=b,' * (size // 20)}]}}\n"
        + "".join(f" s{number}: {{environment: *e}}\n" for number in range(size // 50)),
        "one table in every service": f"x: &a {table}{SERVICES}"
        + "".join(f" s{number}: {{<<: *a}}\n" for number in range(size // 40)),
        "one table again and again": f"x: &a {table}{SERVICES} s: {{<<: [{'*a,' * (size // 8)}]}}\n",
        "nine of nine of nine": f"a0: &a0 [x]\n{ninefold}{SERVICES}"
        " s: {extends: t, environment: *a19, gpus: *a19, command: *a19}\n t: {gpus: *a19, devices: *a19}\n",
    }


def devcontainers(size: int) -> dict[str, str]:
    return {
        "objects": '{"a":' * (size // 5),
        "comments": "{" + "/*" * (size // 2),
        "quotes": '{"a": "' + '\\"' * (size // 2),
        "slashes": '{"a": "b"}' + "//" * (size // 2),
    }


def scripts(size: int) -> dict[str, str]:
    run = "docker run --gpus all --shm-size 8g -v /a:/b -e A=$A nvidia/cuda:12.4.1-base-ubuntu22.04 ./a\n"
    doubling = "".join(f"A{number}=$A{number - 1}$A{number - 1}\n" for number in range(1, size // 20))
    return {
        "runs": run * (size // len(run)),
        "doubling": f"A0=xy\n{doubling}docker run $A{size // 20 - 1}\n",
        "one long command": "docker run " + "-e A=b " * (size // 7),
        "continued": "docker run \\\n" * (size // 13),
        "almost runs": "docker " * (size // 7),
        "words of one variable": f"A='{'--env a ' * 7000}'\n" + "docker run $A x\n" * (size // 16),
    }
