"""Queries that are searched for again and again, among other references each time, as k-means does."""

import torch
from torch import Tensor

from .distance import rows_at_once
from .filter import Filter, Frame
from .halves import HalfFilter
from .kernels.tables import Halves


class KnownQueries:
    """Rows that are centred, scaled and rounded once for several searches by "sqeuclidean".

    References are put into the frame of the queries, for which they should lie among them, as means do: of any that is
    more than twice as far from the centre as all queries nothing is proven, and slower ways to search find it.
    """

    distance = "sqeuclidean"

    def __init__(self, rows: Tensor, memory: int) -> None:
        # rows: (Q, D)
        self.rows = rows
        self.dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
        self.kept = rows.device.type != "cpu" or 2 * rows.numel() * self.dtype.itemsize <= memory
        own = Filter(rows, self.distance, self.dtype)
        self.frame = Frame(own.centre, own.scale / 2)
        self._scaled: tuple[Tensor, Tensor] | None = None
        self._halves: Halves | None = None

    def query(self, rows: slice, filter_: Filter) -> tuple[Tensor, Tensor]:
        # ->  (Q, D), (Q,)
        """What `Filter.query` gives for some of the queries, of a filter in their frame."""
        if not self.kept:
            return filter_.query(self.rows[rows])
        if self._scaled is None:
            pieces = self.rows.split(rows_at_once(self.rows))
            x = torch.empty(self.rows.shape, dtype=self.dtype, device=self.rows.device)
            sides = zip(pieces, x.split(len(pieces[0])), strict=True)
            self._scaled = x, torch.cat([filter_.scaled(*side) for side in sides])
        x, norm = self._scaled
        return x[rows], filter_.error(norm[rows])

    def halves(self, rows: slice, filter_: HalfFilter) -> Halves:
        """What `HalfFilter.query` gives for some of the queries, the first of them at the start of a tile."""
        if self._halves is None:
            self._halves = filter_.query(self.rows)
        stop = rows.start + filter_.whole_tiles(rows.stop - rows.start)
        table, left, known = self._halves[:3]
        return Halves(table[rows.start : stop], left[:, rows.start : stop].contiguous(), known[rows])
