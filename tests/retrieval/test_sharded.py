"""ShardedKNN on several ranks returns the results of one process with all references, bit for bit."""

import pytest
import torch
from rank_processes import rows_besides

from tensormetrics.retrieval import ShardedKNN, TorchKNN
from tensormetrics.retrieval.search.distance import DISTANCES

N = 30
# Members of the group, and the number of rows of each member.
SPLITS = [((0, 1, 2), (2, 17, 11)), ((0, 1, 2), (16, 0, 14)), ((1, 2), (7, 23)), ((1, 2), (0, 30))]


def families():
    generator = torch.Generator().manual_seed(3)
    gaussian = torch.randn(N, 6, generator=generator)
    pick = torch.randint(0, 3, (N,), generator=generator)
    return {
        "gaussian": gaussian,
        "bfloat16": gaussian.bfloat16(),
        "float64": gaussian.double(),
        "integers": pick[:, None] - 1,
        "three distinct points": gaussian[pick],
        "all equal": gaussian[:1].repeat(N, 1),
        "some zero rows": gaussian * (torch.arange(N) % 4 > 0)[:, None],
        "large common mean": gaussian + 1e4,
        "one dimension": gaussian[:, :1],
        "strided": gaussian.T.contiguous().T,
        "not finite": gaussian.masked_fill(torch.eye(N, 6).roll(9, 0) > 0, torch.nan).index_fill(
            0, pick[:1] + 3, torch.inf
        ),
    }


def searches():
    """Yield label, distance, memory budget, query, k, reference, ref_includes_query, options for rows of all ranks."""
    for i, (family, rows) in enumerate(families().items()):
        # Test all distances on the first family and on the one with the most ties, else one distance per family.
        uses_all_distances = family in ("gaussian", "three distinct points")
        for distance in DISTANCES if uses_all_distances else (list(DISTANCES)[i % 4],):
            yield f"{family}, {distance}", distance, 20_000, rows, 12, rows, True, {}
        for memory in (None, 2_000):  # k is small enough for the symmetric search
            yield f"{family}, k=2, memory {memory}", "l2", memory, rows, 2, rows, True, {}
        yield f"{family}, k=40", "ip", None, rows, 40, rows, True, {}
        yield f"{family}, references", "l2", None, rows.flip(1), 1, rows, False, {}
    for family in ("gaussian", "three distinct points"):
        yield f"{family}, few pairs at a time", "l2", 2_000, families()[family], 12, families()[family], True, {}
    equal, self_index = families()["all equal"], torch.arange(N).roll(9)
    yield "self_index", "l2", None, equal, 5, equal, False, {"self_index": self_index.where(self_index > 3, -1)}
    yield "no references", "ip", None, equal, 3, equal[:0], False, {}

    ignored, rows = torch.rand(N, N, generator=torch.Generator().manual_seed(4)) < 0.6, families()["gaussian"]
    yield "ignore", "l2", None, rows, 9, rows, True, {"ignore": ignored}
    for family in ("integers", "some zero rows"):
        rows = families()[family].double()
        yield f"{family}, function", manhattan, None, rows, 12, rows, True, {"ignore": ignored}
        yield f"{family}, function, largest first", smallest_last, None, rows, 4, rows, True, {}


def manhattan(query, reference):
    return (query[:, None] - reference).abs().sum(-1)


def smallest_last(query, reference):
    return -manhattan(query, reference)


smallest_last.largest = True


def shard(rows, sizes, rank):
    return rows.split(sizes)[rank] if rows is not None and len(rows) else rows


def results_of(rank, pair):
    results = {}
    for members, sizes in SPLITS:
        if rank not in members:
            continue
        index_in_group, group = members.index(rank), pair if len(members) == 2 else None
        for label, distance, memory, query, k, reference, includes, options in searches():
            local_query, local_reference = (shard(rows, sizes, index_in_group) for rows in (query, reference))
            options = {name: shard(rows, sizes, index_in_group) for name, rows in options.items()}
            knn = ShardedKNN(group, TorchKNN(distance, memory_budget=memory))
            results[sizes, label] = knn(local_query, k, local_reference, includes, **options)
    results["idle"] = idle_rank(rank)
    results["errors"] = errors(rank)
    results["held"] = extra_rows_held()
    return results


def idle_rank(rank: int):
    rows = torch.arange(8.0, dtype=torch.float64).view(4, 2) if rank == 1 else torch.empty(0)
    return ShardedKNN()(rows, 2, rows, True)


def errors(rank: int) -> list[str]:
    rows, knn, failing = torch.zeros(3, 2), ShardedKNN(), ShardedKNN()
    narrow = rows[:, :1] if rank == 1 else rows

    def failing_search(*args, **kwargs):
        raise MemoryError("no room")

    if rank == 1:
        failing.knn.indices = failing.knn.search = failing_search
    messages = []
    for call in (
        lambda: knn(rows, 0 if rank == 1 else 2, rows, True),
        lambda: knn(narrow, 1, rows, False),
        lambda: knn(narrow, 1, narrow, False),
        lambda: knn(rows, 1, rows.double() if rank == 1 else rows, False),
        lambda: failing(rows, 1, rows, True),
        lambda: knn(rows, 1, rows, True, ignore=torch.zeros(3, 3 if rank == 1 else 9, dtype=torch.bool)),
    ):
        with pytest.raises(Exception) as error:  # noqa: B017
            call()
        messages.append(f"{error.type.__name__}: {error.value}")
        assert knn(rows, 1, rows, True)[1].shape == (3, 1)  # the ranks are still synchronized
    return messages


def extra_rows_held() -> list[int]:
    """Count, at each search of a block, the rows of all tensors of the references' width except the local rows."""
    rows, counts = torch.zeros(20, 97), []

    class Watched(TorchKNN):
        def indices(self, *args, **kwargs):
            counts.append(rows_besides(len(rows), 97))
            return super().indices(*args, **kwargs)

    ShardedKNN(knn=Watched("ip"))(rows, 1, rows, True)
    return counts


@pytest.mark.parametrize(("members", "sizes"), SPLITS, ids=str)
def test_sharded_knn_matches_single_process(ranks, members, sizes):
    for label, distance, _, query, k, reference, includes, options in searches():
        single = TorchKNN(distance)(query, k, reference, includes, **options)
        shards = zip(*(ranks[member][sizes, label] for member in members), strict=True)
        for actual, expected in zip(map(torch.cat, shards), single, strict=True):
            assert actual.dtype == expected.dtype and torch.equal(actual, expected), label


def test_sharded_knn_idle_ranks_return_empty_results(ranks):
    for rank in (0, 2):
        distances, indices = ranks[rank]["idle"]
        assert distances.shape == indices.shape == (0, 2)
        assert distances.dtype == torch.float64 and indices.dtype == torch.int64
    assert ranks[1]["idle"][1].tolist() == [[1, 2], [0, 2], [1, 3], [2, 1]]


def test_sharded_knn_errors_are_raised_on_all_ranks(ranks):
    messages_of_rank_1 = [
        "ValueError: k: got 0, wanted an integer >= 1",
        "ValueError: query and reference: got shapes (3, 1) and (3, 2), wanted the same number of columns",
        "MemoryError: no room",
        "ValueError: ignore: got shape (3, 3), wanted (3, 9)",
    ]
    got = "query (3, 2) torch.float32 and reference (3, 2) torch.float32 on rank"
    common_messages = [
        f"ValueError: query and reference: got {got} 0; {other} on rank 1; {got} 2; "
        "wanted one number of columns and one dtype of each"
        for other in (
            "query (3, 1) torch.float32 and reference (3, 1) torch.float32",
            "query (3, 2) torch.float32 and reference (3, 2) torch.float64",
        )
    ]
    messages_of_others = [f"RuntimeError: rank 1 failed with {message}" for message in messages_of_rank_1]
    assert ranks[1]["errors"] == [*messages_of_rank_1[:2], *common_messages, *messages_of_rank_1[2:]]
    assert (
        ranks[0]["errors"] == ranks[2]["errors"] == [*messages_of_others[:2], *common_messages, *messages_of_others[2:]]
    )


def test_sharded_knn_holds_two_remote_blocks_at_a_time(ranks):
    for rank in ranks:
        assert rank["held"] == [40, 40, 40]  # the current and the next block


def test_sharded_knn_with_custom_function_is_rejected():
    message = "knn: got a builtin_function_or_method, wanted a TorchKNN, whose order can be merged"
    with pytest.raises(TypeError, match=f"^{message}$"):
        ShardedKNN(knn=len)
