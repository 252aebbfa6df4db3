"""Matrix products of numbers with 8 or 4 bits through torch: int8, and fp8 and fp4 with scales, all of which are 1."""

from __future__ import annotations

from typing import Any, Tuple

# The values of fp4 (e2m1) by their lower three bits; the fourth is the sign.
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BLOCKS = {"float8_e4m3fn": 16, "float8_e8m0fnu": 32}  # numbers that share a scale of this type: nvfp4, mxfp4
# Scales are stored in tiles of 128 rows and 4 columns.
TILE_ROWS, TILE_COLUMNS = 128, 4


def whole(torch: Any, size: int, device: Any) -> Tuple[Any, Any]:
    """Two matrices of int8; the second is column-major, for which the library is fastest."""
    one, other = (torch.randint(-128, 128, (size, size), device=device, dtype=torch.int8) for _ in range(2))
    return one, other.t()


def eighths(torch: Any, names: Tuple[str, str], size: int, device: Any) -> Tuple[Any, Any, Any]:
    """Two matrices of these fp8 types, the second column-major, as the library requires, and their scale."""
    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16).to(getattr(torch, name)) for name in names)
    return one, other.t(), torch.ones((), device=device)


def quarters(torch: Any, scales: str, size: int, device: Any) -> Tuple[Any, Any, Any]:
    """Two matrices of fp4, two numbers in a byte, the second column-major, and their scales of this type."""
    shape = size, size // 2
    one, other = (torch.randint(0, 256, shape, device=device, dtype=torch.uint8).view(torch.float4_e2m1fn_x2) for _ in range(2))
    rows, columns = (-(-count // tile) * tile for count, tile in ((size, TILE_ROWS), (size // BLOCKS[scales], TILE_COLUMNS)))
    return one, other.t(), torch.ones(rows * columns, device=device).to(getattr(torch, scales))


def product(torch: Any, one: Any, other: Any, scale: Any = None) -> Any:
    if scale is None:
        return torch._int_mm(one, other)
    if scale.dtype == getattr(torch, "float8_e8m0fnu", None):
        return _microscaled(torch, one, other, scale)
    more = {"use_fast_accum": True} if scale.numel() == 1 else {}
    found = torch._scaled_mm(one, other, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, **more)
    return found[0] if isinstance(found, tuple) else found  # torch 2.4 also returns the largest number


def _microscaled(torch: Any, one: Any, other: Any, scale: Any) -> Any:
    functions = torch.nn.functional
    recipe, swizzle = functions.ScalingType.BlockWise1x32, functions.SwizzleType.SWIZZLE_32_4_4
    return functions.scaled_mm(one, other, scale, recipe, scale, recipe, swizzle, swizzle, output_dtype=torch.bfloat16)


def exactly(torch: Any, matrix: Any) -> Any:
    """Converts to fp64; from fp8 through fp32, since it supports few conversions."""
    if matrix.dtype != getattr(torch, "float4_e2m1fn_x2", None):
        return matrix.float().double()
    if matrix.stride(0) == 1:  # a transposed one: the two numbers of a byte are neighbours in its columns
        return exactly(torch, matrix.t()).t()
    values = torch.tensor([*FP4, *(-value for value in FP4)], dtype=torch.float64, device=matrix.device)
    packed = matrix.view(torch.uint8).long()
    return torch.stack([values[packed & 15], values[packed >> 4]], dim=-1).flatten(-2)
