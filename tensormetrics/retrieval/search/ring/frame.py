"""One frame for the rows of all ranks: what is made of a row in it serves wherever the row goes."""

import torch
from torch import Tensor

from ...._exact_sums import power_of_two
from ...._ranks import Group, exchange
from ..distance import Distance, rows_at_once
from ..filter import Frame, middle


def common_frame(rows: Tensor, distance: Distance, group: Group) -> tuple[Frame, Tensor]:
    # rows: (n, D) of this rank  ->  the same on all ranks; (n,) float64, norms in it, inf where not finite
    own = middle(rows, distance).tolist() if len(rows) else None
    centre, count = torch.zeros(rows.shape[1], dtype=torch.float64, device="cpu"), 0
    # Element by element in one order, so that all ranks have the same bits.
    for number, of_rank in exchange((len(rows), own), group):
        if of_rank is not None:
            count += number
            centre += (torch.tensor(of_rank, dtype=torch.float64, device="cpu") - centre) * (number / count)
    centre = centre.to(rows.device)
    norms = lengths(rows, centre, distance)
    longest = float(norms.where(norms.isfinite(), 0.0).amax()) if len(rows) else 0.0
    whole = centre.new_tensor(max(exchange(longest, group)))
    return Frame(centre, power_of_two(whole), whole), norms.masked_fill(~norms.isfinite(), torch.inf)


def lengths(rows: Tensor, centre: Tensor, distance: Distance) -> Tensor:
    # rows: (N, D)  centre: (D,) float64  ->  (N,) float64
    """Norms of centred rows."""
    norms = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
    step = rows_at_once(rows)
    for start in range(0, len(rows), step):
        piece = slice(start, start + step)
        norms[piece] = (distance.prepared(rows[piece]) - centre).norm(dim=1)
    return norms
