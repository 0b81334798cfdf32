"""Products of words of two sets of rows: the neighbours in each other, whatever the rows and however they are split."""

import pytest
import torch

from tensormetrics import _native
from tensormetrics.retrieval import ShardedKNN, TorchKNN
from tensormetrics.retrieval.search import operators
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.int16.search import Int16Search
from tensormetrics.retrieval.search.ring.int16_pairs import Int16Pairs, QueryRows
from tensormetrics.retrieval.search.ring.normalization import merged_normalization, summarize_rows
from tensormetrics.retrieval.search.ring.symmetric import Neighbors

N = 450
SHARES = {"two": (250, 200), "ragged": (1, 0, 199, 205, 45), "one": (450,), "three": (100, 200, 150)}
needs_words = pytest.mark.skipif(
    not _native.has_kernel("multiplies_words", "cpu") or not operators.multiplies_words(torch.zeros(1)),
    reason="this processor does not multiply words",
)


def rows(kind: str, dim: int, generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(N, dim, generator=generator)
    if kind == "far from 0":
        x += 100
    if kind == "sizes":
        x *= 10.0 ** torch.randint(-15, 16, (N, 1), generator=generator)
    if kind == "outliers":
        x[::50] *= 30
        x[:, 3] *= 20
    if kind == "clusters":
        x = 10 * x[torch.arange(N) % 3] + 0.01 * x
    if kind == "sorted clusters":
        x = 3 * x[torch.arange(N) * 10 // N] + x
    if kind == "equal":
        x = x[torch.randint(0, 40, (N,), generator=generator)]
    if kind == "all equal":
        x = x[:1].repeat(N, 1)
    if kind == "one class on one rank":
        x[: N // 3] = x[0] + 1e-3 * x[: N // 3]
    if kind == "not finite":
        x[5, 1], x[70, 0], x[N - 1] = torch.nan, torch.inf, -torch.inf
    if kind == "tiny":
        x *= 1e-30
        x[9] = 0
    if kind == "whole numbers":
        x = (2 * x).round().clamp(-1, 1)
    return x.half() if kind == "half" else x.bfloat16() if kind == "bfloat16" else x


KINDS = ["Gaussian", "far from 0", "sizes", "outliers", "clusters", "sorted clusters", "equal", "all equal"]
KINDS += ["one class on one rank", "not finite", "tiny", "whole numbers", "half", "bfloat16"]


def of_shares(x: torch.Tensor, sizes: tuple[int, ...], k: int, memory: int, skips: bool) -> Neighbors:
    """As ranks do: each share in itself, then each pair of shares; what they find."""
    distance, shares = DISTANCES["l2"], x.split(sizes)
    frame = merged_normalization([summarize_rows(share, distance) for share in shares], x)
    most = max(sizes)
    pairs = [Int16Pairs(k, distance, frame, memory, len(share) // 2 if skips else 0, most) for share in shares]
    known = [Neighbors.empty(len(share), k) for share in shares]
    first = [sum(sizes[:i]) for i in range(len(sizes))]
    for i, share in enumerate(shares):
        if len(share):
            pairs[i](QueryRows.of(share, first[i], known[i]))
    for i, own in enumerate(shares):
        for j in range(i):
            cut = len(own) // 2 if skips else 0  # the other half is multiplied by the other rank
            for here, of, skipped in ((i, shares[j], cut), (j, own[:cut], 0)):
                there = i + j - here
                if not len(of) or not len(shares[here]):
                    continue
                block = Neighbors.empty(len(of), k)
                worst = known[there].delta[: len(of), -1].clone()
                sides = QueryRows(
                    shares[here], first[here], known[here], torch.full((len(shares[here]),), torch.inf).double()
                )
                pairs[here](sides, QueryRows(of, first[there], block, worst), skipped)
                operators.merge_nearest(
                    block.delta, block.index.int(), 0, known[there].delta[: len(of)], known[there].index[: len(of)]
                )
    return Neighbors(torch.cat([each.delta for each in known]), torch.cat([each.index for each in known]))


@needs_words
@pytest.mark.parametrize("kind", KINDS)
def test_shares_find_what_one_search_finds(kind, generator, monkeypatch):
    monkeypatch.setattr(Int16Search, "is_faster", staticmethod(lambda *arguments: False))
    for dim, k in ((51, 10), [(130, 3), (48, 16)][KINDS.index(kind) % 2]):
        x = rows(kind, dim, generator)
        wanted = TorchKNN("sqeuclidean")(x.double(), k, x.double(), True)
        for name, sizes in SHARES.items():
            for memory, skips in ((2**28, False), (2**19, True)):
                found = of_shares(x, sizes, k, memory, skips)
                assert torch.equal(found.index, wanted[1]), (dim, k, name, memory)
                assert torch.equal(found.delta, wanted[0])


@needs_words
def test_a_try_tells_whether_it_says_enough(generator):
    distance = DISTANCES["l2"]
    for kind, works in (("Gaussian", True), ("far from 0", True), ("clusters", False), ("all equal", False)):
        x = rows(kind, 64, generator)
        pairs = Int16Pairs(10, distance, merged_normalization([summarize_rows(x, distance)], x), 2**28)
        assert pairs.is_faster(x, 10, 2**28) and pairs.is_effective(x) == works, kind


@needs_words
def test_most_products_are_ruled_out(generator, monkeypatch):
    """Else the answers would be right, and late."""
    x, looked, settle = rows("Gaussian", 128, generator), [], operators.settle_possible

    def counted(*arguments):
        looked.append(int(arguments[7].sum()) / len(arguments[7]))
        return settle(*arguments)

    monkeypatch.setattr(operators, "settle_possible", counted)
    of_shares(x, SHARES["two"], 10, 2**28, False)
    assert len(looked) == 4 and max(looked) < 100 and max(looked[2:]) < 40


@needs_words
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_answer(threads, generator):
    x, before = rows("sorted clusters", 64, generator), torch.get_num_threads()
    wanted = TorchKNN("sqeuclidean")(x.double(), 5, x.double(), True)
    torch.set_num_threads(threads)
    try:
        found = of_shares(x, SHARES["three"], 5, 2**28, True)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found.index, wanted[1]) and torch.equal(found.delta, wanted[0])


def test_others_are_put_in_their_places(generator):
    delta = torch.randint(0, 4, (50, 7), generator=generator).double().sort(dim=1).values
    index = torch.arange(7).repeat(50, 1)
    other = torch.randint(0, 4, (50, 7), generator=generator).double().sort(dim=1).values
    other[::3, 4:], delta[::4, 2:], index[::4, 2:] = torch.inf, torch.inf, -1
    of_other = torch.arange(7, dtype=torch.int32).repeat(50, 1)
    pairs = [
        sorted(
            [*zip(a, b, strict=True), *((d, n + 3) for d, n in zip(c, range(7), strict=True) if d < torch.inf)],
            key=place,
        )
        for a, b, c in zip(delta.tolist(), index.tolist(), other.tolist(), strict=True)
    ]
    operators.merge_nearest(other, of_other, 3, delta, index)
    assert delta.tolist() == [[d for d, _ in row[:7]] for row in pairs]
    assert index.tolist() == [[n for _, n in row[:7]] for row in pairs]


def place(pair):
    delta, index = pair
    return delta, index if index >= 0 else 2**40


def test_a_group_of_one(tmp_path, generator):
    x = rows("equal", 64, generator)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        found = ShardedKNN()(x, 4, x, True)
    finally:
        torch.distributed.destroy_process_group()
    for together, alone in zip(found, TorchKNN()(x, 4, x, True), strict=True):
        assert torch.equal(together, alone)
