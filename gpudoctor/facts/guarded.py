"""A fact whose answer has an unexpected form is unavailable, like one that was not answered."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

from gpudoctor.model import Skip, Unavailable

P = ParamSpec("P")
R = TypeVar("R")
# Raised by code that reads an answer of the wrong type, without a key, or with a number out of range.
WRONG = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
_MISSING = "no answer: "  # begins the name under which an object remembers that it has no such fact


def comparable(found: Iterable[R]) -> Iterator[R]:
    """What is found before a version that has no order: texts, and packages from before the standard, contain such ones."""
    try:
        yield from found
    except ValueError as odd:
        from packaging.version import InvalidVersion

        if not isinstance(odd, InvalidVersion):
            raise
        raise Unavailable(f"a version cannot be compared ({odd})") from None


class Guarded:
    """Base of classes that read raw answers: what goes wrong in any of their members raises Unavailable."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if not name.startswith("__"):
                setattr(cls, name, _member(name, member))


def _member(name: str, member: Any) -> Any:
    if isinstance(member, functools.cached_property):
        return _Once(name, member.func)
    if isinstance(member, property) and member.fget:
        return property(guarded(member.fget))
    if isinstance(member, classmethod):
        return classmethod(guarded(member.__func__))
    if inspect.isfunction(member):
        return guarded(member)
    return member


class _Once:
    """A guarded functools.cached_property that also remembers that there is no answer: checks ask for some by the dozen."""

    def __init__(self, name: str, read: Callable[[Any], Any]) -> None:
        self._name = name
        self._missing = _MISSING + name
        self._read = read
        self.__doc__ = read.__doc__

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        known = instance.__dict__
        if self._missing in known:
            kind, reason, why = known[self._missing]
            raise kind(reason, why)
        try:
            known[self._name] = value = self._read(instance)
        except Skip as skip:
            known[self._missing] = type(skip), skip.reason, skip.kind
            raise
        except WRONG as failure:
            raise unreadable(self._read, failure) from failure
        return value


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
