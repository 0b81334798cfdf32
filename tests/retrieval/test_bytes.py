"""The search by products of bytes: the same answers as without it, and a bound that hostile rows do not break."""

import pytest
import torch
from torch import Tensor

from tensormetrics import _native
from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.search import operators
from tensormetrics.retrieval.search.bytes.search import ByteSearch
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.references import References
from tensormetrics.retrieval.search.ways import Task

N = 2_100  # one more than a few panels
needs_bytes = pytest.mark.skipif(
    not _native.has_kernel("multiplies_bytes", "cpu") or not operators.multiplies_bytes(torch.zeros(1)),
    reason="this processor does not multiply bytes",
)


def rows(kind: str, dim: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(N, dim, generator=generator)
    if kind == "far from 0":
        x += 100
    if kind == "outliers":
        x[::50] *= 30
        x[:, 3] *= 20
    if kind == "clusters":
        x = 10 * x[torch.arange(N) % 21] + 0.01 * x
    if kind == "equal":
        x = x[torch.arange(N) % 300]
    if kind == "some clusters":
        x[: N // 10] = x[0] + 1e-3 * x[: N // 10]
    if kind == "not finite":
        x[5, 1], x[70, 0], x[N - 1] = torch.nan, torch.inf, -torch.inf
    if kind == "tiny":
        x *= 1e-30
        x[9] = 0
    if kind == "whole numbers":
        x = (2 * x).round()
    return x


KINDS = [
    "Gaussian", "far from 0", "outliers", "clusters", "equal", "some clusters", "not finite", "tiny", "whole numbers"
]  # fmt: skip


@pytest.fixture
def searched(monkeypatch) -> list[int]:
    """How many queries each call of the search by bytes was asked for, and how many of them it settled."""
    calls: list[int] = []
    search = ByteSearch.search

    def counted(self, queries):
        found, proven = search(self, queries)
        if queries.place:  # else these are tried
            calls.extend((len(proven), int(proven.sum())))
        return found, proven

    monkeypatch.setattr(ByteSearch, "search", counted)
    return calls


def without(monkeypatch, call):
    with monkeypatch.context() as patch:
        patch.setattr(ByteSearch, "pays", staticmethod(lambda *arguments: False))
        return call()


@needs_bytes
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_search_without_it(kind, generator, monkeypatch, searched):
    for dim, k, distance in [(51, 10, "l2"), (64, 1, "sqeuclidean"), (48, 16, "cosine"), (130, 10, "ip")]:
        x = rows(kind, dim, generator)
        others = rows(kind, dim, generator)[: N // 3]
        for query in (x, others):
            knn = TorchKNN(distance)
            found = knn(query, k, x, query is x)
            expected = without(monkeypatch, lambda: knn(query, k, x, query is x))  # noqa: B023
            assert torch.equal(found[1], expected[1]), (dim, k, distance)
            assert torch.equal(found[0].nan_to_num(-1), expected[0].nan_to_num(-1))
    if kind == "Gaussian":
        assert sum(searched[::2]) == 4 * (N + N // 3) and sum(searched[1::2]) > 0.99 * sum(searched[::2])
    if kind == "clusters":  # a try with a few queries says that bytes are too coarse
        assert not searched


@needs_bytes
def test_tiles_threads_and_memory_change_no_answer(generator, monkeypatch, searched):
    x = rows("some clusters", 64, generator)
    expected = without(monkeypatch, lambda: TorchKNN()(x, 12, x, True)[1])
    for threads, memory in ((1, None), (3, None), (2, 2**21)):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            assert torch.equal(TorchKNN(memory_budget=memory)(x, 12, x, True)[1], expected)
        finally:
            torch.set_num_threads(before)
    assert searched


def hostile(kind: str, dim: int, generator: torch.Generator) -> Tensor:
    """Rows for which rounding is as bad as it gets."""
    x = torch.randint(-127, 128, (256, dim), generator=generator).float()
    x[:, 0] = 127
    if kind == "half steps":  # each entry is halfway between two bytes, and all errors have the sign of the row
        x[:, 1:] += 0.5 - 2.0**-12
        x[1::2] *= -1
    if kind == "one large entry":  # all others round to zero
        x[:, 1:] = 0.4999 * torch.sign(x[:, 1:] + 0.5)
    if kind == "sizes":
        x *= 2.0 ** torch.randint(-30, 1, (256, 1), generator=generator)
    return x


@needs_bytes
@pytest.mark.parametrize("kind", ["bytes", "half steps", "one large entry", "sizes"])
@pytest.mark.parametrize("dim", [32, 515])
def test_no_value_is_outside_of_its_bounds(kind, dim, generator):
    x = hostile(kind, dim, generator)
    x = torch.cat([x, -x])
    references = References(x, DISTANCES["sqeuclidean"])
    search = ByteSearch(Task(references, 10, True, 2**28, torch.float32, 0), 4096, torch.full((len(x),), -1), False)
    lists, ready, _ = search._listed(x, search.own)
    exact = ready.double() @ search.ready.double().T + search.filter.bias.double()
    factor, shift = search.filter.place(x)
    canonical = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    canonical = factor[:, None] * canonical + shift[:, None]
    inside = 0
    for q in range(len(x)):
        n = int(lists.number[q])
        n = 0 if n == search.capacity else n
        place = lists.column[q, :n].long()
        column = search.order[place]
        lower = lists.lower[q, :n].double()
        upper = lower + 2 * lists.width[q].double() * search.share[place].double()
        for values in (exact[q, column], canonical[q, column]):
            assert (lower - lists.slack[q] <= values).all() and (values <= upper + lists.slack[q]).all()
        inside += n
        if n:
            missing = torch.ones(len(x), dtype=torch.bool)
            missing[column] = False
            tenth = canonical[q].kthvalue(10).values
            assert (canonical[q][missing] > tenth).all()
    assert inside > 0 or kind == "one large entry"
