"""int16 products of pairs of shards: neighbors match a single search for all kinds of rows and splits."""

import pytest
import torch
from int16_rows import kinds, needs_int16, rows

from tensormetrics.retrieval import ShardedKNN, TorchKNN
from tensormetrics.retrieval.search import operators
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.int16.search import Int16Search
from tensormetrics.retrieval.search.ring.int16_pairs import Int16Pairs, QueryRows
from tensormetrics.retrieval.search.ring.normalization import merged_normalization, summarize_rows
from tensormetrics.retrieval.search.ring.symmetric import Neighbors

N = 450
SPLITS = {"two": (250, 200), "ragged": (1, 0, 199, 205, 45), "one": (450,), "three": (100, 200, 150)}


def neighbors_of_shards(x: torch.Tensor, sizes: tuple[int, ...], k: int, memory: int, skips: bool) -> Neighbors:
    """Search each shard in itself, then each pair of shards, as ranks do, and return the merged neighbors."""
    distance, shards = DISTANCES["l2"], x.split(sizes)
    normalization = merged_normalization([summarize_rows(shard, distance) for shard in shards], x)
    max_rows = max(sizes)
    pairs = [
        Int16Pairs(k, distance, normalization, memory, len(shard) // 2 if skips else 0, max_rows) for shard in shards
    ]
    neighbors = [Neighbors.empty(len(shard), k) for shard in shards]
    first = [sum(sizes[:i]) for i in range(len(sizes))]
    for i, shard in enumerate(shards):
        if len(shard):
            pairs[i](QueryRows.of(shard, first[i], neighbors[i]))
    for i, local_rows in enumerate(shards):
        for j in range(i):
            half = len(local_rows) // 2 if skips else 0  # the remote rank multiplies the other half
            for query_shard, remote_rows, skipped in ((i, shards[j], half), (j, local_rows[:half], 0)):
                remote_shard = i + j - query_shard
                if not len(remote_rows) or not len(shards[query_shard]):
                    continue
                block = Neighbors.empty(len(remote_rows), k)
                worst = neighbors[remote_shard].delta[: len(remote_rows), -1].clone()
                queries = QueryRows(
                    shards[query_shard],
                    first[query_shard],
                    neighbors[query_shard],
                    torch.full((len(shards[query_shard]),), torch.inf).double(),
                )
                pairs[query_shard](queries, QueryRows(remote_rows, first[remote_shard], block, worst), skipped)
                operators.merge_nearest(
                    block.delta,
                    block.index.int(),
                    0,
                    neighbors[remote_shard].delta[: len(remote_rows)],
                    neighbors[remote_shard].index[: len(remote_rows)],
                )
    return Neighbors(torch.cat([part.delta for part in neighbors]), torch.cat([part.index for part in neighbors]))


@needs_int16
@pytest.mark.parametrize(
    "kind", kinds("sizes", "one class on one rank", "sorted clusters", "all equal", "half", "bfloat16")
)
def test_neighbors_of_shards_match_single_search(kind, generator, monkeypatch):
    monkeypatch.setattr(Int16Search, "is_faster", staticmethod(lambda *arguments: False))
    for dim, k in ((51, 10), [(130, 3), (48, 16)][len(kind) % 2]):
        x = rows(kind, N, dim, generator)
        expected = TorchKNN("sqeuclidean")(x.double(), k, x.double(), True)
        for name, sizes in SPLITS.items():
            for memory, skips in ((2**28, False), (2**19, True)):
                actual = neighbors_of_shards(x, sizes, k, memory, skips)
                assert torch.equal(actual.index, expected[1]), (dim, k, name, memory)
                assert torch.equal(actual.delta, expected[0])


@needs_int16
def test_int16_pairs_is_effective_matches_kind_of_rows(generator):
    distance = DISTANCES["l2"]
    for kind, is_effective in (("Gaussian", True), ("far from 0", True), ("clusters", False), ("all equal", False)):
        x = rows(kind, N, 64, generator)
        pairs = Int16Pairs(10, distance, merged_normalization([summarize_rows(x, distance)], x), 2**28)
        assert pairs.is_faster(x, 10, 2**28) and pairs.is_effective(x) == is_effective, kind


@needs_int16
def test_int16_pairs_exclude_nearly_all_candidates(generator, monkeypatch):
    """With too many candidates the results would be correct, but the search slow."""
    x, candidates_per_row, rerank = rows("Gaussian", N, 128, generator), [], operators.merge_candidates

    def count_candidates(*arguments):
        candidates_per_row.append(int(arguments[7].sum()) / len(arguments[7]))
        return rerank(*arguments)

    monkeypatch.setattr(operators, "merge_candidates", count_candidates)
    neighbors_of_shards(x, SPLITS["two"], 10, 2**28, False)
    assert len(candidates_per_row) == 4 and max(candidates_per_row) < 100 and max(candidates_per_row[2:]) < 40


@needs_int16
@pytest.mark.parametrize("threads", [1, 3])
def test_neighbors_of_shards_do_not_depend_on_threads(threads, generator):
    x, before = rows("sorted clusters", N, 64, generator), torch.get_num_threads()
    expected = TorchKNN("sqeuclidean")(x.double(), 5, x.double(), True)
    torch.set_num_threads(threads)
    try:
        actual = neighbors_of_shards(x, SPLITS["three"], 5, 2**28, True)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(actual.index, expected[1]) and torch.equal(actual.delta, expected[0])


def test_merge_nearest_sorts_by_distance_and_index(generator):
    delta = torch.randint(0, 4, (50, 7), generator=generator).double().sort(dim=1).values
    index = torch.arange(7).repeat(50, 1)
    other = torch.randint(0, 4, (50, 7), generator=generator).double().sort(dim=1).values
    other[::3, 4:], delta[::4, 2:], index[::4, 2:] = torch.inf, torch.inf, -1
    of_other = torch.arange(7, dtype=torch.int32).repeat(50, 1)
    pairs = [
        sorted(
            [*zip(a, b, strict=True), *((d, n + 3) for d, n in zip(c, range(7), strict=True) if d < torch.inf)],
            key=sort_key,
        )
        for a, b, c in zip(delta.tolist(), index.tolist(), other.tolist(), strict=True)
    ]
    operators.merge_nearest(other, of_other, 3, delta, index)
    assert delta.tolist() == [[d for d, _ in row[:7]] for row in pairs]
    assert index.tolist() == [[n for _, n in row[:7]] for row in pairs]


def sort_key(pair):
    delta, index = pair
    return delta, index if index >= 0 else 2**40


def test_sharded_knn_in_group_of_one_matches_torch_knn(tmp_path, generator):
    x = rows("equal", N, 64, generator)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        actual = ShardedKNN()(x, 4, x, True)
    finally:
        torch.distributed.destroy_process_group()
    for actual_part, expected_part in zip(actual, TorchKNN()(x, 4, x, True), strict=True):
        assert torch.equal(actual_part, expected_part)
