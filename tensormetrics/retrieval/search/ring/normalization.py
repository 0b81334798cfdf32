"""One frame for the rows of all ranks: what is made of a row in it serves wherever the row goes."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...._distributed import Group, all_gather_status
from ...._exact_sums import power_of_two
from ..distance import Distance, rows_at_once
from ..product_filter import Normalization, middle

Told = tuple[int, bytes, float]  # number of rows, their middle, how far from it they are at most


def told_of(rows: Tensor, distance: Distance) -> Told:
    # rows: (n, D) of this rank
    """What a rank says of its rows, from which all make the frame."""
    if not len(rows):
        return 0, b"", 0.0
    # Any centre will do that all agree on, so that it need not have more digits than the rows.
    kind = torch.float64 if rows.dtype == torch.float64 else torch.float32
    own = middle(rows, distance).to(kind).cpu()
    away = lengths(rows, own.double().to(rows.device), distance)
    return len(rows), own.numpy().tobytes(), float(away.where(away.isfinite(), 0.0).amax())


def frame_of(told: Sequence[Told], rows: Tensor) -> Normalization:
    # rows: (n, D) of this rank  ->  the same on all ranks
    kind = np.dtype("float64" if rows.dtype == torch.float64 else "float32")
    centre, count = torch.zeros(rows.shape[1], dtype=torch.float64, device="cpu"), 0
    middles = [torch.from_numpy(np.frombuffer(bytearray(of_rank), kind)).double() for _, of_rank, _ in told if of_rank]
    # Element by element in one order, so that all ranks have the same bits.
    for (number, *_), of_rank in zip((each for each in told if each[0]), middles, strict=True):
        count += number
        centre += (of_rank - centre) * (number / count)
    # No row is further from the centre than from the middle of its rank's and that from the centre.
    ways = [each[2] for each in told if each[0]]
    longest = max((away + float((m - centre).norm()) for away, m in zip(ways, middles, strict=True)), default=0.0)
    whole = rows.new_tensor(longest * (1 + 1e-9), dtype=torch.float64)
    return Normalization(centre.to(rows.device), power_of_two(whole), whole)


def common_frame(rows: Tensor, distance: Distance, group: Group) -> tuple[Normalization, Tensor]:
    # rows: (n, D) of this rank  ->  the same on all ranks; (n,) float64, norms in it, inf where not finite
    frame = frame_of(all_gather_status(told_of(rows, distance), group), rows)
    return frame, norms_in(frame, rows, distance)


def norms_in(frame: Normalization, rows: Tensor, distance: Distance) -> Tensor:
    # rows: (N, D)  ->  (N,) float64, inf where not finite
    norms = lengths(rows, frame.centre, distance)
    return norms.masked_fill(~norms.isfinite(), torch.inf)


def lengths(rows: Tensor, centre: Tensor, distance: Distance) -> Tensor:
    # rows: (N, D)  centre: (D,) float64  ->  (N,) float64
    """Norms of centred rows."""
    norms = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
    step = rows_at_once(rows)
    for start in range(0, len(rows), step):
        piece = slice(start, start + step)
        norms[piece] = (distance.prepared(rows[piece]) - centre).norm(dim=1)
    return norms
