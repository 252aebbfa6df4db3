"""A matrix product that can be verified exactly: whole numbers, small enough to be exact in fp32 and TF32."""

from __future__ import annotations

from typing import Any, Tuple

LARGEST = 8  # with up to 262144 terms a sum stays below 2^24
WEIGHT = 1 << 20


def whole_numbers(side: int) -> Tuple[Any, Any]:
    """Two random square matrices."""
    import numpy

    numbers = numpy.random.default_rng(side)
    one, other = (numbers.integers(-LARGEST, LARGEST + 1, (side, side)).astype(numpy.float32) for _ in range(2))
    return one, other


def wrong_rows(one: Any, other: Any, product: Any) -> int:
    """In how many rows `product` differs from one · other: compares randomly weighted row sums, exact in fp64.

    https://en.wikipedia.org/wiki/Freivalds%27_algorithm
    """
    import numpy

    weights = numpy.random.default_rng(0).integers(1, WEIGHT, product.shape[1]).astype(numpy.float64)
    expected = one.astype(numpy.float64) @ (other.astype(numpy.float64) @ weights)
    return int((product.astype(numpy.float64) @ weights != expected).sum())
