"""Shortest augmenting paths in plain torch, in lockstep for all problems of a batch: readable, slow, on any device.

Capacities become copies of columns, and unmatched rows are assigned to dummy columns: the resulting square problem is
solved as in D. F. Crouse, "On implementing 2D rectangular assignment algorithms", 2016, doi:10.1109/TAES.2016.140952
"""

import math

import torch
from torch import Tensor

OPTIMAL, INFEASIBLE, INVALID, WORK_LIMIT = 0, 1, 2, 3
Result = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]  # see the schema in _op.py


def lsa(
    cost: Tensor,
    maximize: bool,
    row_lengths: Tensor | None = None,
    col_lengths: Tensor | None = None,
    mask: Tensor | None = None,
    col_capacity: Tensor | None = None,
    unmatched_cost: Tensor | None = None,
    work_limit: int | None = None,  # only used by the kernels
) -> Result:
    *batch_shape, rows, cols = cost.shape
    batch, sign = math.prod(batch_shape), -1 if maximize else 1
    costs = sign * cost.reshape(batch, rows, cols)
    lengths = costs.new_empty(batch, dtype=torch.int64)
    r = lengths.new_full((batch,), rows) if row_lengths is None else row_lengths.reshape(batch)
    c = lengths.new_full((batch,), cols) if col_lengths is None else col_lengths.reshape(batch)
    capacity = lengths.new_ones(batch, cols) if col_capacity is None else col_capacity.reshape(batch, cols)
    unmatched = costs.new_full((batch,), torch.inf) if unmatched_cost is None else sign * unmatched_cost.reshape(batch)

    row, col = torch.arange(rows, device=cost.device), torch.arange(cols, device=cost.device)
    row_valid, col_valid = row < r[:, None], col < c[:, None]
    allowed = row_valid[:, :, None] & col_valid[:, None, :]  # (B, R, C)
    if mask is not None:
        allowed = allowed & mask.reshape(batch, rows, cols)
    invalid = (allowed & ~(costs > -torch.inf)).any(2).any(1) | ~(unmatched > -torch.inf)
    invalid |= (r < 0) | (r > rows) | (c < 0) | (c > cols) | (col_valid & (capacity < 0)).any(1)
    costs = costs.where(allowed, torch.inf)

    wide, used, order, copies = _expanded(costs, capacity.clamp(0, rows).where(col_valid, 0), unmatched, row_valid)
    num_used = used.sum(1)

    tall = r > num_used  # the search matches every row, so a tall problem is transposed
    roots = torch.minimum(r, num_used).where(~invalid, 0)
    match, _, u, v, feasible, scans = _solve(_square(wide, tall), roots)
    status = torch.where(feasible, OPTIMAL, INFEASIBLE).where(~invalid, INVALID).to(torch.int8)
    u, v = _turn(u, v, tall)

    is_solved = (status == OPTIMAL)[:, None]
    pairs = _pairs(match, tall)[:, :rows, : wide.shape[2]] & is_solved[:, :, None]
    back = order.argsort(1)
    pairs = pairs.gather(2, back[:, None, :].expand_as(pairs))
    pairs = pairs[:, :, : copies * cols].unflatten(2, (copies, cols)).any(2)
    valid = is_solved & row_valid
    row_dual = u[:, :rows].where(valid, 0)
    # All copies of a column have the same dual, up to rounding; a column without a copy has dual 0.
    col_dual = (
        v[:, : wide.shape[2]].where(used.gather(1, order), 0).gather(1, back)[:, :cols]
        if copies
        else costs.new_zeros(batch, cols)
    )
    total = (sign * costs).where(pairs, 0).sum(2).sum(1, dtype=torch.float64)
    return (
        torch.where(pairs.any(2), _first(pairs), -1).reshape(*batch_shape, rows),
        torch.where(pairs.any(1), _first(pairs.mT), -1).reshape(*batch_shape, cols),
        (sign * row_dual).reshape(*batch_shape, rows),
        (sign * col_dual.where(is_solved, 0)).reshape(*batch_shape, cols),
        status.reshape(batch_shape),
        total.where(is_solved[:, 0], torch.nan).reshape(batch_shape),
        scans.reshape(batch_shape),
    )


def _expanded(
    costs: Tensor, capacity: Tensor, unmatched: Tensor, row_valid: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    # costs: (B, R, C)  capacity: (B, C)  unmatched: (B,)  row_valid: (B, R)
    # ->  (B, R, W) costs, (B, W) bool columns in use, (B, W) their order, maximum number of copies of a column
    """Expand a problem: copy k of column j is column j + k * C, followed by dummy columns. Used columns come first."""
    (batch, rows, _), device = costs.shape, costs.device
    copies = int(capacity.max()) if capacity.numel() else 0
    copy = torch.arange(copies, device=device)
    used = torch.cat(
        ((copy[:, None] < capacity[:, None, :]).flatten(1), row_valid & (unmatched < torch.inf)[:, None]), 1
    )
    diagonal = torch.eye(rows, dtype=torch.bool, device=device)
    dummy_costs = torch.diag_embed(unmatched[:, None].expand(batch, rows)).where(diagonal, torch.inf)
    order = (~used).to(torch.uint8).argsort(stable=True, dim=1)
    wide = torch.cat((costs.repeat(1, 1, copies), dummy_costs), 2).where(
        used[:, None, :] & row_valid[:, :, None], torch.inf
    )
    return wide.gather(2, order[:, None, :].expand_as(wide)), used, order, copies


def _square(cost: Tensor, turned: Tensor) -> Tensor:
    # cost: (B, R, C)  turned: (B,) bool  ->  (B, N, N), N = max(R, C), +inf in added entries
    size = max(cost.shape[1:])
    square = cost.new_full((len(cost), size, size), torch.inf)
    square[:, : cost.shape[1], : cost.shape[2]] = cost
    return square.mT.where(turned[:, None, None], square)


def _pairs(match: Tensor, turned: Tensor) -> Tensor:
    # match: (B, N) int64, -1 = none  turned: (B,) bool  ->  (B, N, N) bool, of rows and columns
    pairs = torch.zeros(*match.shape, match.shape[1], dtype=torch.bool, device=match.device)
    pairs.scatter_(2, match.clamp(min=0)[:, :, None], (match >= 0)[:, :, None])
    return pairs.mT.where(turned[:, None, None], pairs)


def _first(x: Tensor) -> Tensor:
    # (..., N) bool  ->  (...) index of the first True
    return x.to(torch.uint8).argmax(-1) if x.shape[-1] else x.new_zeros(x.shape[:-1], dtype=torch.int64)


def _turn(x: Tensor, y: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
    return torch.where(turned[:, None], y, x), torch.where(turned[:, None], x, y)


def _solve(cost: Tensor, roots: Tensor) -> tuple[Tensor, ...]:
    # cost: (B, N, N), +inf = forbidden; roots: (B,) rows to match
    # ->  (B, N), (B, N), (B, N), (B, N), (B,) feasible, (B,) row scans
    batch, n = cost.shape[:2]
    problem, index = torch.arange(batch, device=cost.device), torch.arange(n, device=cost.device)
    col_of_row = cost.new_full((batch, n), -1, dtype=torch.int64)
    row_of_col = col_of_row.clone()
    u, v = cost.new_zeros(batch, n), cost.new_zeros(batch, n)
    feasible, scans = torch.ones_like(roots, dtype=torch.bool), torch.zeros_like(roots)
    for root in range(n):
        distance, parent = torch.full_like(v, torch.inf), torch.full_like(row_of_col, -1)
        reached = torch.zeros_like(parent, dtype=torch.bool)
        row, length, sink = torch.full_like(roots, root), cost.new_zeros(batch), torch.full_like(roots, -1)
        growing = feasible & (root < roots)
        while growing.any():
            scans += growing
            through = (length - u[problem, row])[:, None] + (cost[problem, row] - v)
            shorter = growing[:, None] & ~reached & (through < distance)
            distance, parent = through.where(shorter, distance), row[:, None].where(shorter, parent)
            open_distance = distance.masked_fill(reached, torch.inf)
            nearest = open_distance.amin(1)
            # Among columns at equal distance prefer a free one, then the lowest.
            rank = (index + n * (row_of_col >= 0)).where(open_distance == nearest[:, None], 2 * n)
            column = rank.amin(1) % n
            stuck = growing & (nearest == torch.inf)
            feasible, growing = feasible & ~stuck, growing & ~stuck
            length = nearest.where(growing, length)
            matched = row_of_col[problem, column]
            sink = column.where(growing & (matched < 0), sink)
            growing = growing & (matched >= 0)
            reached[problem, column] |= growing
            row = matched.where(growing, row)
        dual_step = (length[:, None] - distance).where(reached & (sink >= 0)[:, None], 0)
        u = u.scatter_add(1, row_of_col.clamp(min=0), dual_step)
        u[:, root] += length.where(sink >= 0, 0)
        v = v - dual_step
        column = sink
        while (column >= 0).any():  # flips each path from its sink back to its root
            on_path = column >= 0
            safe_column = column.clamp(min=0)
            row = parent[problem, safe_column].where(on_path, 0)
            before = col_of_row[problem, row]
            row_of_col[problem, safe_column] = row.where(on_path, row_of_col[problem, safe_column])
            col_of_row[problem, row] = safe_column.where(on_path, before)
            column = before.where(on_path & (row != root), -1)
    return col_of_row, row_of_col, u, v, feasible, scans
