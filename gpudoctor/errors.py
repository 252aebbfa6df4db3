"""The two ways in which a run can end without a report."""


class UserError(Exception):
    """Something the user gave is wrong; the message is one clear line. Exit code 2."""


class WorkError(Exception):
    """gpudoctor could not do its work; the message is one clear line. Exit code 3."""
