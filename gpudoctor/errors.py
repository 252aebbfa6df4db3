"""Errors that end a run."""


class UserError(Exception):
    """The input is wrong; the message is one line. Exit code 2."""


class WorkError(Exception):
    """gpudoctor failed; the message is one line. Exit code 3."""
