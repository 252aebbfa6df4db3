"""The report for a browser: one page with everything in it, that asks no network and runs from a file."""

from gpudoctor.report.html.page import render

__all__ = ["render"]
