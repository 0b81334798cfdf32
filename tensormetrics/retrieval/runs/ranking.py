"""Rows of a run and its judgements in order of rank."""

import numpy as np
import torch

from .pairs import Qrels, QueryDocuments, Run
from .ranks import RankedRows


def ranked_rows(run: Run, qrels: Qrels, complete: bool, judged_only: bool) -> tuple[list[str], RankedRows]:
    """Return the queries that are evaluated, in the order of the run, and their judged documents."""
    with_judgements = {*qrels.queries}
    names = [name for name in run.queries if name in with_judgements]
    if complete:
        names = [*dict.fromkeys([*names, *qrels.queries])]
    code = {name: i for i, name in enumerate(names)}
    run_query, query = (
        np.array([code.get(name, -1) for name in pairs.queries], np.int64)[pairs.query] for pairs in (run, qrels)
    )
    found = _found(run, qrels, run_query, query)
    if judged_only:
        found[qrels.value < 0] = -1  # a negative gain is no judgement: not in the pool, or junk
        is_kept = np.zeros(len(run), bool)
        is_kept[found[found >= 0]] = True
        run_query[~is_kept] = -1
    rank = np.zeros(len(qrels), np.int64)
    rank[found >= 0], retrieved = _ranks(run, run_query, found[found >= 0], len(names))
    rows = np.flatnonzero(query >= 0)
    rows = rows[np.lexsort(((rank[rows] - 1).view(np.uint64), query[rows]))]  # 0, not retrieved, is the last
    query = query[rows]
    counts = np.bincount(query, minlength=len(names))
    position = np.arange(1, len(rows) + 1) - (np.cumsum(counts) - counts)[query]
    tensor = torch.from_numpy
    columns = tensor(query), tensor(rank[rows]), tensor(qrels.value[rows]), tensor(position)
    return names, RankedRows(*columns, len(names), tensor(retrieved), int(counts.max(initial=0)))


def _found(run: Run, qrels: Qrels, run_query: np.ndarray, query: np.ndarray) -> np.ndarray:
    # run_query: (n,)  query: (m,), -1 for queries that are not evaluated  ->  (m,)
    """Return the index in the run of each judged document, -1 for those that it lacks."""
    found = np.full(len(qrels), -1)
    digits = np.uint64(64 - min((16 * len(qrels)).bit_length(), 24))  # the others exclude most unjudged documents
    is_judged = np.zeros(2 ** (64 - int(digits)), bool)
    is_judged[qrels.key >> digits] = True
    candidates = np.flatnonzero(is_judged[run.key >> digits])
    by_key = candidates[run.key[candidates].argsort()]
    keys = run.key[by_key]
    position = keys.searchsorted(qrels.key)
    remaining = np.flatnonzero((position < len(keys)) & (query >= 0))
    while len(remaining):  # pairs of equal keys are compared by name; keys are almost always unique
        remaining = remaining[keys[position[remaining]] == qrels.key[remaining]]
        other = by_key[position[remaining]]
        equal = (run_query[other] == query[remaining]) & _same_names(run, qrels, other, remaining)
        found[remaining[equal]] = other[equal]
        remaining = remaining[~equal]
        position[remaining] += 1
        remaining = remaining[position[remaining] < len(keys)]
    return found


def _same_names(a: QueryDocuments, b: QueryDocuments, of_a: np.ndarray, of_b: np.ndarray) -> np.ndarray:
    shared = min(a.document.shape[1], b.document.shape[1])
    same = (a.document[of_a, :shared] == b.document[of_b, :shared]).all(1)
    for pairs, rows in (a, of_a), (b, of_b):
        same &= (pairs.document[rows, shared:] == 0).all(1)
    return same


def _ranks(run: Run, query: np.ndarray, wanted: np.ndarray, queries: int) -> tuple[np.ndarray, np.ndarray]:
    # query: (n,), -1 for documents that are not ranked  wanted: (m,) indices  ->  (m,), (queries,)
    """Return ranks of wanted documents, and how many each query has: by score, at equal scores by the greater name."""
    ranked = np.flatnonzero(query >= 0)
    of_ranked = query[ranked]
    with np.errstate(over="ignore"):  # values above the range of float32 are infinite, as in trec_eval
        bits = np.subtract(0, run.value[ranked], dtype=np.float32).view(np.int32)  # 0 for -0, too
    key = (of_ranked << 32) + (bits ^ (bits >> 31 & 0x7FFFFFFF))  # integers in the order of the numbers
    if (key[1:] < key[:-1]).any():  # most files are sorted
        order = key.argsort()
        ranked, key = ranked[order], key[order]
    place = np.empty(len(query), np.int64)
    place[ranked] = np.arange(len(ranked))
    tied = key[place[wanted]]  # names matter in groups of equal keys that have a wanted document
    first, last = (np.unique(key.searchsorted(tied, side)) for side in ("left", "right"))
    first, size = first[last - first > 1], (last - first)[last - first > 1]
    if len(first):
        members = np.arange(size.sum()) + np.repeat(first - (np.cumsum(size) - size), size)
        group = np.repeat(first, size).astype(np.uint64).byteswap()  # the first byte is the highest, as in names
        keys = np.column_stack([group, ~run.document[ranked[members]]])
        order = keys.view(f"S{8 * keys.shape[1]}")[:, 0].argsort()
        place[ranked[members[order]]] = members
    retrieved = np.bincount(of_ranked, minlength=queries)
    return place[wanted] + 1 - (np.cumsum(retrieved) - retrieved)[query[wanted]], retrieved
