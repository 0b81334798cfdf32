"""Ranks of the nearest references by their labels, where relevant means an equal label."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ...core.native import gpu_kernels
from ..inputs import RetrievalInputs
from ..relevance import check_label_dtypes
from ..search.direct_search import NOT_FINITE, DirectSearch
from ..search.nearest import NearestSearch
from ..search.references import References
from .positive_ranks import PositiveRanks, count_relevant, ranks_of_neighbors
from .ranking import Ranking

LONE, SCORED = 2, 4  # bits of a status word: a query has no relevant reference, or one


def direct_search(inputs: RetrievalInputs, ranking: Ranking) -> DirectSearch | None:
    """Return the search that ranks all queries by labels of neighbors without waiting for a GPU, if there is one."""
    if ranking.depth is None or not _ranks_by_labels(inputs, ranking):
        return None
    own = 0 if inputs.all_shared() else inputs.query_index if inputs.query_index is not None else inputs.self_index()
    status = None if inputs.status is None else inputs.status.word
    search = DirectSearch(
        inputs.query, inputs.reference, own, min(ranking.depth, len(inputs.reference)), ranking.order,
        ranking.memory(inputs.query.device), status=status,
    )  # fmt: skip
    return search if search.can_run and gpu_kernels.can_use("neighbor scores", inputs.query.device) else None


def can_use_labels(inputs: RetrievalInputs, ranking: Ranking) -> bool:
    """Return whether the nearest references and their labels are enough, and found faster than all ranks."""
    if not (len(inputs.query) and len(inputs.reference)) or not _ranks_by_labels(inputs, ranking):
        return False
    return ranking.is_shallow(len(inputs.reference)) or direct_search(inputs, ranking) is not None


def _ranks_by_labels(inputs: RetrievalInputs, ranking: Ranking) -> bool:
    has_options = inputs.gains is not None or inputs.ignore is not None or ranking.label_comparison_fn is not None
    is_here = inputs.layout is None and inputs.stream is None
    return not has_options and is_here and ranking.ties == "index" and inputs.query_labels.ndim == 1


@torch.no_grad()
def label_tiles(inputs: RetrievalInputs, ranking: Ranking) -> Iterator[tuple[slice, PositiveRanks]]:
    """Yield slices of the queries with their ranks; P is the depth."""
    if direct := direct_search(inputs, ranking):
        indices = direct.search()[1]
        yield slice(0, len(indices)), ranks_of_labels(indices, inputs)._replace(depth=ranking.depth)
        return
    assert ranking.depth is not None  # see `can_use_labels`
    query, reference, self_index = inputs.query, inputs.reference, inputs.self_index()
    memory, k = ranking.memory(query.device), min(ranking.depth, len(reference))
    references, is_leading = References(reference, ranking.order), inputs.all_shared()
    search = NearestSearch(query, self_index, k, references, memory, ranking.exact, is_leading=is_leading)
    rows = max(min(search.rows, memory // (128 * k)), 1)
    relevant, candidates = relevant_of_labels(inputs)
    for start in range(0, len(query), rows):
        tile = slice(start, min(start + rows, len(query)))
        labels = inputs.query_labels[tile], inputs.reference_labels
        ranks = ranks_of_neighbors(search(tile), *labels, relevant[tile])
        yield tile, ranks._replace(candidates=candidates[tile], depth=ranking.depth)


def ranks_of_labels(indices: Tensor, inputs: RetrievalInputs) -> PositiveRanks:
    # indices: (Q, k) int64, -1 = none
    """Return the ranks of the neighbors of all queries whose labels are equal, and note lone queries in the status."""
    labels = check_label_dtypes(inputs.query_labels, inputs.reference_labels)
    if not gpu_kernels.can_use("neighbor scores", indices.device):
        relevant, candidates = relevant_of_labels(inputs)
        return ranks_of_neighbors(indices, *labels, relevant)._replace(candidates=candidates)
    from ..search.kernels import scores

    own = 0 if inputs.all_shared() else inputs.self_index()
    status = None if inputs.status is None else inputs.status.word
    return PositiveRanks(*scores.matches(indices, *labels, own, status, (LONE, SCORED, NOT_FINITE)))


def relevant_of_labels(inputs: RetrievalInputs) -> tuple[Tensor, Tensor]:
    # ->  (Q,), (Q,) int64, the numbers of references with the query's label and of all, without the query itself
    labels = query_labels, reference_labels = check_label_dtypes(inputs.query_labels, inputs.reference_labels)
    self_index = inputs.self_index()
    is_reference = self_index >= 0
    is_own_match = is_reference & (reference_labels[self_index.clamp(min=0)] == query_labels)
    return count_relevant(*labels) - is_own_match.long(), len(reference_labels) - is_reference.long()
