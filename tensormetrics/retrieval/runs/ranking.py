"""Rows of a run and its judgements in order of rank."""

import re

import numpy as np
import torch

from .pairs import Qrels, QueryDocuments, Run
from .ranks import RankedRows


def ranked_rows(run: Run, qrels: Qrels, complete: bool, judged_only: bool) -> tuple[list[str], RankedRows]:
    """Return the queries that are evaluated, in the order of the run, and their judged documents."""
    qrels_index = {query: i for i, query in enumerate(qrels.queries)}
    judged = [query for query in run.queries if query in qrels_index]
    if complete:
        judged += [query for query in qrels.queries if query not in set(judged)]
    code = {query: i for i, query in enumerate(judged)}
    run_query = np.array([code.get(query, -1) for query in run.queries], np.int64)
    qrels_query = np.array([code.get(query, -1) for query in qrels.queries], np.int64)
    gain, is_judged, is_missed = _gains(run, qrels, run_query, qrels_query)
    is_ranked = run_query[run.query] >= 0
    if judged_only:
        is_ranked &= is_judged & (gain >= 0)  # a negative gain is no judgement: not in the pool, or junk
    documents = np.flatnonzero(is_ranked)
    documents = documents[_order(run, run_query, documents)]
    query = run_query[run.query[documents]]
    retrieved = np.bincount(query, minlength=len(judged))
    rank = np.arange(1, len(documents) + 1) - (np.cumsum(retrieved) - retrieved)[query]
    # Judged documents that are not ranked come last: those that the run lacks, and those that were removed.
    hit, missed, removed = is_judged[documents], np.flatnonzero(is_missed), np.flatnonzero(is_judged & ~is_ranked)
    removed = removed[run_query[run.query[removed]] >= 0]
    queries = np.concatenate([query[hit], qrels_query[qrels.query[missed]], run_query[run.query[removed]]])
    gains = np.concatenate([gain[documents[hit]], qrels.value[missed], gain[removed]])
    ranks = np.concatenate([rank[hit], np.zeros(len(missed) + len(removed), np.int64)])
    order = queries.argsort(kind="stable")
    counts = np.bincount(queries, minlength=len(judged))
    position = np.arange(1, len(queries) + 1) - (np.cumsum(counts) - counts)[queries[order]]
    query, rank, gain, position, retrieved = map(
        torch.from_numpy, (queries[order], ranks[order], gains[order], position, retrieved)
    )
    return judged, RankedRows(query, rank, gain, position, len(judged), retrieved, int(counts.max(initial=0)))


def _gains(run: Run, qrels: Qrels, run_query: np.ndarray, qrels_query: np.ndarray) -> tuple[np.ndarray, ...]:
    # ->  (n,) gains of the documents of the run, (n,) bool: judged documents, (m,) bool: judgements of no document
    gain, is_judged = np.zeros(len(run), np.int64), np.zeros(len(run), bool)
    is_missed = qrels_query[qrels.query] >= 0
    low = np.uint64(2 ** min((16 * len(qrels)).bit_length(), 24) - 1)  # bits that exclude most unjudged pairs
    judged = np.zeros(int(low) + 1, bool)
    judged[qrels.key & low] = True
    candidates = np.flatnonzero(judged[run.key & low])
    by_key = candidates[run.key[candidates].argsort()]
    keys = run.key[by_key]
    position = keys.searchsorted(qrels.key)
    remaining = np.flatnonzero((position < len(keys)) & (qrels_query[qrels.query] >= 0))
    while len(remaining):  # pairs of equal keys are compared by name; keys are almost always unique
        remaining = remaining[keys[position[remaining]] == qrels.key[remaining]]
        other = by_key[position[remaining]]
        equal = (run_query[run.query[other]] == qrels_query[qrels.query[remaining]]) & _same_names(
            run, qrels, other, remaining
        )
        is_judged[other[equal]] = True
        gain[other[equal]] = qrels.value[remaining[equal]]
        is_missed[remaining[equal]] = False
        remaining = remaining[~equal]
        position[remaining] += 1
        remaining = remaining[position[remaining] < len(keys)]
    return gain, is_judged, is_missed


def _same_names(a: QueryDocuments, b: QueryDocuments, of_a: np.ndarray, of_b: np.ndarray) -> np.ndarray:
    shared = min(a.document.shape[1], b.document.shape[1])
    same = (a.document[of_a, :shared] == b.document[of_b, :shared]).all(1)
    for pairs, rows in (a, of_a), (b, of_b):
        same &= (pairs.document[rows, shared:] == 0).all(1)
    return same


def _order(run: Run, run_query: np.ndarray, documents: np.ndarray) -> np.ndarray:
    # ->  (n,) by query, the highest score first, at equal scores the greater name
    with np.errstate(over="ignore"):  # values above the range of float32 are infinite, as in trec_eval
        scores = run.value[documents].astype(np.float32)
    query = run_query[run.query[documents]].astype(np.uint64)
    bits = (scores + np.float32(0)).view(np.int32)  # converts -0 to 0
    ascending = np.where(bits < 0, ~bits, bits | np.int32(-(2**31))).view(np.uint32)  # same order as the scores
    key = query << np.uint64(32) | (~ascending).astype(np.uint64)
    order = key.argsort() if (key[1:] < key[:-1]).any() else np.arange(len(key))  # most files are sorted
    sorted_key = key[order]
    is_tied = np.append(False, sorted_key[1:] == sorted_key[:-1])  # with the entry before
    if is_tied.any():
        members = np.flatnonzero(is_tied | np.append(is_tied[1:], False))
        group = np.cumsum(~is_tied)[members].astype(np.uint64)
        names = run.document[documents[order[members]]].byteswap()  # as numbers they have the order of the bytes
        keys = _pack_keys([group, *~names.T])
        order[members] = order[members[keys[0].argsort() if len(keys) == 1 else np.lexsort(keys[::-1])]]
    return order


def _pack_keys(columns: list[np.ndarray]) -> list[np.ndarray]:
    # columns: (n,) uint64, the first one is the primary key  ->  (n,) uint64 each, in the same order
    """Pack sort keys into few columns, with the same order: bits that are equal everywhere are dropped."""
    packed, free_bits = [], 0
    for column in columns:
        for run in re.finditer("1+", f"{int(np.bitwise_or.reduce(column ^ column[0])):064b}"):
            bits, below = run.end() - run.start(), 64 - run.end()
            part = column >> np.uint64(below) & np.uint64(2**bits - 1)
            if bits > free_bits:
                packed.append(part)
                free_bits = 64
            else:
                packed[-1] = packed[-1] << np.uint64(bits) | part
            free_bits -= bits
    return packed
