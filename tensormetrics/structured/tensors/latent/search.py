"""A bound on what a mapping of variables wins, and a search for a good one, for all documents at once."""

import itertools

import numpy as np
import torch
from torch import Tensor

from ....assignment import linear_sum_assignment
from .terms import Terms, merge_rows


def bound_and_mapping(terms: Terms, restarts: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    # -> bound (D,), value (D,), mapping (D, P) with R for unmapped
    """Searches start from the assignment that gives the bound, the best one for terms of a single variable, equal
    numbers, and `restarts` random mappings."""
    share = _shares(terms)
    single = _used(terms).sum(-1) == 1
    place = (terms.document[single], *terms.pred[single].mT[:1], *terms.ref[single].mT[:1])
    alone = torch.zeros_like(share).index_put(place, terms.weight[single])
    same = torch.eye(terms.p, terms.r, dtype=share.dtype, device=share.device).expand_as(share)
    random = _noise(terms, restarts, seed, share).expand(-1, *share.shape)
    starts = torch.stack([share, alone + share / 1024, same, *random]).where(share > 0, 0)
    cost, value, mapping = climb(terms, starts)
    return (cost + 1e-6).floor(), value, mapping


def climb(terms: Terms, starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # starts: (Q, D, P, R) >= 0  ->  the heaviest assignment to the first (D,), value (D,), mapping (D, P)
    """The best mapping found from the heaviest assignments to `starts`; 0 leaves a variable unmapped."""
    lengths = {"row_lengths": terms.n_pred, "col_lengths": terms.n_ref}
    lengths = {name: n.expand(starts.shape[:2]) for name, n in lengths.items()}
    found = linear_sum_assignment(starts, maximize=True, **lengths, check=False)
    # (Q, D, P), of R + 1 columns: the last is worth nothing, and is where -1 looks too
    worth = torch.nn.functional.pad(starts, (0, 1)).gather(-1, found.col_of_row[..., None] % (terms.r + 1))[..., 0]
    value, mapping = _climb(terms, found.col_of_row.where(worth > 0, terms.r))
    value, best = value.max(0)
    return found.cost[0], value, mapping.gather(0, best[None, :, None].expand_as(mapping[:1]))[0]


def _used(terms: Terms) -> Tensor:
    # -> (T, K)
    return terms.pred < terms.p


def _shares(terms: Terms) -> Tensor:
    # -> (D, P, R)
    """The most that mapping a variable to another can win, if a term's weight is shared among its variables.

    Of the terms with the same predicted variables at most one is won; so of those with the same reference ones. The
    sum over a mapping is therefore never less than what it wins (P. C. Gilmore, 1962, doi:10.1137/0110022).
    """
    used = _used(terms)
    share = terms.weight / used.sum(-1)
    sides = []
    for group in (terms.pred, terms.ref.sort(-1).values):
        keys = torch.cat([terms.document[:, None], group], -1)[:, None].expand(-1, used.shape[1], -1)
        rows = torch.cat([keys, terms.pred[..., None], terms.ref[..., None]], -1)[used]
        rows, most = merge_rows(rows, share[:, None].expand_as(used)[used], "amax")
        total = share.new_zeros(len(terms.free), terms.p, terms.r)
        sides.append(total.index_put((rows[:, 0], rows[:, -2], rows[:, -1]), most, accumulate=True))
    return torch.minimum(*sides)


def _noise(terms: Terms, restarts: int, seed: int, like: Tensor) -> Tensor:
    # -> (restarts, 1, P, R) in [0, 1); what stands at a place does not depend on P and R
    keys = np.random.default_rng(seed).random((max(terms.p, terms.r), 2, restarts))
    pred, ref = torch.from_numpy(keys).to(like).permute(1, 2, 0)
    return (pred[:, None, : terms.p, None] + ref[:, None, None, : terms.r]) % 1


def _climb(terms: Terms, mapping: Tensor) -> tuple[Tensor, Tensor]:
    # mapping: (Q, D, P)  ->  value (Q, D), mapping (Q, D, P)
    """Make the best move of each search until none wins: a variable is mapped to another one, and the variable that was
    mapped there, if any, takes its former place."""
    q, d, p = mapping.shape
    r = terms.r
    # Variable P is mapped to R for good; unmapped variables are mapped to R, free ones are held by P.
    mapping = torch.nn.functional.pad(mapping, (0, 1), value=r)
    while True:
        alone, together = _margins(terms, mapping)
        holder = mapping.new_full((q, d, r + 1), p)
        holder.scatter_(-1, mapping[..., :p], torch.arange(p, device=mapping.device).expand(q, d, p))
        holder[..., r] = p
        kept = alone.gather(-1, mapping[..., None])[..., 0]  # (Q, D, P+1): what each variable wins where it is
        moved = alone.gather(-1, mapping[..., None, :].expand(q, d, p + 1, p + 1))  # [c, a]: c takes the place of a
        exchanged = moved.mT + together - kept[..., None, :]  # [a, c]: what c's move to a's place adds
        gain = alone - kept[..., None] + exchanged.gather(-1, holder[..., None, :].expand_as(alone))
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
    return value, mapping[..., :p].where(kept[..., :p] > 0, r)


def _hits(terms: Terms, mapping: Tensor) -> Tensor:
    # mapping: (Q, D, P+1)  ->  (Q, T, K): the variable goes where the term wants it
    return mapping[:, terms.document[:, None], terms.pred] == terms.ref


def _margins(terms: Terms, mapping: Tensor) -> tuple[Tensor, Tensor]:
    # mapping: (Q, D, P+1)  ->  (Q, D, P+1, R+1), (Q, D, P+1, P+1)
    """What mapping a to x wins with the other variables as they are; and what an exchange of the places of a and c
    wins beyond the moves of a and of c on their own: terms of both that it makes, and terms of both lost only once."""
    q, d, size = mapping.shape
    hit, used = _hits(terms, mapping), _used(terms)
    misses = (~hit).sum(-1)
    cell = terms.document[:, None] * size + terms.pred  # (T, K)
    alone = terms.weight.new_zeros(q, d * size * (terms.r + 1))
    won = terms.weight[:, None].where((misses[..., None] == (~hit).long()) & used, 0)
    alone.index_add_(-1, (cell * (terms.r + 1) + terms.ref).flatten(), won.flatten(1))
    together = terms.weight.new_zeros(q, d * size * size)
    for i, j in itertools.combinations(range(terms.pred.shape[1]), 2):
        crossed = (mapping[:, terms.document, terms.pred[:, i]] == terms.ref[:, j]) & (
            mapping[:, terms.document, terms.pred[:, j]] == terms.ref[:, i]
        )
        others = misses == (~hit[..., i]).long() + (~hit[..., j]).long()
        active = (crossed | (hit[..., i] & hit[..., j])) & others & used[:, j]  # then i is used as well
        together.index_add_(-1, cell[:, i] * size + terms.pred[:, j], terms.weight.where(active, 0))
    together = together.view(q, d, size, size)
    return alone.view(q, d, size, terms.r + 1), together + together.mT
