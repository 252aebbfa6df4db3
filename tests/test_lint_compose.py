"""Compose files and devcontainer.json as `images lint` reads them: lines, merging, `extends`, variables."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gpudoctor.lint import compose, files, yaml_lines
from gpudoctor.lint.yaml_lines import NoYaml


def services(text: str, **others: str) -> dict[str, compose.Service]:
    found = compose.parse(textwrap.dedent(text), others.get).services
    return {service.name: service for service in found}


def test_values_know_the_lines_of_their_keys() -> None:
    root = yaml_lines.parse("a:\n  b: [x,\n    y]\n  c: {d: 1}\n")
    assert root.at("a", "b").line == 2
    assert [item.line for item in root.at("a", "b")] == [2, 3]
    assert (root.at("a", "c", "d").text, root.at("a", "c", "d").is_string) == ("1", False)
    assert not root.at("a", "nothing", "at", "all")


def test_anchors_and_merge_keys() -> None:
    text = """
        x-a: &a {image: one, runtime: nvidia}
        x-b: &b {image: two, ipc: host}
        services:
          s: {<<: [*a, *b], shm_size: 1gb}
          t:
            <<: *a
            image: own
    """
    found = services(text)
    assert {key: found["s"].node.at(key).text for key in ("image", "runtime", "ipc", "shm_size")} == {
        "image": "one",
        "runtime": "nvidia",
        "ipc": "host",
        "shm_size": "1gb",
    }
    assert found["t"].image.text == "own"
    assert found["t"].runtime.line == 2


def test_variables_take_their_defaults() -> None:
    found = services("services:\n  s:\n    image: ${I:-nvidia/cuda:12.9.1-base-ubuntu24.04}\n    runtime: ${R}\n    ipc: $$x\n")[
        "s"
    ]
    assert found.base.family == "cuda"
    assert found.runtime.text == "${R}"
    assert found.node.at("ipc").text == "$x"


def test_extends_in_the_same_file_and_in_another() -> None:
    text = """
        services:
          base: {image: one, environment: [A=1, B=2], devices: [/dev/a]}
          s:
            extends: base
            environment: {B: 3}
            devices: [/dev/b]
          t:
            extends: {file: other.yaml, service: gpu}
          u:
            extends: {file: gone.yaml, service: gpu}
          v: {extends: v}
    """
    found = services(text, **{"other.yaml": "services:\n\n\n\n\n\n\n\n\n\n\n\n\n  gpu: {runtime: nvidia}\n"})
    assert found["s"].image.text == "one"
    assert found["s"].environment["B"].text == "3"
    assert list(found["s"].devices) == ["/dev/a", "/dev/b"]
    assert (found["t"].runtime.text, found["t"].runtime.line) == ("nvidia", 9)
    assert [found[name].complete for name in "stuv"] == [True, True, False, False]


def test_tags_of_compose_are_read() -> None:
    found = services("services:\n  s:\n    image: !override one\n    ports: !reset []\n")["s"]
    assert found.image.text == "one"
    assert not found.node.at("ports")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [1, 2", "did not find expected"),
        ("services:\n\t- x\n", "cannot start any token"),
        ("just text", "no services"),
        ("- a\n- b\n", "no services"),
    ],
)
def test_what_is_no_compose_file(text: str, why: str) -> None:
    with pytest.raises(NoYaml, match=why):
        compose.parse(text)


def test_anchors_that_multiply_or_hold_themselves_end() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefghijklmnopq", "bcdefghijklmnopqr", strict=True)
    )
    assert services(bomb + "services: {s: {image: one, environment: *r}}\n")["s"].image.text == "one"
    assert services("services:\n  s: &s\n    image: one\n    again: *s\n")["s"].image.text == "one"


def test_a_second_file_may_give_the_gpu(tmp_path: Path) -> None:
    one = tmp_path / "compose.yaml"
    one.write_text("services:\n  s: {image: 'nvidia/cuda:12.9.1-base-ubuntu24.04'}\n")
    assert [fault.rule.id for fault in files.lint(one).faults] == ["gpu-not-requested"]
    (tmp_path / "compose.gpu.yaml").write_text(
        "services:\n  s: {deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}}\n"
    )
    assert files.lint(one).faults == []


def test_json_with_comments_keeps_its_lines() -> None:
    root = yaml_lines.parse_json('{\n\t// one\n\t"a": "//x", /* two\n\t*/ "b": 1,\n}\n')
    assert (root.at("a").text, root.at("a").line) == ("//x", 3)
    assert root.at("b").line == 4
