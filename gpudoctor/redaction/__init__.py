"""Redaction: replaces names, addresses and ids in a snapshot by stable tokens.

It changes the snapshot before it is judged, so that every report of it is redacted alike and the verdict stays the same. Its
patterns take a while to load, and most commands redact nothing: they are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.redaction.kinds import KEPT_ON_REQUEST, KINDS
    from gpudoctor.redaction.redacting import Redacted, redacted, was_redacted
    from gpudoctor.redaction.tokens import Tokens
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("gpudoctor.redaction.redacting"), name)


__all__ = ["KEPT_ON_REQUEST", "KINDS", "Redacted", "Tokens", "redacted", "was_redacted"]
