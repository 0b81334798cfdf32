"""What Triton kernels write, in torch on a CPU."""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from tensormetrics.association.resampling import draws, permutation
from tensormetrics.retrieval.clusters import mutual_info
from tensormetrics.retrieval.clusters.contingency import Contingency
from tensormetrics.retrieval.deterministic import class_parts, halving_sum, sum_by_position
from tensormetrics.retrieval.ranking import rank_counts
from tensormetrics.retrieval.ranking.ranking import TIES, RankingOptions
from tensormetrics.retrieval.scores import query_metric
from tensormetrics.retrieval.search.distance import DISTANCES

CANONICAL = [next(distance for distance in DISTANCES.values() if distance.code == code) for code in range(3)]


class Kernel:
    """A kernel that has a name only."""

    def __init__(self, function: Callable) -> None:
        self.__name__ = function.__name__
        code = function.__code__
        self.arg_names = code.co_varnames[: code.co_argcount]


def import_kernels() -> None:
    """Import the modules of kernels with a stand-in for Triton that defines kernels but runs none."""
    triton = ModuleType("triton")
    triton.jit = lambda function=None, **_: Kernel(function) if function else Kernel
    triton.cdiv = lambda a, b: -(-a // b)
    triton.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
    triton.language = mock.MagicMock()
    with mock.patch.dict(sys.modules, {"triton": triton, "triton.language": triton.language}):
        for name in ("canonical", "nearest", "prepare", "counting", "direct", "scores", "finish", "clusters", "assign"):
            importlib.import_module(f"tensormetrics.retrieval.search.kernels.{name}")
        importlib.import_module("tensormetrics.association.resampling.kernels")


def units(scores, units, grid, is_finite, *_, **__) -> None:
    for out, expected in zip((units, grid, is_finite), permutation._units(scores), strict=True):
        out.copy_(expected)


def partitions(n, size, out, offset, start, rows, num_positions, **_) -> None:
    out.copy_(draws.random_partitions(offset, n, size, num_positions, start, rows))


def signs(out, offset, start, size, pairs, **_) -> None:
    out.copy_(draws.random_signs(offset, pairs, start, size // pairs, torch.device("cpu")))


def write_digits(
    units, first, last, digits, bounds_of_upper, below, undecided, batch, num_positions, padding, tests, size, sign, **_
) -> None:  # fmt: skip
    # The upper four bytes of `start` and `rest` hold minus the bound; digits as they are, so `count` decides all.
    row, is_first = torch.arange(tests) % size, torch.arange(tests) < size
    row, sign = row.clamp(max=batch - 1), torch.where(is_first, sign, -1)
    low = sign * torch.where(is_first, first[row], last[row])
    digits.zero_()[:, :, :num_positions] = (
        ((sign[:, None] * units[row]) + 0x808080808080 ^ 0x808080808080)
        .view(torch.int8)
        .unflatten(-1, (num_positions, 8))
        .permute(2, 0, 1)[:6]
    )
    bounds_of_upper[0], bounds_of_upper[2] = -low >> 24, -low & 0xFFFFFF
    below.copy_(padding * (low <= 0))


def count(masks, digits, start, threshold, num_below, undecided, tests, *_, **__) -> None:
    values = sum(digit.double() * 256**n for n, digit in enumerate(digits))
    rest = torch.as_strided(start, start.shape, start.stride(), start.storage_offset() + 2 * tests)
    num_below += (values @ masks.double().mT + (start.double() * 2**24 + rest)[:, None] < 0).sum(1)


def recount_undecided(*_, **__) -> None:
    """`count` has decided all."""


def transposed(x, row, step, table, status, count, dim, pitch, flag, **options: Any) -> None:
    table.zero_()[:, :, :count] = x.view(len(table), count, dim).mT
    if options["HAS_STATUS"] and not x.isfinite().all():
        status[0] |= flag


def bounds(x, x_pitch, y, y_pitch, self_index, first, ignored, row, step, lower, minima, queries, size, *_, **options):
    # As a bound of each pair whether it is excluded; `nearest` computes all distances.
    column = torch.arange(y_pitch)
    excluded = (column >= size).expand(lower.shape).clone()
    if options["IS_SELF"]:
        excluded |= torch.arange(first, first + queries).repeat(len(x))[:, None] == column
    if options["HAS_SELF"]:
        excluded |= self_index[:, None] == column
    if options["HAS_MASK"]:
        excluded[:, :size] |= ignored.bool()
    lower.zero_().masked_fill_(excluded, torch.nan)


def of_all_pairs(kind: int, query: Tensor, reference: Tensor) -> Tensor:
    return CANONICAL[kind].of_lists(query, reference, torch.arange(len(reference)).expand(len(query), -1), 2**26)


def nearest(
    query, q_row, q_step, reference, r_row, r_step, lower, minima, listed, best_delta, best, distances, indices,
    queries, size, dim, pitch, k, width, **options: Any,
) -> None:  # fmt: skip
    items = zip(query.split(queries), reference.split(size), strict=True)
    delta = torch.cat([of_all_pairs(options["KIND"], *rows) for rows in items])
    delta = delta.masked_fill(delta.isnan() | lower[:, :size].isnan(), torch.inf)
    found, order = delta.sort(dim=1, stable=True)
    indices.fill_(-1)[:, :k] = order.masked_fill(found == torch.inf, -1)[:, :k]
    if options["HAS_DISTANCES"]:
        found = found.sqrt() if options["IS_ROOT"] else -found if options["KIND"] == 1 else found
        distances.fill_(-torch.inf if options["KIND"] == 1 else torch.inf)[:, :k] = found[:, :k]


center = lengths = sizes = references = queries = block_minima = sample = select_blocks = lambda *_, **__: None
collect = collect_from_blocks = assign = center  # `finish` and `recheck` compute all distances


def recheck(query, q_row, q_step, reference, r_row, r_step, *others, **options: Any) -> None:
    delta = of_all_pairs(0, query, reference)
    others[6].copy_(delta.masked_fill(delta.isnan(), torch.inf).min(1).indices)


def finish(query, q_row, q_step, reference, *others, **options: Any) -> None:
    self_index, found, is_proven, k = others[8], others[15], others[16], others[-1]
    delta = of_all_pairs(options["KIND"], query, reference)
    delta = delta.masked_fill(delta.isnan() | (torch.arange(len(reference)) == self_index[:, None]), torch.inf)
    smallest, order = delta.sort(dim=1, stable=True)
    found.copy_(order.masked_fill(smallest == torch.inf, -1)[:, :k])
    is_proven.fill_(1)


def sort_positives(query, q_row, q_step, reference, r_row, r_step, index, listed, deltas, *others, **options: Any):
    counter = _counter(query, query.new_zeros(len(query)).long(), reference, options)
    for out, found in zip(others[:2], counter._measure_positives(query, index, None, index.shape[1])[:2], strict=True):
        out.copy_(found)
    others[2].copy_((others[0] < torch.inf).sum(1))


def _counter(query: Tensor, self_index: Tensor, reference: Tensor, options: dict[str, Any]) -> rank_counts.RankCounter:
    ranking = RankingOptions(ties=TIES[options.get("TIES", 0)], distance=CANONICAL[options["KIND"]].name)
    return rank_counts.RankCounter(query, self_index, reference, ranking)


intervals = center


def count_below(*arguments: Any, **_: Any) -> None:
    # Lists the query itself as undecided entry of each row; `place_undecided` counts all other references.
    self_index, (_, position, _, num_undecided, queries, *_) = arguments[3], arguments[9:]
    position[:queries], num_undecided[0] = self_index, queries


def place_undecided(
    query, q_row, q_step, reference, r_row, r_step, order, row, position, values, num_undecided, low, delta, positive,
    relevant, before, *_, **options: Any,
) -> None:  # fmt: skip
    own = position[: len(query)].long()
    queries = rank_counts.RankQueries(query, own, None, delta, positive, relevant)
    before.copy_(_counter(query, own, reference, options).before(queries))


def cluster_sums(
    x, row, step, ordered, order, previous, units, sums, counts, status, rows, clusters, dim, **options: Any
) -> None:  # fmt: skip
    owner = torch.empty_like(order).scatter_(0, order, ordered)
    counts.copy_(owner.bincount(minlength=clusters))
    sums.copy_(class_parts(x, owner, clusters, units))
    status[0] |= options["EMPTY"] * int((counts == 0).any()) | options["CHANGED"] * int((owner != previous).any())


def information(row, col, count, row_size, col_size, sums, cells, total, **_) -> None:
    table = Contingency(*(x[None] for x in (row, col, count, row_size, col_size)), total)
    sums.zero_()[0] = torch.cat(mutual_info._information(table))


def expected_information(row_size, col_size, log_factorial, expected, *_, **__) -> None:
    table = Contingency(row_size, row_size, row_size, row_size, col_size, len(log_factorial) - 1)
    expected.zero_()[0] = mutual_info.expected_mutual_info(table)


def canonical(query, q_row, q_step, reference, r_row, r_step, row, column, delta, pairs, width, *_, **options: Any):
    row = row if options["HAS_ROW"] else torch.arange(pairs) // width
    found = CANONICAL[options["KIND"]].of_pairs(query, reference, row, column.clamp(min=0), 2**26)
    delta.copy_(found.masked_fill(column < 0, torch.inf))


def matches(
    indices, query_labels, reference_labels, ordered, self_index, rank, relevant, candidates, status, queries, size, k,
    first, **options: Any,
) -> None:  # fmt: skip
    own = torch.arange(first, first + queries) if options["IS_SELF"] else self_index
    match = (indices >= 0) & (reference_labels[indices.clamp(min=0)] == query_labels[:, None])
    rank.copy_(match * torch.arange(1, k + 1))
    equal = query_labels[:, None] == reference_labels
    relevant.copy_((equal & (torch.arange(size) != own[:, None])).sum(1))
    candidates.copy_(size - (own >= 0).long())
    if options["HAS_STATUS"]:
        status[0] |= options["LONE"] * int((relevant == 0).any()) | options["SCORED"] * int((relevant > 0).any())
        status[1] = relevant.max()
        if not (query_labels.isfinite().all() and ordered.isfinite().all()):
            status[0] |= options["NOT_FINITE"]


def rank_scores(rank, divisor, terms, ideal, gain, best, scores, size, depth, num_best, **options: Any) -> None:
    is_hit, is_precision = (rank > 0) & (rank <= depth), options["IS_PRECISION"]
    order = is_hit.cumsum(-1)
    value = order.double() / rank if is_precision else terms[rank * is_hit] * (gain if options["HAS_GAIN"] else 1.0)
    total = divisor if is_precision else ideal[divisor.clamp(max=depth)]
    total = halving_sum(best * terms[1 : 1 + num_best]) if options["HAS_GAIN"] else total
    scores.copy_(sum_by_position(value, order * is_hit) / total)


def means(scores, relevant, codes, result, queries, classes, **options: Any) -> None:
    of = query_metric.Classes(codes, relevant, "zero" if options["ZERO"] else "exclude")
    found = query_metric.means(scores, of, options["HAS_CODES"])
    if options["HAS_CODES"]:
        result.zero_()[:, 3] = 1
    (result[:, 0] if options["HAS_CODES"] else result).copy_(found)
