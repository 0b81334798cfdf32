"""An upper bound of the value of mappings, and a local search for a good mapping, for all documents at once."""

import itertools

import numpy as np
import torch
from torch import Tensor

from ....assignment import linear_sum_assignment
from .terms import Terms, merge_rows


def bound_and_mapping(terms: Terms, restarts: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    # -> bound (D,), value (D,), mapping (D, P) with R for unmapped
    """Compute an upper bound and the best mapping of several local searches.

    Searches start from the assignment that gives the bound, the best one for terms of a single variable, the identity,
    and `restarts` random mappings.
    """
    coefficients = _bound_coefficients(terms)
    single = _used(terms).sum(-1) == 1
    index = (terms.document[single], *terms.pred[single].mT[:1], *terms.ref[single].mT[:1])
    single_weight = torch.zeros_like(coefficients).index_put(index, terms.weight[single])
    same = torch.eye(terms.p, terms.r, dtype=coefficients.dtype, device=coefficients.device).expand_as(coefficients)
    keys = np.random.default_rng(seed).random((max(terms.p, terms.r), 2, restarts))
    of_pred, of_ref = torch.from_numpy(keys).to(coefficients).permute(1, 2, 0)
    noise = (of_pred[:, None, : terms.p, None] + of_ref[:, None, None, : terms.r]) % 1  # depends on neither P nor R
    random = noise.expand(-1, *coefficients.shape)
    starts = torch.stack([coefficients, single_weight + coefficients / 1024, same, *random]).where(coefficients > 0, 0)
    cost, value, mapping = climb(terms, starts)
    return (cost + 1e-6).floor(), value, mapping


def climb(terms: Terms, starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # starts: (Q, D, P, R) >= 0  ->  weight of the heaviest assignment of starts[0] (D,), value (D,), mapping (D, P)
    """Search from the heaviest assignments of `starts` for the best mapping; weight 0 leaves a variable unmapped."""
    lengths = {"row_lengths": terms.n_pred, "col_lengths": terms.n_ref}
    lengths = {name: n.expand(starts.shape[:2]) for name, n in lengths.items()}
    assignment = linear_sum_assignment(starts, maximize=True, **lengths, check=False)
    # (Q, D, P), from R + 1 columns: the last is 0, the weight of unmapped variables (index -1)
    target = assignment.col_of_row
    weight = torch.nn.functional.pad(starts, (0, 1)).gather(-1, target[..., None] % (terms.r + 1))[..., 0]
    value, mapping = _climb(terms, target.where(weight > 0, terms.r))
    value, best = value.max(0)
    return assignment.cost[0], value, mapping.gather(0, best[None, :, None].expand_as(mapping[:1]))[0]


def _used(terms: Terms) -> Tensor:
    # -> (T, K)
    return terms.pred < terms.p


def _bound_coefficients(terms: Terms) -> Tensor:
    # -> (D, P, R)
    """Bound the contribution of mapping a variable to another, the weight of a term split evenly among its variables.

    Among the terms with the same predicted, or the same reference, variables at most one is satisfied. The sum over a
    mapping is therefore an upper bound of its value (P. C. Gilmore, 1962, doi:10.1137/0110022).
    """
    used = _used(terms)
    coefficient = terms.weight / used.sum(-1)
    bounds = []
    for group in (terms.pred, terms.ref.sort(-1).values):
        keys = torch.cat([terms.document[:, None], group], -1)[:, None].expand(-1, used.shape[1], -1)
        rows = torch.cat([keys, terms.pred[..., None], terms.ref[..., None]], -1)[used]
        rows, max_coefficient = merge_rows(rows, coefficient[:, None].expand_as(used)[used], "amax")
        total = coefficient.new_zeros(len(terms.free), terms.p, terms.r)
        bounds.append(total.index_put((rows[:, 0], rows[:, -2], rows[:, -1]), max_coefficient, accumulate=True))
    return torch.minimum(*bounds)


def _climb(terms: Terms, mapping: Tensor) -> tuple[Tensor, Tensor]:
    # mapping: (Q, D, P)  ->  value (Q, D), mapping (Q, D, P)
    """Make the best move of each search until no move improves the value.

    A move maps a variable to another target; the variable that was mapped there, if any, gets the former target.
    """
    q, d, p = mapping.shape
    r = terms.r
    # Variable P always stays mapped to R; unmapped variables are mapped to R, free targets are held by P.
    mapping = torch.nn.functional.pad(mapping, (0, 1), value=r)
    while True:
        move_margin, swap_margin = _margins(terms, mapping)
        holder = mapping.new_full((q, d, r + 1), p)
        holder.scatter_(-1, mapping[..., :p], torch.arange(p, device=mapping.device).expand(q, d, p))
        holder[..., r] = p
        current = move_margin.gather(-1, mapping[..., None])[..., 0]  # (Q, D, P+1): value of each variable
        moved = move_margin.gather(-1, mapping[..., None, :].expand(q, d, p + 1, p + 1))  # [c, a]: c gets a's target
        exchanged = moved.mT + swap_margin - current[..., None, :]  # [a, c]: gain of c's move to a's target
        gain = move_margin - current[..., None] + exchanged.gather(-1, holder[..., None, :].expand_as(move_margin))
        best, move = gain.flatten(-2).max(-1)
        better = best > 0
        if not better.any():
            break
        a, x = move // (r + 1), move % (r + 1)
        c, old = holder.gather(-1, x[..., None]), mapping.gather(-1, a[..., None])
        after = mapping.scatter(-1, c, old).scatter(-1, a[..., None], x[..., None])
        after[..., p] = r
        mapping = after.where(better[..., None], mapping)
    won = terms.weight.where(_hits(terms, mapping).all(-1), 0)
    value = won.new_zeros(q, d).index_add(-1, terms.document, won)
    return value, mapping[..., :p].where(current[..., :p] > 0, r)


def _hits(terms: Terms, mapping: Tensor) -> Tensor:
    # mapping: (Q, D, P+1)  ->  (Q, T, K): whether the variable has the target that the term requires
    return mapping[:, terms.document[:, None], terms.pred] == terms.ref


def _margins(terms: Terms, mapping: Tensor) -> tuple[Tensor, Tensor]:
    # mapping: (Q, D, P+1)  ->  (Q, D, P+1, R+1), (Q, D, P+1, P+1)
    """Return the values of mapping a to x with the other variables fixed, and the extra gains of swapping a and c.

    Beyond the separate moves of a and c a swap gains the terms of both that it satisfies, and loses terms of both only
    once.
    """
    q, d, size = mapping.shape
    hit, used = _hits(terms, mapping), _used(terms)
    misses = (~hit).sum(-1)
    cell = terms.document[:, None] * size + terms.pred  # (T, K)
    move_margin = terms.weight.new_zeros(q, d * size * (terms.r + 1))
    won = terms.weight[:, None].where((misses[..., None] == (~hit).long()) & used, 0)
    move_margin.index_add_(-1, (cell * (terms.r + 1) + terms.ref).flatten(), won.flatten(1))
    swap_margin = terms.weight.new_zeros(q, d * size * size)
    for i, j in itertools.combinations(range(terms.pred.shape[1]), 2):
        crossed = (mapping[:, terms.document, terms.pred[:, i]] == terms.ref[:, j]) & (
            mapping[:, terms.document, terms.pred[:, j]] == terms.ref[:, i]
        )
        others = misses == (~hit[..., i]).long() + (~hit[..., j]).long()
        active = (crossed | (hit[..., i] & hit[..., j])) & others & used[:, j]  # then i is used as well
        swap_margin.index_add_(-1, cell[:, i] * size + terms.pred[:, j], terms.weight.where(active, 0))
    swap_margin = swap_margin.view(q, d, size, size)
    return move_margin.view(q, d, size, terms.r + 1), swap_margin + swap_margin.mT
