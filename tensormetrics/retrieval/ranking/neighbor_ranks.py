"""Ranks of the nearest references by their labels, where relevant means an equal label."""

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor

from ...core.native import gpu_kernels
from ..inputs import RetrievalInputs
from ..search.direct_search import NOT_FINITE, DirectSearch
from ..search.nearest import NearestSearch
from ..search.references import References
from .positive_ranks import PositiveRanks, count_relevant, ranks_of_neighbors
from .ranking import RankingOptions

LONE, SCORED = 2, 4  # bits of a status word: a query has no relevant reference, or one


def direct_search(inputs: RetrievalInputs, ranking: RankingOptions) -> DirectSearch | None:
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


def can_use_labels(inputs: RetrievalInputs, ranking: RankingOptions) -> bool:
    """Return whether the nearest references and their labels are enough, and found faster than all ranks."""
    if not (len(inputs.query) and len(inputs.reference)) or not _ranks_by_labels(inputs, ranking):
        return False
    return ranking.is_shallow(inputs.reference) or direct_search(inputs, ranking) is not None


def _ranks_by_labels(inputs: RetrievalInputs, ranking: RankingOptions) -> bool:
    has_options = inputs.gains is not None or inputs.ignore is not None or ranking.label_comparison_fn is not None
    is_here = inputs.layout is None and inputs.stream is None
    return not has_options and is_here and ranking.ties == "index" and inputs.query_labels.ndim == 1


@torch.no_grad()
def label_tiles(inputs: RetrievalInputs, ranking: RankingOptions) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
    """Yield parts of the queries with their ranks, of which later ones replace earlier ones; P is the depth."""
    ranks_of = label_ranker(inputs)
    if direct := direct_search(inputs, ranking):
        everything = slice(0, len(inputs.query))
        yield everything, ranks_of(everything, direct.search()[1])._replace(depth=ranking.depth)
        return
    assert ranking.depth is not None  # see `can_use_labels`
    query, reference, self_index = inputs.query, inputs.reference, inputs.self_index()
    memory, k = ranking.memory(query.device), min(ranking.depth, len(reference))
    references, is_leading = References(reference, ranking.order), inputs.all_shared()
    search = NearestSearch(query, self_index, k, references, memory, ranking.exact, is_leading=is_leading)
    for part, nearest in search.tiles(max(memory // (128 * k), 1)):
        yield part, ranks_of(part, nearest)._replace(depth=ranking.depth)


def label_ranker(inputs: RetrievalInputs) -> Callable[[slice | Tensor, Tensor], PositiveRanks]:
    """Return a function of some queries and their neighbors, (q, k) int64, -1 = none, that compares their labels.

    It returns the ranks of the neighbors with equal labels, and notes lone queries in the status.
    """
    query_labels, reference_labels = inputs.query_labels.contiguous(), inputs.reference_labels.contiguous()
    if not gpu_kernels.can_use("neighbor scores", query_labels.device):
        self_index = inputs.self_index()
        is_reference = self_index >= 0
        is_own_match = is_reference & (reference_labels[self_index.clamp(min=0)] == query_labels)
        relevant = count_relevant(query_labels, reference_labels) - is_own_match.long()
        candidates = len(reference_labels) - is_reference.long()
        return lambda part, nearest: ranks_of_neighbors(
            nearest, query_labels[part], reference_labels, relevant[part]
        )._replace(candidates=candidates[part])
    from ..search.kernels import scores

    status, ordered = None if inputs.status is None else inputs.status.word, reference_labels.sort().values

    def ranks_of(part: slice | Tensor, nearest: Tensor) -> PositiveRanks:
        is_first = isinstance(part, slice) and inputs.all_shared()
        own = cast(slice, part).start if is_first else inputs.self_index()[part]
        rows = nearest, query_labels[part], reference_labels, ordered, own
        return PositiveRanks(*scores.matches(*rows, status, (LONE, SCORED, NOT_FINITE)))

    return ranks_of
