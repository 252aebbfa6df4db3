"""Dockerfiles as `images lint` reads them: lines, stages, variables, and the commands of RUN."""

from __future__ import annotations

import textwrap

import pytest
from each import each

from gpudoctor.lint import dockerfile, installs, instructions, shell
from gpudoctor.lint.bases import base
from gpudoctor.lint.instructions import NoDockerfile, Text
from gpudoctor.lint.variables import expand


def parsed(text: str) -> dockerfile.Dockerfile:
    return dockerfile.parse(textwrap.dedent(text).lstrip("\n"))


def commands(script: str, **values: str) -> list[shell.Command]:
    starts, offset = [], 0
    for number, line in enumerate(script.splitlines(keepends=True), 1):
        starts.append((offset, number))
        offset += len(line)
    return list(shell.commands(Text(script, tuple(starts)), values))


def test_instructions_know_their_lines() -> None:
    text = """\
# syntax=docker/dockerfile:1
FROM a AS b

RUN one && \\
    # between
    two \\

    three
ENV A=1 \\
    B=2
copy --from=b --chown=1:1 /x /y
"""
    found = instructions.parse(text).instructions
    assert [(one.name, one.line, one.end) for one in found] == [("FROM", 2, 2), ("RUN", 4, 8), ("ENV", 9, 10), ("COPY", 11, 11)]
    assert found[3].flags == {"from": "b", "chown": "1:1"}
    steps = dockerfile.parse(text).last.steps
    assert [(word.text, word.line) for word in steps[0].commands[1].words] == [("two", 6), ("three", 8)]
    assert [(setting.name, setting.value, setting.line) for setting in steps[1].settings] == [("A", "1", 9), ("B", "2", 10)]


def test_a_heredoc_is_no_instruction() -> None:
    file = parsed(
        """
        FROM a
        RUN <<EOF
        pip install torch
        FROM nothing
        EOF
        COPY <<-"ONE" <<TWO /etc/
        \tRUN nvidia-smi
        \tONE
        RUN nvidia-smi
        TWO
        RUN python3 <<END && echo done
        import torch
        END
        """
    )
    assert len(file.stages) == 1
    run, copy, python = file.last.steps
    assert [(command.texts, command.line) for command in run.commands] == [
        (("pip", "install", "torch"), 3),
        (("FROM", "nothing"), 4),
    ]
    assert [heredoc.quoted for heredoc in copy.instruction.heredocs] == [True, False]
    assert copy.instruction.heredocs[0].body.text == "RUN nvidia-smi\n"
    assert [command.program for command in python.commands] == ["python3", "echo"]


def test_the_escape_directive_changes_the_continuation() -> None:
    file = parsed("# escape=`\nFROM a\nRUN dir C:\\ `\n  second\nENV A=C:\\x\n")
    assert file.last.steps[0].instruction.end == 4
    assert file.last.values["A"] == "C:\\x"


def test_variables_of_args_and_environment() -> None:
    file = parsed(
        """
        ARG CUDA=12.4.1
        ARG FLAVOUR
        FROM nvidia/cuda:${CUDA}-${FLAVOUR:-runtime}-ubuntu22.04 AS first
        ARG CUDA
        ARG VARIANT=cu${CUDA%.*}
        ENV A=x B="$A y" C='$A' D=${UNKNOWN} E=${CUDA//./}
        FROM first
        ENV A2 $A and more
        RUN echo $VARIANT $A
        """
    )
    first, last = file.stages
    assert first.image == "nvidia/cuda:12.4.1-runtime-ubuntu22.04"
    assert last.parent is first
    assert last.root is first
    # Docker fills in all variables of a line as they were before it.
    assert {name: last.values[name] for name in "BCDE"} == {"B": "$A y", "C": "$A", "D": "${UNKNOWN}", "E": "1241"}
    assert last.values["A2"] == "x and more"
    assert last.steps[1].commands[0].texts == ("echo", "$VARIANT", "x")  # an ARG ends with its stage


def test_an_environment_variable_outranks_an_argument() -> None:
    assert parsed("FROM a\nENV V=1\nARG V=2\nRUN echo $V\n").last.steps[2].commands[0].texts == ("echo", "1")


@each(
    ("text", "expected"),
    [
        ("$A-${A}", "12.4-12.4"),
        ("${A//./}", "124"),
        ("${A%.*}", "12"),
        ("${A#*.}", "4"),
        ("${A:+yes}${B:+no}", "yes"),
        ("${B:-${A}}", "12.4"),
        ("$B ${B%.*} $(cat x) \\$A", "$B ${B%.*} $(cat x) \\$A"),
        ("${A:0:2}", "${A:0:2}"),
        ("${", "${"),
        ("$", "$"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "12.4"}) == expected


def test_stages_that_are_in_no_image_do_not_ship() -> None:
    file = parsed(
        """
        FROM a AS base
        FROM base AS build
        FROM base AS mounted
        FROM base AS debug
        FROM scratch
        COPY --from=build /x /x
        RUN --mount=type=bind,from=mounted,target=/m cp /m/y /y
        """
    )
    shipped = {stage.name for stage in file.shipped}
    assert shipped == {"base", "debug", ""}  # debug is used by none: somebody builds it with --target


def test_commands_of_a_shell() -> None:
    script = """set -e; apt-get update -q >/dev/null 2>&1 && apt-get install -y "a b" c\\ d # end
if [ "$X" = 1 ]; then pip install one; else pip install two; fi
test -f x && three || four; (five; six) | seven
A=1 B=$A eight $(nine --ten) `eleven`
bash -lc 'twelve && thirteen'"""
    found = {command.program: command for command in commands(script)}
    names = "set apt-get [ pip test three four five six seven nine eleven eight twelve thirteen"
    assert " ".join(found) == names
    assert found["apt-get"].texts == ("apt-get", "install", "-y", "a b", "c d")
    assert [command.sometimes for command in commands(script) if command.program == "pip"] == [True, True]
    assert found["three"].sometimes
    assert not found["eight"].sometimes
    assert found["eight"].settings == {"A": "1", "B": "$A"}
    assert found["thirteen"].line == 5


def test_what_a_script_sets_is_known_after_it_unless_it_depends() -> None:
    assert commands("V=118; echo $V")[0].texts == ("echo", "118")
    assert commands("export V=118 && echo cu$V")[1].texts == ("echo", "cu118")
    assert commands("if x; then V=1; fi; echo $V", V="0")[-1].texts == ("echo", "$V")
    assert commands("for V in a b; do echo $V; done", V="0")[-1].texts == ("echo", "$V")


def test_failures_that_do_not_count() -> None:
    assert [command.forgiven for command in commands("a || true; b; c && d")] == [True, True, True, False, False]
    assert [command.forgiven for command in commands("set -ex; b; c")] == [False, False, False]
    assert [command.forgiven for command in commands("a && b || c")] == [True, True, False]
    assert [command.forgiven for command in commands("set -e; a && b; c")] == [False, True, False, False]
    assert [command.forgiven for command in commands("(a && b) || c")] == [True, True, False]
    assert [command.forgiven for command in commands("a &&\n b\n")] == [False, False]
    assert [command.forgiven for command in commands("V=$(a)")] == [False]
    assert [command.forgiven for command in commands("echo $(a)")] == [True, False]
    assert [command.sometimes for command in commands("f() { a; }; b")] == [False, True, False, False]


def test_pip_in_all_its_forms() -> None:
    file = parsed(
        """
        FROM a
        ENV PIP_EXTRA_INDEX_URL=https://example.org/simple
        RUN python3.11 -m pip install -U --no-cache-dir 'Torch_Vision[x]==1.0 ; python_version > "3"' -r r.txt ./local \\
            git+https://github.com/a/Some.Thing.git@v1#subdirectory=x "name @ https://example.org/x.whl"
        RUN /opt/conda/bin/pip3 --quiet install -i https://one torch>=2
        RUN uv pip install --torch-backend cu128 torch==2.8.0
        RUN pip uninstall -y torch && pip config set a b && pipenv install torch
        """
    )
    found = [install for step in file.last.steps for install in installs.pip_installs(step)]
    assert [(one.name, one.specifier, one.line) for one in found[0].requirements] == [
        ("torch-vision", "==1.0", 3),
        ("some-thing", "", 4),
        ("name", "", 4),
    ]
    assert found[0].extras == ("https://example.org/simple",)
    assert found[1].index == "https://one"
    assert found[2].index.endswith("/cu128")
    assert len(found) == 3


def test_packages_of_the_system() -> None:
    step = parsed("FROM a\nRUN apt-get -o X=1 install -y --no-install-recommends cuda-12-4=12.4.1-1 libc6:amd64\n").last.steps[0]
    (install,) = installs.system_installs(step)
    assert [word.text for word in install.packages] == ["cuda-12-4", "libc6"]


@each(
    ("reference", "family", "cuda", "flavour"),
    [
        ("nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04", "cuda", (12, 4), "devel"),
        ("docker.io/nvidia/cuda:13.0.1-base-ubi9@sha256:0", "cuda", (13, 0), "base"),
        ("nvidia/cuda:${X}-runtime-ubuntu22.04", "cuda", None, "runtime"),
        ("nvcr.io/nvidia/pytorch:24.08-py3", "ngc", (12, 6), ""),
        ("nvcr.io/nvidia/pytorch:19.01-py3", "ngc", None, ""),
        ("nvcr.io/nvidia/tritonserver:24.08-py3", "ngc", None, ""),
        ("nvcr.io/nvidia/l4t-pytorch:r35.2.1-pth2.0-py3", "jetson", None, ""),
        ("pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime", "pytorch", (12, 4), "runtime"),
        ("pytorch/pytorch:latest", "other", None, ""),
        ("localhost:5000/python:3.12", "plain", None, ""),
        ("python:3.12-alpine3.20", "alpine", None, ""),
        ("ghcr.io/astral-sh/uv:python3.12-bookworm", "plain", None, ""),
        ("rocm/pytorch:latest", "other", None, ""),
        ("$BASE", "other", None, ""),
    ],
)
def test_what_a_base_image_is(reference: str, family: str, cuda: tuple[int, int] | None, flavour: str) -> None:
    found = base(reference)
    assert (found.family, found.cuda, found.flavour) == (family, cuda, flavour)


@each(
    ("text", "line", "why"),
    [
        ("RUN true\n", 0, "it has no FROM"),
        ("# only a comment\n", 0, "it has no instructions"),
        ("FROM a\nINSTALL torch\n", 2, "INSTALL is not a Dockerfile instruction"),
        ("root:$6$zorblex:19000:0:99999\n", 1, "this is not a Dockerfile instruction"),
        ("RUN true\nFROM a\n", 1, "RUN is before the first FROM"),
        ("FROM --platform=x\n", 1, "FROM names no image"),
    ],
)
def test_what_is_no_dockerfile(text: str, line: int, why: str) -> None:
    with pytest.raises(NoDockerfile, match=why) as caught:
        dockerfile.parse(text)
    assert caught.value.line == line
