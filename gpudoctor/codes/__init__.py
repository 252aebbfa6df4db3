"""Codes that people quote, such as `Xid 79` or `CUDA error 802`: what they mean and what to do."""

from __future__ import annotations

from gpudoctor.codes.forms import Code, parse
from gpudoctor.codes.known import mentioned, of_number, shown
from gpudoctor.codes.words import lines

__all__ = ["Code", "lines", "mentioned", "of_number", "parse", "shown"]
