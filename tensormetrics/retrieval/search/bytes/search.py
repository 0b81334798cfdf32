"""Rows rounded to 8 bits, products of which rule most references out on a CPU that multiplies bytes.

Each row has one scale. Of a query x and a reference z of the float32 filter, with x' and z' the rounded ones, the
Cauchy-Schwarz inequality gives |x.z - x'.z'| <= |x - x'| |z| + |x'| |z - z'|, and all four lengths are computed. The
references whose value may be among the k least are listed.
"""

import torch
from torch import Tensor

from .... import _native
from ..filter import BLOCK

UP = 1 + 2.0**-20  # float32 numbers made of it are not below what they bound
SOME = 64  # queries that are tried first
LEAST, MOST = 2048, 16  # references and neighbours for which it pays


def capacity_of(k: int, dim: int) -> int:
    """How many references the list of a query takes."""
    # Of Gaussian rows a query has about 64 entries for k = 10 in 512 columns, and 205 for k = 100 in 128.
    return 3 * k + dim // 4 + 32


def panels_of(rows: Tensor) -> Tensor:
    # rows: (R', D') int8, R' a multiple of 64  ->  (R' / 64, D' / 4, 64, 4) uint8
    """References as `keep_possible` reads them, 128 more."""
    words = rows.view(torch.int32).view(-1, BLOCK, rows.shape[1] // 4).transpose(1, 2).contiguous()
    return words.bitwise_xor_(0x80808080 - 2**32).view(torch.uint8).view(*words.shape, 4)


@_native.reference("multiplies_bytes")
def _multiplies_bytes(like: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.bool, device=like.device)


@_native.reference("to_bytes")
def _to_bytes(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    largest = rows.abs().amax(1)
    scale = largest / 127
    inverse = torch.where(largest > 2.0**-100, 127 / largest, 0.0)
    held = (rows * inverse[:, None]).round().clamp(-127, 127)
    rounded = held.double() * scale.double()[:, None]
    sizes = torch.stack([each.norm(dim=1) for each in (rows.double(), rounded, rows.double() - rounded)])
    padded = torch.nn.functional.pad(held.to(torch.int8), (0, -rows.shape[1] % 4))
    return padded.contiguous(), scale, sizes


@_native.reference("keep_possible")
def _keep_possible(
    x: Tensor,
    x_scale: Tensor,
    excess: Tensor,
    panels: Tensor,
    scale: Tensor,
    bias: Tensor,
    share: Tensor,
    width: Tensor,
    slack: Tensor,
    own: Tensor,
    lower: Tensor,
    listed: Tensor,
    number: Tensor,
    limit: Tensor,
    upper: Tensor,
    start: int,
) -> None:
    rows = panels.transpose(1, 2).flatten(2).flatten(0, 1).int() - 128  # (R', D')
    queries, first = len(x), max(start, 0)
    column = torch.arange(first, first + len(rows), device="cpu")
    product = (x.double() @ rows.double().T).float() * (x_scale[:, None] * scale[column])

    def put(begin: int, values: Tensor, width: Tensor, shares: Tensor, columns: Tensor) -> None:
        # values: (q, C) of the rows from `begin` on
        at = slice(begin, begin + len(values))
        spread = width[at, None] * shares
        values = values - spread
        upper[at] = torch.cat([upper[at], values + 2 * spread], 1).topk(upper.shape[1], largest=False).values
        limit[at] = torch.minimum(limit[at], (upper[at, -1] + 2 * slack[at]).nextafter(upper.new_tensor(torch.inf)))
        for q, (entries, below) in enumerate(zip(values, limit[at].tolist(), strict=True), begin):
            found = (entries < below).nonzero()[:, 0]
            stop = int(number[q]) + len(found)
            fits = stop < lower.shape[1]
            if fits:
                lower[q, number[q] : stop], listed[q, number[q] : stop] = entries[found], columns[found].int()
            number[q] = stop if fits else lower.shape[1]

    across = product[:, : len(limit) - first].T + bias[:queries] if start > 0 else None
    product[column == own[:, None]] = torch.inf
    put(0, product + bias[column], width, share[column], column)
    if across is not None:
        put(first, across, width, share[:queries], torch.arange(queries, device="cpu"))
