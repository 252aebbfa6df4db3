"""Errors that end a run."""


class UserError(Exception):
    """The input is wrong; the message is one line. Exit code 2."""


class WorkError(Exception):
    """gpudoctor failed; the message is one line. Exit code 3."""


class MissingPackage(UserError):
    """A package that gpudoctor's own Python lacks. The message installs it there: gpudoctor itself is on no index yet."""

    def __init__(self, what: str, requirement: str) -> None:
        import shlex
        import sys
        from importlib.util import find_spec

        python = shlex.quote(sys.executable)
        pip = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
        super().__init__(f"{what} requires a package that is not installed: {pip} {shlex.quote(requirement)}")
