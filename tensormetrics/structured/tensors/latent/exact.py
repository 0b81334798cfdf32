"""Mappings of variables proved to be the best, by integer programmes."""

import numpy as np
import torch
from torch import Tensor

from .._integer_program import IntegerProgram, relax, solve
from .search import climb
from .terms import Terms


def prove(
    terms: Terms,
    bound: Tensor,  # (D,)
    value: Tensor,  # (D,)
    mapping: Tensor,  # (D, P)
    node_limit: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    # -> bound, value, mapping
    """Bring bound and value together, on the host: by linear programmes and a search that starts from their solutions,
    and where that is not enough by integer programmes of at most `node_limit` nodes."""
    programmes = [_programme(terms, document) for document in range(len(bound))]
    guide = np.zeros((len(bound), terms.p, terms.r))
    most = []
    for (programme, pairs), start in zip(programmes, guide, strict=True):
        relaxed = relax(programme)
        start[tuple(pairs.T)] = relaxed.taken[: len(pairs)]
        most.append(relaxed.bound)
    bound = torch.minimum(bound, bound.new_tensor(most))
    _, found, found_mapping = climb(terms, torch.from_numpy(guide).to(value)[None])
    mapping = found_mapping.where((found > value)[:, None], mapping)
    value = torch.maximum(value, found)
    for document in (value < bound).nonzero()[:, 0].tolist():
        programme, pairs = programmes[document]
        answer = solve(programme, value[document].item(), node_limit)
        weight = programme.weight @ answer.taken
        if weight > value[document]:
            taken = torch.from_numpy(pairs[answer.taken[: len(pairs)] > 0]).to(mapping)
            mapping[document] = mapping.new_full((terms.p,), terms.r).scatter(0, taken[:, 0], taken[:, 1])
            value[document] = weight
        bound[document] = min(bound[document].item(), answer.bound)
    return bound, value, mapping


def _programme(terms: Terms, document: int) -> tuple[IntegerProgram, np.ndarray]:
    # -> programme, pairs (C', 2) of variables that its first columns stand for
    """A column for each pair of variables and for each term of several variables.

    Of the terms with the same variables on one side at most one is won, and that only with its pairs: a row for each
    such family of terms and pair.
    """
    mine = terms.document == document
    pred, ref, weight = (x[mine].numpy() for x in (terms.pred, terms.ref, terms.weight))
    used = pred < terms.p
    pairs, pair = np.unique(np.stack([pred[used], ref[used]], 1), axis=0, return_inverse=True)
    joint = used.sum(1) > 1
    column = len(pairs) + joint.cumsum() - 1  # of a joint term
    gain = np.zeros(len(pairs) + joint.sum())
    gain[len(pairs) :] = weight[joint]
    term = used.nonzero()[0]
    gain[pair[~joint[term]]] = weight[~joint]

    # One partner for each variable: entries of the rows, as (row, column, coefficient), and their limits.
    each = np.arange(len(pairs))
    entries = [(pairs[:, 0], each, 1.0), (terms.p + pairs[:, 1], each, 1.0)]
    limits = [np.ones(terms.p + terms.r)]
    pair, term = pair[joint[term]], term[joint[term]]
    for side in (pred, np.sort(ref, 1)):
        family = np.unique(side, axis=0, return_inverse=True)[1]
        links, link = np.unique(np.stack([family[term], pair], 1), axis=0, return_inverse=True)
        start = sum(map(len, limits))
        entries += [(start + link, column[term], 1.0), (start + np.arange(len(links)), links[:, 1], -1.0)]
        limits.append(np.zeros(len(links)))
    rows, columns, coefficients = (
        np.concatenate(part) for part in zip(*(np.broadcast_arrays(*entry) for entry in entries), strict=True)
    )
    return IntegerProgram(gain, rows, columns, coefficients, np.concatenate(limits)), pairs
