"""Cells of a row that share one small shape, in torch: `draw_wrong_answers` has their law, as csrc/dirichlet does."""

import math

import torch
from torch import Tensor

from ...core.numbers.philox import MASK_32, philox4x32

FIRST_ATTEMPT = 2**30  # first attempt number of stick breaking
ATTEMPTS = 64  # at most 0.002 of the proposals are refused
CELLS = 64  # of a group at least,
SHAPE = 2**-8  # its largest shape,
MASS = 16  # and the largest sum of shapes
NEGLIGIBLE = 2**-53  # in a row, and
NEGLIGIBLE_IN_COLUMN = 2**-30
UNREACHED = 2**29  # the attempt numbers of unreached cells begin here


def in_groups(alpha: Tensor) -> Tensor | None:  # (..., K) -> (..., K) bool
    """Return the cells with the smallest positive shape of their row, if it is small and frequent; None for no cell."""
    if alpha.shape[-1] <= CELLS:  # one of a row is the right answer
        return None
    smallest = torch.where(alpha > 0, alpha, torch.inf).amin(-1, keepdim=True)
    group = alpha == smallest
    n = group.sum(-1, keepdim=True)
    group &= (n >= CELLS) & (smallest <= SHAPE) & (n * smallest <= MASS) & alpha.isfinite().all(-1, keepdim=True)
    return group if group.any() else None


def draw_wrong_answers(
    wrong: Tensor, log_gamma: Tensor, alpha: Tensor, group: Tensor, keys: Tensor, sample: Tensor
) -> Tensor:
    # wrong: (S, E, C)  log_gamma: (S, E, C, C), -inf in groups  alpha, group: (E, C, C)  keys: (E, 2)  sample: (S,)
    # ->  (S, E, C, C)
    """Distribute the errors of each row over its cells.

    A cell that is negligible in its row need not be so in its column, of which all cells may be small. So the largest
    unreached mass of each column is drawn: from the depth where the row stopped, exponentials have no memory.
    """
    rows, depth = _break_groups(log_gamma, alpha, group, keys, sample)
    total = rows.sum(-1)
    factor = wrong / torch.where((alpha == 0).all(-1), 1, total)
    cells = factor[..., None] * rows
    depth = torch.where((factor > 0) & group.any(-1), depth - factor.log(), torch.inf)
    return _add_unreached(cells, depth, torch.where(group, alpha, 0), keys, sample)


def _add_unreached(cells: Tensor, depth: Tensor, shape: Tensor, keys: Tensor, sample: Tensor) -> Tensor:
    # cells: (S, E, C, C)  depth: (S, E, C)  shape: (E, C, C), 0 outside groups  keys: (E, 2)  sample: (S,)
    """Add to each column the largest mass of its unreached cells.

    The points of a Poisson process, whose rate is the number of rows times their largest shape, are assigned to rows
    at random, and kept with probability shape / largest shape if they lie beyond the depth of their row.
    """
    largest = shape.amax((-2, -1))  # (E,)
    has_group = shape.any(-1)
    count = has_group.sum(-1)
    rows = has_group.byte().argsort(dim=-1, descending=True, stable=True)
    in_column = cells.sum(-2)  # (S, E, C)
    position = depth.amin(-1, keepdim=True).expand_as(in_column).clone()
    s, e, j = position.isfinite().nonzero(as_tuple=True)
    attempt = 0
    while len(s):
        random_bits = philox4x32((sample[s] & MASK_32, j, UNREACHED + attempt, sample[s] >> 32), keys[e].unbind(-1))
        position[s, e, j] -= _log_uniform(random_bits[0]) / (largest * count)[e]
        height = (-position[s, e, j]).exp()
        height = torch.where(height < torch.finfo(height.dtype).tiny, 0, height)
        open_ = height > NEGLIGIBLE_IN_COLUMN * in_column[s, e, j]
        s, e, j, height = s[open_], e[open_], j[open_], height[open_]
        _, index, mass, uniform = (bits[open_] for bits in random_bits)
        row = rows[e, index * count[e] >> 32]
        is_accepted = _log_uniform(uniform).exp() * largest[e] < shape[e, row, j]
        is_accepted &= position[s, e, j] > depth[s, e, row]
        accepted = s[is_accepted], e[is_accepted], row[is_accepted], j[is_accepted]
        cells[accepted] += height[is_accepted] * -_log_uniform(mass[is_accepted])
        s, e, j = (index[~is_accepted] for index in (s, e, j))
        attempt += 1
    return cells


def _break_groups(
    log_gamma: Tensor, alpha: Tensor, group: Tensor, keys: Tensor, sample: Tensor
) -> tuple[Tensor, Tensor]:
    # ->  masses (S, E, R, K) up to a factor of each row, and the depths (S, E, R) where unreached cells begin
    """Draw the masses of cells; those of groups where they are not negligible.

    Each of the n cells of a group, Gamma(a), is Gamma(1 + a) exp(-y), y exponential with mean 1 / a. Sorted by y, the
    cells are in random order, and the k-th step from one y to the next is exponential with mean 1 / ((n - k) a)
    (Rényi 1953, doi:10.1007/BF02127580). Once exp(-y) (1 + n a) is below 2^-53 of the row so far, all but the first
    cell are 0.
    """
    e, r = group.any(-1).nonzero(as_tuple=True)  # (G,)
    n, shape = group[e, r].sum(-1), torch.where(group, alpha, 0)[e, r].amax(-1)
    order = group[e, r].byte().argsort(dim=-1, descending=True, stable=True).expand(len(sample), -1, -1).clone()
    first = r * (alpha.shape[-1] + alpha.shape[-1] % 2)
    z, step, index_bits = _propose(0, first, keys[e], sample, shape)
    depth = step / (n * shape)  # (S, G)
    largest = log_gamma.amax(-1)
    has_large_cell = ((alpha == 0) | (alpha >= 1) | group).all(-1) & ((alpha > 0) & ~group).any(-1)
    largest[:, e, r] = torch.where(has_large_cell[e, r], 0, torch.maximum(largest[:, e, r], -depth))
    rows = (log_gamma - torch.where(largest.isneginf(), 0, largest)[..., None]).exp()
    grouped = rows[:, e, r]
    depth, total = depth + largest[:, e, r], grouped.sum(-1)
    last, all_reached = depth, torch.zeros_like(depth, dtype=torch.bool)
    for k in range(int(n.max()) if len(n) else 0):
        if k:
            z, step, index_bits = _propose(k, first, keys[e], sample, shape)
            depth = depth + step / ((n - k) * shape)
        reached = (((-depth).exp() * (1 + n * shape) >= NEGLIGIBLE * total) | (k == 0)) & (k < n)
        if not reached.any():
            break
        last, all_reached = torch.where(reached, depth, last), reached & (k == n - 1) | all_reached
        mass = torch.where(reached, (1 + shape) * z * (-depth).exp(), 0)
        total = total + mass
        index = k + (index_bits * (n - k).clamp(min=0) >> 32)
        column = order.gather(-1, index[..., None])
        order.scatter_(-1, index[..., None], order[..., k : k + 1].clone())
        grouped.scatter_add_(-1, column, mass[..., None])
    rows[:, e, r] = grouped
    unreached = torch.full_like(largest, torch.inf)
    bound = ((1 + n * shape) / total).log() - math.log(NEGLIGIBLE)
    unreached[:, e, r] = torch.where(all_reached, torch.inf, torch.maximum(bound, last))
    return rows, unreached


def _propose(
    k: int, first: Tensor, keys: Tensor, sample: Tensor, shape: Tensor
) -> tuple[Tensor, Tensor, Tensor]:  # first, shape: (G,)  keys: (G, 2)  sample: (S,)  ->  (S, G) each
    """Draw z of the k-th masses, Gamma(1 + a) = (1 + a) z, the step of y in units of its mean, bits for the index."""
    random_bits = _random_bits(0, sample[:, None], first + k, keys)
    z, step = -_log_uniform(random_bits[0]), -_log_uniform(random_bits[2])
    s, g = (~_accepts(z, random_bits[1], shape)).nonzero(as_tuple=True)
    for attempt in range(1, ATTEMPTS):
        if not len(s):
            break
        again = _random_bits(attempt, sample[s], first[g] + k, keys[g])
        z[s, g] = -_log_uniform(again[0])
        refused = ~_accepts(z[s, g], again[1], shape[g])
        s, g = s[refused], g[refused]
    z[s, g] = torch.nan
    return z, step, random_bits[3]


def _random_bits(attempt: int, sample: Tensor, counter: Tensor, keys: Tensor) -> tuple[Tensor, ...]:
    return philox4x32((sample & MASK_32, counter, FIRST_ATTEMPT + attempt, sample >> 32), keys.unbind(-1))


def _log_uniform(bits: Tensor) -> Tensor:
    return ((bits.double() + 0.5) * 2**-32).log()


def _accepts(z: Tensor, bits: Tensor, shape: Tensor) -> Tensor:
    """Return True with probability (z e^(1 - z))^a."""
    return _log_uniform(bits) < shape * (1 + z.log() - z)
