"""A devcontainer.json: its image, and what it passes to `docker run`."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.lint import yaml_lines
from gpudoctor.lint.bases import Base, base
from gpudoctor.lint.run_options import Run
from gpudoctor.lint.run_options import parse as parse_options
from gpudoctor.lint.shell import Word
from gpudoctor.lint.yaml_lines import Node, NoYaml


@dataclass(frozen=True)
class Devcontainer:
    node: Node

    @property
    def image(self) -> Node:
        return self.node.at("image")

    @property
    def base(self) -> Base:
        return base(self.image.text)

    @property
    def arguments(self) -> list[Node]:
        return self.node.at("runArgs").list

    @property
    def run(self) -> Run:
        """The container that it starts: its own keys, and the options in runArgs."""
        words = [Word(item.text, item.line) for item in self.arguments]
        words += [Word(f"--cap-add={item.text}", item.line) for item in self.node.at("capAdd")]
        words += [Word(f"--env={name}={node.text}", node.line) for name, node in self.node.at("containerEnv").mapping.items()]
        if self.node.at("privileged").true:
            words.append(Word("--privileged", self.node.at("privileged").line))
        return parse_options(words, "docker", (self.node.at("runArgs") or self.image).line, self.image)

    @property
    def asks_for_gpu(self) -> bool:
        return bool(self.node.at("hostRequirements", "gpu")) or any(
            word in argument.text for argument in self.arguments for word in ("--gpus", "nvidia", "/dev/dxg")
        )


def parse(text: str) -> Devcontainer:
    node = yaml_lines.parse_json(text)
    if not node.mapping:
        raise NoYaml(node.line, "it is not a JSON object")
    return Devcontainer(node)
