"""Shortest augmenting paths in plain torch, all problems of the batch in step: readable, slow, right on any device.

D. F. Crouse, "On implementing 2D rectangular assignment algorithms", 2016, doi:10.1109/TAES.2016.140952
"""

import math

import torch
from torch import Tensor

OPTIMAL, INFEASIBLE, INVALID = 0, 1, 2
Result = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # col_of_row, row_of_col, row_dual, col_dual, status


def lsa(cost: Tensor, maximize: bool, row_lengths: Tensor | None, col_lengths: Tensor | None) -> Result:
    # cost: (..., R, C), lengths: (...)  ->  (..., R), (..., C), (..., R), (..., C), (...)
    *lead, rows, cols = cost.shape
    batch, side = math.prod(lead), max(rows, cols)
    costs = (-cost if maximize else cost).reshape(batch, rows, cols)
    r = costs.new_full((batch,), rows, dtype=torch.int64) if row_lengths is None else row_lengths.reshape(batch)
    c = costs.new_full((batch,), cols, dtype=torch.int64) if col_lengths is None else col_lengths.reshape(batch)

    index = torch.arange(side, device=cost.device)
    inside = (index[:rows] < r[:, None])[:, :, None] & (index[:cols] < c[:, None])[:, None, :]  # (B, R, C)
    invalid = (inside & ~(costs > -torch.inf)).any((1, 2)) | (r < 0) | (r > rows) | (c < 0) | (c > cols)
    square = costs.new_full((batch, side, side), torch.inf)
    square[:, :rows, :cols] = costs.where(inside, torch.inf)
    tall = r > c  # the search matches every row, so a tall problem is turned
    square = square.mT.where(tall[:, None, None], square)

    col_of_row, row_of_col, u, v, feasible = _solve(square, torch.minimum(r, c).where(~invalid, 0))

    status = torch.where(feasible, OPTIMAL, INFEASIBLE).where(~invalid, INVALID).to(torch.int8)
    sign = -1 if maximize else 1
    col_of_row, row_of_col = _turn(col_of_row, row_of_col, tall)
    u, v = _turn(sign * u, sign * v, tall)
    solved = (status == OPTIMAL)[:, None]
    return (
        col_of_row[:, :rows].where(solved, -1).reshape(*lead, rows),
        row_of_col[:, :cols].where(solved, -1).reshape(*lead, cols),
        u[:, :rows].where(solved & (index[:rows] < r[:, None]), 0).reshape(*lead, rows),
        v[:, :cols].where(solved & (index[:cols] < c[:, None]), 0).reshape(*lead, cols),
        status.reshape(lead),
    )


def _turn(x: Tensor, y: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
    return torch.where(turned[:, None], y, x), torch.where(turned[:, None], x, y)


def _solve(cost: Tensor, roots: Tensor) -> Result:
    # cost: (B, N, N), +inf = forbidden; roots: (B,) rows to match  ->  (B, N), (B, N), (B, N), (B, N), (B,) feasible
    batch, n = cost.shape[:2]
    each, index = torch.arange(batch, device=cost.device), torch.arange(n, device=cost.device)
    col_of_row = cost.new_full((batch, n), -1, dtype=torch.int64)
    row_of_col = col_of_row.clone()
    u, v = cost.new_zeros(batch, n), cost.new_zeros(batch, n)
    feasible = torch.ones_like(roots, dtype=torch.bool)
    for root in range(n):
        distance, parent = torch.full_like(v, torch.inf), torch.full_like(row_of_col, -1)
        reached = torch.zeros_like(parent, dtype=torch.bool)
        row, length, sink = torch.full_like(roots, root), cost.new_zeros(batch), torch.full_like(roots, -1)
        growing = feasible & (root < roots)
        while growing.any():
            through = (length - u[each, row])[:, None] + (cost[each, row] - v)
            shorter = growing[:, None] & ~reached & (through < distance)
            distance, parent = through.where(shorter, distance), row[:, None].where(shorter, parent)
            open_distance = distance.masked_fill(reached, torch.inf)
            nearest = open_distance.amin(1)
            # Among equally near columns a free one first, then the lowest.
            rank = (index + n * (row_of_col >= 0)).where(open_distance == nearest[:, None], 2 * n)
            column = rank.amin(1) % n
            stuck = growing & (nearest == torch.inf)
            feasible, growing = feasible & ~stuck, growing & ~stuck
            length = nearest.where(growing, length)
            matched = row_of_col[each, column]
            sink = column.where(growing & (matched < 0), sink)
            growing = growing & (matched >= 0)
            reached[each, column] |= growing
            row = matched.where(growing, row)
        slack = (length[:, None] - distance).where(reached & (sink >= 0)[:, None], 0)
        u = u.scatter_add(1, row_of_col.clamp(min=0), slack)
        u[:, root] += length.where(sink >= 0, 0)
        v = v - slack
        column = sink
        while (column >= 0).any():  # flips each path from its sink back to its root
            on_path = column >= 0
            at = column.clamp(min=0)
            row = parent[each, at].where(on_path, 0)
            before = col_of_row[each, row]
            row_of_col[each, at] = row.where(on_path, row_of_col[each, at])
            col_of_row[each, row] = at.where(on_path, before)
            column = before.where(on_path & (row != root), -1)
    return col_of_row, row_of_col, u, v, feasible
