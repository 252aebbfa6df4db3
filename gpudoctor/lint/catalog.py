"""The rules: every module of the package `rules` defines some, and functions that look for their faults in a file."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from gpudoctor.lint import rules
from gpudoctor.lint.model import Rule


@cache
def modules() -> tuple[ModuleType, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(rules.__path__))
    return tuple(importlib.import_module(f"{rules.__name__}.{name}") for name in names)


def all_rules() -> dict[str, Rule]:
    """Id -> rule."""
    return {rule.id: rule for module in modules() for rule in module.RULES}
