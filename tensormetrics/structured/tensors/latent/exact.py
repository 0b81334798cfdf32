"""Optimal mappings of variables by integer programs."""

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
    """Close the gap between bound and value, on the host.

    Linear programs give bounds and starting points of a search; documents with a gap left are solved by integer
    programs of at most `node_limit` nodes.
    """
    programs = [_program(terms, document) for document in range(len(bound))]
    guide = np.zeros((len(bound), terms.p, terms.r))
    bounds = []
    for (program, pairs), start in zip(programs, guide, strict=True):
        relaxed = relax(program)
        start[tuple(pairs.T)] = relaxed.selected[: len(pairs)]
        bounds.append(relaxed.bound)
    bound = torch.minimum(bound, bound.new_tensor(bounds))
    _, climbed, climbed_mapping = climb(terms, torch.from_numpy(guide).to(value)[None])
    mapping = climbed_mapping.where((climbed > value)[:, None], mapping)
    value = torch.maximum(value, climbed)
    for document in (value < bound).nonzero()[:, 0].tolist():
        program, pairs = programs[document]
        answer = solve(program, value[document].item(), node_limit)
        weight = program.weight @ answer.selected
        if weight > value[document]:
            selected = torch.from_numpy(pairs[answer.selected[: len(pairs)] > 0]).to(mapping)
            mapping[document] = mapping.new_full((terms.p,), terms.r).scatter(0, selected[:, 0], selected[:, 1])
            value[document] = weight
        bound[document] = min(bound[document].item(), answer.bound)
    return bound, value, mapping


def _program(terms: Terms, document: int) -> tuple[IntegerProgram, np.ndarray]:
    # -> program, pairs (C', 2) of variables of its first columns
    """Build a program with a column per pair of variables and per term of several variables.

    Among the terms with the same predicted, or the same reference, variables at most one is satisfied, and only if its
    pairs are selected: there is a row for each such family of terms and pair.
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

    # One partner per variable: entries of the rows as (row, column, coefficient), and their limits.
    column_index = np.arange(len(pairs))
    entries = [(pairs[:, 0], column_index, 1.0), (terms.p + pairs[:, 1], column_index, 1.0)]
    limits = [np.ones(terms.p + terms.r)]
    pair, term = pair[joint[term]], term[joint[term]]
    for variables in (pred, np.sort(ref, 1)):
        family = np.unique(variables, axis=0, return_inverse=True)[1]
        links, link = np.unique(np.stack([family[term], pair], 1), axis=0, return_inverse=True)
        start = sum(map(len, limits))
        entries += [(start + link, column[term], 1.0), (start + np.arange(len(links)), links[:, 1], -1.0)]
        limits.append(np.zeros(len(links)))
    rows, columns, coefficients = (
        np.concatenate(part) for part in zip(*(np.broadcast_arrays(*entry) for entry in entries), strict=True)
    )
    return IntegerProgram(gain, rows, columns, coefficients, np.concatenate(limits)), pairs
