"""Which retrieved documents were judged, and at which ranks."""

from dataclasses import dataclass

import numpy as np

from .pairs import Pairs, Qrels, Run


@dataclass(frozen=True)
class Hits:
    """The judged documents of ranked lists, ordered by query and rank, and what a measure wants to know besides.

    Q queries, n hits, J judgements.
    """

    query: np.ndarray  # (n,) in 0..Q-1
    rank: np.ndarray  # (n,) from 1
    gain: np.ndarray  # (n,)
    retrieved: np.ndarray  # (Q,) documents
    judged_query: np.ndarray  # (J,)
    judged_gain: np.ndarray  # (J,)
    level: int  # the least gain that is relevant

    @property
    def queries(self) -> int:
        return len(self.retrieved)

    @property
    def relevant(self) -> np.ndarray:
        # ->  (Q,) relevant documents
        return self.count(self.judged_query[self.judged_gain >= self.level])

    def count(self, queries: np.ndarray) -> np.ndarray:
        # queries: (m,)  ->  (Q,)
        return np.bincount(queries, minlength=self.queries).astype(np.float64)

    def total(self, values: np.ndarray) -> np.ndarray:
        # values: (n,)  ->  (Q,) sums in the order of ranks
        return np.bincount(self.query, values, self.queries).astype(np.float64)  # of nothing it is integers

    def before(self, chosen: np.ndarray) -> np.ndarray:
        # chosen: (n,) bool  ->  (n,) how many chosen ones there are in the query, up to and with this one
        counts = np.cumsum(chosen)
        return counts - (counts - chosen)[np.searchsorted(self.query, self.query)]


def hits_of(run: Run, qrels: Qrels, level: int, complete: bool, judged_only: bool) -> tuple[list[str], Hits]:
    """The queries that are evaluated, in the order of the run, and their hits."""
    number = {query: i for i, query in enumerate(qrels.queries)}
    judged = [query for query in run.queries if query in number]
    if complete:
        judged += [query for query in qrels.queries if query not in set(judged)]
    code = {query: i for i, query in enumerate(judged)}
    of_run = np.array([code.get(query, -1) for query in run.queries], np.int64)
    of_qrels = np.array([code.get(query, -1) for query in qrels.queries], np.int64)
    gain, found = _gains(run, qrels, of_run, of_qrels)
    kept = of_run[run.query] >= 0
    if judged_only:
        kept &= found & (gain >= 0)  # a negative gain is no judgement: not in the pool, or junk
    places = np.flatnonzero(kept)
    places = places[_order(run, of_run, places)]
    query = of_run[run.query[places]]
    retrieved = np.bincount(query, minlength=len(judged))
    rank = np.arange(1, len(places) + 1) - (np.cumsum(retrieved) - retrieved)[query]
    hit = found[places]
    asked = of_qrels[qrels.query] >= 0
    return judged, Hits(
        query[hit],
        rank[hit],
        gain[places[hit]],
        retrieved,
        of_qrels[qrels.query[asked]],
        qrels.value[asked],
        level,
    )


def _gains(run: Run, qrels: Qrels, of_run: np.ndarray, of_qrels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # ->  (n,) gains of the run's documents, (n,) bool: which are judged
    gain, found = np.zeros(len(run), np.int64), np.zeros(len(run), bool)
    low = np.uint64(2 ** min((16 * len(qrels)).bit_length(), 24) - 1)  # bits that most pairs share with no judgement
    judged = np.zeros(int(low) + 1, bool)
    judged[qrels.key & low] = True
    some = np.flatnonzero(judged[run.key & low])
    by_key = some[run.key[some].argsort()]
    keys = run.key[by_key]
    place = keys.searchsorted(qrels.key)
    left = np.flatnonzero((place < len(keys)) & (of_qrels[qrels.query] >= 0))
    while len(left):  # pairs of one key are compared by name; almost always there is one of a key
        left = left[keys[place[left]] == qrels.key[left]]
        other = by_key[place[left]]
        equal = (of_run[run.query[other]] == of_qrels[qrels.query[left]]) & _same_names(run, qrels, other, left)
        found[other[equal]] = True
        gain[other[equal]] = qrels.value[left[equal]]
        left = left[~equal]
        place[left] += 1
        left = left[place[left] < len(keys)]
    return gain, found


def _same_names(a: Pairs, b: Pairs, of_a: np.ndarray, of_b: np.ndarray) -> np.ndarray:
    shared = min(a.document.shape[1], b.document.shape[1])
    same = (a.document[of_a, :shared] == b.document[of_b, :shared]).all(1)
    for side, places in (a, of_a), (b, of_b):
        same &= (side.document[places, shared:] == 0).all(1)
    return same


def _order(run: Run, of_run: np.ndarray, places: np.ndarray) -> np.ndarray:
    # ->  (n,) by query, the highest score first, of equal ones the greater name
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite there, as in trec_eval
        scores = run.value[places].astype(np.float32)
    query = of_run[run.query[places]].astype(np.uint64)
    bits = (scores + np.float32(0)).view(np.int32)  # 0 in place of -0
    ascending = np.where(bits < 0, ~bits, bits | np.int32(-(2**31))).view(np.uint32)  # as the scores are ordered
    key = query << np.uint64(32) | (~ascending).astype(np.uint64)
    order = key.argsort() if (key[1:] < key[:-1]).any() else np.arange(len(key))  # files mostly are in order
    sorted_key = key[order]
    tied = np.flatnonzero(sorted_key[1:] == sorted_key[:-1])
    if len(tied):
        member = np.zeros(len(order), bool)
        member[tied] = member[tied + 1] = True
        members = np.flatnonzero(member)
        group = np.cumsum(np.append(True, sorted_key[members][1:] != sorted_key[members][:-1]))
        names = run.document[places[order[members]]].view(np.uint8)
        keys = _packed([group, *(np.uint8(255) - byte for byte in names.T)])
        order[members] = order[members[keys[0].argsort() if len(keys) == 1 else np.lexsort(keys[::-1])]]
    return order


def _packed(columns: list[np.ndarray]) -> list[np.ndarray]:
    # columns: (n,) unsigned, the first one decides first  ->  (n,) uint64 each, in the same order
    """Few keys that are ordered as the columns are: of bytes that are equal everywhere, as of a prefix, nothing is
    kept, and of others no more bits than their distinct values need."""
    packed, room = [], 0
    for column in columns:
        if column.dtype == np.uint8:
            rank = np.cumsum(np.bincount(column, minlength=256) > 0) - 1
            column, largest = rank.astype(np.uint8)[column], int(rank[-1])
        else:
            largest = int(column.max())
        bits = largest.bit_length()
        if bits > room:
            packed.append(np.zeros(len(column), np.uint64))
            room = 64
        if bits:
            room -= bits
            packed[-1] = packed[-1] << np.uint64(bits) | column.astype(np.uint64)
    return packed
