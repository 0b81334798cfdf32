"""Common normalization of the rows of all ranks, so that prepared rows are valid on every rank."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ....core.metric.distributed import Group, all_gather_status
from ....core.numbers.exact_sums import power_of_two
from ..distance import Distance, rows_at_once
from ..product_filter import Normalization, robust_center

RowSummary = tuple[int, bytes, float]  # number of rows, their center, largest distance from it


def summarize_rows(rows: Tensor, distance: Distance) -> RowSummary:
    # rows: (n, D) of this rank
    """Return the summary of a rank's rows from which all ranks compute the common normalization."""
    if not len(rows):
        return 0, b"", 0.0
    # Any center is valid if all ranks agree on it, so the precision of the rows is enough.
    dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
    center = robust_center(rows, distance).to(dtype).cpu()
    norms = lengths(rows, center.double().to(rows.device), distance)
    return len(rows), center.numpy().tobytes(), float(norms.where(norms.isfinite(), 0.0).amax())


def merged_normalization(summaries: Sequence[RowSummary], rows: Tensor) -> Normalization:
    # rows: (n, D) of this rank  ->  the same on all ranks
    dtype = np.dtype("float64" if rows.dtype == torch.float64 else "float32")
    center, count = torch.zeros(rows.shape[1], dtype=torch.float64, device="cpu"), 0
    middles = [
        torch.from_numpy(np.frombuffer(bytearray(of_rank), dtype)).double() for _, of_rank, _ in summaries if of_rank
    ]
    # Element by element in one order, so that all ranks have the same bits.
    for (size, *_), of_rank in zip((summary for summary in summaries if summary[0]), middles, strict=True):
        count += size
        center += (of_rank - center) * (size / count)
    # Triangle inequality: from a row to the center of its rank's rows, and from there to the common center.
    radii = [summary[2] for summary in summaries if summary[0]]
    longest = max((radius + float((m - center).norm()) for radius, m in zip(radii, middles, strict=True)), default=0.0)
    bound = rows.new_tensor(longest * (1 + 1e-9), dtype=torch.float64)
    return Normalization(center.to(rows.device), power_of_two(bound), bound)


def common_normalization(rows: Tensor, distance: Distance, group: Group) -> tuple[Normalization, Tensor]:
    # rows: (n, D) of this rank  ->  the same on all ranks; (n,) float64, centered norms, inf where not finite
    normalization = merged_normalization(all_gather_status(summarize_rows(rows, distance), group), rows)
    return normalization, norms_in(normalization, rows, distance)


def norms_in(normalization: Normalization, rows: Tensor, distance: Distance) -> Tensor:
    # rows: (N, D)  ->  (N,) float64, inf where not finite
    norms = lengths(rows, normalization.center, distance)
    return norms.masked_fill(~norms.isfinite(), torch.inf)


def lengths(rows: Tensor, center: Tensor, distance: Distance) -> Tensor:
    # rows: (N, D)  center: (D,) float64  ->  (N,) float64
    """Return the norms of centered rows."""
    norms = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
    step = rows_at_once(rows)
    for start in range(0, len(rows), step):
        chunk = slice(start, start + step)
        norms[chunk] = (distance.prepared(rows[chunk]) - center).norm(dim=1)
    return norms
