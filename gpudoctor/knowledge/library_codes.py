"""The numbers with which CUDA's libraries report an error, and their names: `library_codes.yaml`."""

from __future__ import annotations

from functools import cache

from gpudoctor.knowledge.errors import Error
from gpudoctor.knowledge.tables import Table, load


class LibraryTable(Table, frozen=True):
    """A list of codes per library."""

    cupti: tuple[Error, ...]
    nvperf: tuple[Error, ...]
    cusolver: tuple[Error, ...]
    cusparse: tuple[Error, ...]
    cufft: tuple[Error, ...]
    curand: tuple[Error, ...]
    npp: tuple[Error, ...]
    nvjpeg: tuple[Error, ...]
    nvenc: tuple[Error, ...]
    nvrtc: tuple[Error, ...]
    nvjitlink: tuple[Error, ...]
    optix: tuple[Error, ...]


@cache
def table() -> LibraryTable:
    return load("library_codes", LibraryTable)


def name_of(library: str, code: int) -> str:
    """The name of a library's code; "" for success and for a number that is not in the table.

    >>> name_of("cupti", 35)
    'CUPTI_ERROR_INSUFFICIENT_PRIVILEGES'
    """
    return next((row.name for row in getattr(table(), library) if row.code == code != 0), "")
