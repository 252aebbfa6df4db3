"""A fact whose answer has an unexpected form is unavailable, like one that was not answered."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from gpudoctor.model import Unavailable

P = ParamSpec("P")
R = TypeVar("R")
# Raised by code that reads an answer of the wrong type, without a key, or with a number out of range.
WRONG = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class Guarded:
    """Base of classes that read raw answers: what goes wrong in any of their members raises Unavailable."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if not name.startswith("__"):
                setattr(cls, name, _member(member))


def _member(member: Any) -> Any:
    if isinstance(member, functools.cached_property):
        member.func = guarded(member.func)
    elif isinstance(member, property) and member.fget:
        return property(guarded(member.fget))
    elif isinstance(member, classmethod):
        return classmethod(guarded(member.__func__))
    elif inspect.isfunction(member):
        return guarded(member)
    return member


def guarded(read: Callable[P, R]) -> Callable[P, R]:
    """`read`, raising Unavailable if an answer has a form that it cannot read."""
    if inspect.isgeneratorfunction(read):
        return _guarded_iterator(read)

    @functools.wraps(read)
    def safely(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except WRONG as failure:
            raise unreadable(read, failure) from failure

    return safely


def _guarded_iterator(read: Callable[P, Any]) -> Callable[P, Any]:
    @functools.wraps(read)
    def safely(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        try:
            yield from read(*args, **kwargs)
        except WRONG as failure:
            raise unreadable(read, failure) from failure

    return safely


def unreadable(read: Callable[..., Any], failure: Exception) -> Unavailable:
    return Unavailable(f"{read.__qualname__}: its answer has an unexpected form ({type(failure).__name__}: {failure})"[:300])
