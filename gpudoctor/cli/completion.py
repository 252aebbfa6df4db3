"""`gpudoctor completion`."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import click
from click.shell_completion import get_completion_class

from gpudoctor.cli import COMMANDS, options
from gpudoctor.errors import UserError

# Shell -> the file, and the line to add to it.
PLACES = {
    "bash": ("~/.bashrc", 'eval "$(gpudoctor completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(gpudoctor completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "gpudoctor completion fish | source"),
}
_EPILOG = "\b\n" + "\n".join(f"{shell:<6}add to {file}: {line}" for shell, (file, line) in PLACES.items())


@click.command(help=COMMANDS["completion"], epilog=_EPILOG)
@click.argument("shell", type=click.Choice([*PLACES]), required=False)
@options.output()
def command(shell: str | None, destination: Path | None) -> None:
    from gpudoctor.cli import main, output

    shell = shell or _own_shell()
    made = get_completion_class(shell)
    assert made
    file, line = PLACES[shell]
    head = f"# Completion of gpudoctor. Add this line to {file}:\n#   {line}\n"
    if destination:
        output.must_be_writable(destination)
    output.deliver(head + made(main, {}, "gpudoctor", "_GPUDOCTOR_COMPLETE").source().strip("\n") + "\n", destination)


def _own_shell() -> str:
    name = PurePath(os.environ.get("SHELL", "")).name
    if name not in PLACES:
        raise UserError(f"name the shell: gpudoctor completion {'|'.join(PLACES)}")
    return name
