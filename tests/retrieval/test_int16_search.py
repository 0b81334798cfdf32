"""Search by int16 products: results match those without it, and its bounds hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tensormetrics.core.native import native
from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.search import operators
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.int16.quantize import QuantizedRows
from tensormetrics.retrieval.search.int16.search import Int16Search
from tensormetrics.retrieval.search.references import References
from tensormetrics.retrieval.search.stages import SearchProblem

N = 2_100  # more than a few full panels of the kernel


needs_int16 = pytest.mark.skipif(
    not native.has_kernel("supports_int16", "cpu") or not operators.supports_int16(torch.zeros(1)),
    reason="this processor has no int16 products",
)
OTHERS = ("far from 0", "outliers", "clusters", "some clusters", "tight clusters", "tiny", "whole numbers")
KINDS = ["Gaussian", "equal", "not finite", *(pytest.param(kind, marks=pytest.mark.full) for kind in OTHERS)]


def rows(kind: str, n: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(n, dim, generator=generator)
    if kind == "far from 0":
        x += 100
    if kind == "outliers":
        x[::50] *= 30
        x[:, 3] *= 20
    if kind == "clusters":
        x = 10 * x[torch.arange(n) % (n // 100)] + 0.01 * x
    if kind == "tight clusters":
        x = x[torch.arange(n) % 3] + 1e-7 * x
    if kind == "equal":
        x = x[torch.randint(0, n // 10, (n,), generator=generator)]
    if kind == "some clusters":
        x[: n // 10] = x[0] + 1e-3 * x[: n // 10]
    if kind == "not finite":
        x[5, 1], x[70, 0], x[n - 1] = torch.nan, torch.inf, -torch.inf
    if kind == "tiny":
        x *= 1e-30
        x[9] = 0
    if kind == "whole numbers":
        x = (2 * x).round().clamp(-3, 3)
    return x


@pytest.fixture
def search_counts(monkeypatch) -> list[int]:
    """Record, for each call of the int16 search, the number of queries and the number of proven ones."""
    calls: list[int] = []
    search = Int16Search.search

    def count_queries(self, queries):
        neighbors, proven = search(self, queries)
        if queries.span:  # without a span the queries are a trial
            calls.extend((len(proven), int(proven.sum())))
        return neighbors, proven

    monkeypatch.setattr(Int16Search, "search", count_queries)
    return calls


def without_int16(monkeypatch, call):
    with monkeypatch.context() as patch:
        patch.setattr(Int16Search, "is_faster", staticmethod(lambda *arguments: False))
        return call()


@needs_int16
@pytest.mark.parametrize("kind", KINDS)
def test_int16_search_matches_search_without_it(kind, generator, monkeypatch, search_counts):
    for dim, k, distance in [
        (51, 10, "l2"),
        (64, 1, "sqeuclidean"),
        (48, 16, "cosine"),
        (130, 10, "ip"),
        (64, 100, "l2"),
    ]:
        x = rows(kind, N, dim, generator)
        others = rows(kind, N, dim, generator)[: N // 3]
        for query in (x, others):
            knn = TorchKNN(distance)
            actual = knn(query, k, x, query is x)
            expected = without_int16(monkeypatch, lambda: knn(query, k, x, query is x))  # noqa: B023
            assert torch.equal(actual[1], expected[1]), (dim, k, distance)
            assert torch.equal(actual[0].nan_to_num(-1), expected[0].nan_to_num(-1))
    if kind == "Gaussian":
        assert sum(search_counts[::2]) == 5 * (N + N // 3) and sum(search_counts[1::2]) > 0.99 * sum(search_counts[::2])
    if kind == "tight clusters":  # a trial with a few queries shows that int16 is too coarse for most
        assert len(search_counts) <= 8


@needs_int16
def test_int16_search_ignores_threads_and_memory_budget(generator, monkeypatch, search_counts):
    x = rows("some clusters", N, 64, generator)
    expected = without_int16(monkeypatch, lambda: TorchKNN()(x, 12, x, True)[1])
    for threads, memory in ((1, None), (3, None), (2, 2**21)):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            assert torch.equal(TorchKNN(memory_budget=memory)(x, 12, x, True)[1], expected)
        finally:
            torch.set_num_threads(before)
    assert search_counts


@needs_int16
@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
def test_int16_search_of_nonfinite_rows_matches_search_without_it(distance, generator, monkeypatch, search_counts):
    # All finite references fit into the candidate list of a query, even if its bound excludes nothing.
    references, query = torch.randn(N, 64, generator=generator), torch.randn(500, 64, generator=generator)
    references[30:, 1] = torch.nan
    query[3], query[70, 2], query[80], query[90] = torch.nan, torch.inf, -torch.inf, 1e25
    knn = TorchKNN(distance)
    distances, indices = knn(query, 10, references)
    expected = without_int16(monkeypatch, lambda: knn(query, 10, references))
    assert torch.equal(distances, expected[0]) and torch.equal(indices, expected[1])
    assert (indices[[3, 70, 80]] == -1).all() and (indices[90] >= 0).all() and search_counts[0] == 500


def hostile(kind: str, dim: int, generator: torch.Generator) -> Tensor:
    """Return rows with the largest possible rounding errors."""
    x = torch.randint(-127, 128, (256, dim), generator=generator).float()
    x[:, 0] = 127
    if kind == "half steps":  # each entry is almost halfway between two codes; all errors have the sign of the row
        length = x.norm(dim=1, keepdim=True).double()
        unit = torch.maximum(length / (46338 - dim**0.5 / 2), torch.tensor(127 / 32766))
        x = (((x / unit).round() + 0.499) * unit).float()
        x[1::2] *= -1
    if kind == "one large entry":  # nearly all of the norm
        x[:, 1:] = 1e-5 * torch.sign(x[:, 1:] + 0.5)
    if kind == "sizes":
        x *= 2.0 ** torch.randint(-30, 1, (256, 1), generator=generator)
    return x


@needs_int16
@pytest.mark.parametrize("kind", ["whole", "half steps", "one large entry", "sizes"])
@pytest.mark.parametrize("dim", [32, 515])
def test_int16_candidate_bounds_contain_canonical_values(kind, dim, generator):
    x = hostile(kind, dim, generator)
    x = torch.cat([x, -x])
    references = References(x, DISTANCES["sqeuclidean"])
    search = Int16Search(
        SearchProblem(references, 10, True, 2**28, torch.float32, 0), 4096, torch.full((len(x),), -1), False
    )
    rounded = QuantizedRows.nothing(*x.shape)
    rounded.write(x, search.filter, None)
    rounding_errors, lists = search._candidate_lists(rounded, search.self_index, False)
    factor, shift = search.filter.affine_map(x)
    canonical = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    canonical = factor[:, None] * canonical + shift[:, None]
    num_checked = 0
    for q in range(len(x)):
        n = int(lists.list_size[q])
        n = 0 if n == search.capacity else n
        column = search.order[lists.column[q, :n].long()]
        lower, upper = lists.bounds[q, :, :n].double()
        rounding_error, values = rounding_errors[q].double(), canonical[q, column]
        assert (lower - rounding_error <= values).all() and (values <= upper + rounding_error).all()
        num_checked += n
        if n:
            missing = torch.ones(len(x), dtype=torch.bool)
            missing[column] = False
            tenth = canonical[q].kthvalue(10).values
            assert (canonical[q][missing] > tenth).all()
    assert num_checked > 0 or kind == "one large entry"


@needs_int16
def test_int16_sums_of_longest_rows_fit_32_bits():
    for dim in (2, 49, 64, 4_096):
        for row in (torch.ones(dim), torch.arange(dim) == 0, torch.linspace(-1, 1, dim)):
            x = row.double() / row.double().norm()
            rounded = QuantizedRows.nothing(64, dim)
            operators.quantize_rows(torch.stack([x, -x]), None, torch.zeros(dim).double(), 1.0, *rounded, 62)
            codes = rounded[0][0, :, 62:].double()
            assert codes.square().sum((0, 2)).max() < 2**31 and codes.square().sum((0, 2)).min() > 2**29
            both = (codes[:, 0] * rounded[1][62]).flatten()[:dim], (codes[:, 1] * rounded[1][63]).flatten()[:dim]
            assert torch.equal(both[0], -both[1]) and torch.isclose((both[0] - x).norm(), rounded[2][2, 62], atol=1e-12)


CHILD = """
import sys, torch
from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.search import operators
x = torch.randn(2500, 70, generator=torch.Generator().manual_seed(5))
indices = [TorchKNN(name)(q, k, x, q is x)[1] for name, k in (("l2", 10), ("cosine", 90)) for q in (x, x[:99] + 1)]
torch.save((bool(operators.supports_int16(x)), indices), sys.argv[1])
"""


@needs_int16
@pytest.mark.full
def test_int16_search_vector_widths_give_equal_neighbors(tmp_path):
    indices_by_width = []
    for width in ("64", "32", "16"):
        environment = os.environ | {"TENSORMETRICS_VECTOR_BYTES": width}
        subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / width)], check=True, env=environment)
        indices_by_width.append(torch.load(tmp_path / width)[1])
    for others in indices_by_width[1:]:
        assert all(torch.equal(a, b) for a, b in zip(indices_by_width[0], others, strict=True))
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    assert torch.load(tmp_path / "32")[0] == (" avx_vnni " in flags) or not flags
