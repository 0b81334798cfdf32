"""Bounds of the float16 filter hold for sums on tensor cores; on Hopper they are twice as large as needed.

Model of how tensor cores accumulate float16 products; it differs from any float32 sum on a CPU.

Products are exact. At each step the products of `terms` columns and the running sum are truncated toward 0 to `bits`
bits below the leading bit of the largest; their sum is exact and truncated to float32. Bits and terms were measured by:
Fasi et al., Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 2021, DOI 10.7717/peerj-cs.330 (Volta,
Turing, Ampere); MMA-Sim, arXiv 2511.10909 (Hopper).
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.search import fp16_search
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.fp16_filter import Float16Filter
from tensormetrics.retrieval.search.product_filter import Filter

CARDS = {"Hopper": (25, 16), "Ampere": (24, 8)}  # bits, terms
_MIN_EXPONENT = -126  # smallest exponent of float32, also used for 0


def exponent(x: np.ndarray, min_exponent: int) -> np.ndarray:
    return np.where(x == 0, _MIN_EXPONENT, np.maximum(np.frexp(x)[1] - 1, min_exponent))


def products(a: np.ndarray, b: np.ndarray, bits: int, terms: int) -> np.ndarray:
    # a: (Q, D) float16  b: (R, D) float16  ->  (Q, R) float64, values of float32
    a, b = a.astype(np.float64), b.astype(np.float64)
    a_exponent, b_exponent, total = exponent(a, -14), exponent(b, -14), np.zeros((len(a), len(b)))
    for start in range(0, a.shape[1], terms):
        columns = slice(start, start + terms)
        column_products, max_exponent = (
            a[:, None, columns] * b[:, columns],
            (a_exponent[:, None, columns] + b_exponent[:, columns]).max(2),
        )
        unit = 2.0 ** (np.maximum(max_exponent, exponent(total, _MIN_EXPONENT)) - bits)
        total = (np.trunc(column_products / unit[..., None]).sum(2) + np.trunc(total / unit)) * unit
        unit = 2.0 ** (exponent(total, _MIN_EXPONENT) - 23.0)
        total = np.trunc(total / unit) * unit
    return total


LAYOUT = SimpleNamespace(TILE=128, DEPTH=64, BLOCK=32, STRIDE=4)  # constants of the kernels, which need Triton
ROWS, QUERIES = 48, 12


def leading_one(dim: int, below: float) -> Tensor:
    """Return rows with a leading 1, next to which all other products lose nearly half a unit in the same direction."""
    x = torch.full((ROWS, dim), 2.0**-below * (1 - 2.0**-9))
    x[:, 0] = 1
    return torch.where(torch.arange(ROWS) % 2 == 0, x.T, -x.T).T.contiguous()


FAMILIES = {
    "normal": lambda dim: torch.randn(ROWS, dim),
    "unit": lambda dim: torch.nn.functional.normalize(torch.randn(ROWS, dim)),
    "positive": lambda dim: torch.rand(ROWS, dim),
    "1, 2^-12, 2^-12, ...": lambda dim: leading_one(dim, 12),
    "1, 2^-12.5, ...": lambda dim: leading_one(dim, 12.5),
    "fourteen powers of two": lambda dim: torch.randn(ROWS, dim) * 2.0 ** (-14 * torch.arange(dim) / dim),
}


def error_over_bound(x: Tensor, distance: str, parts: int, card: tuple[int, int]) -> float:
    """Return the largest ratio of the error of a value to its bound."""
    fp16_filter = Float16Filter(Filter(x, DISTANCES[distance], torch.float32), LAYOUT, parts=parts)
    queries = fp16_filter.query(x[:QUERIES])
    product = torch.from_numpy(products(queries.rows[:QUERIES].numpy(), fp16_filter.rows.numpy(), *card))
    value = (fp16_filter.bias - (fp16_filter.factor * product).float()).double()
    is_row = fp16_filter.order[:-1] >= 0
    factor, shift = fp16_filter.affine_map(x[:QUERIES], queries)
    wide = x.numpy().astype(np.longdouble)  # float64 rounding is not negligible against the bound
    a, b = wide[:QUERIES, None], wide[None]
    exact = torch.from_numpy(((a - b) ** 2 if distance == "l2" else -a * b).sum(2).astype(np.float64))
    expected = (factor[:, None] * exact + shift[:, None])[:, fp16_filter.order[:-1][is_row].long()]
    sum_error, norm, twice_query_error = queries.left.double()[:, :QUERIES, None]
    bounds = fp16_filter.row_bounds[:, is_row] if parts == 1 else fp16_filter.largest[:, None]
    rounded_norm, lost_norm, ref_error = bounds.double()
    bound = sum_error * rounded_norm + norm * lost_norm + ref_error + twice_query_error / 2
    return float(((value[:, is_row] - expected).abs() / bound).max())


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("distance", ["l2", "ip"])
@pytest.mark.parametrize(
    "dim, parts",
    [(16, 1), (128, 1), (128, 2)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in [(512, 1), (512, 2), (2048, 1)]],
)
def test_fp16_filter_values_are_within_their_bound(dim, parts, distance, family, card):
    assert error_over_bound(FAMILIES[family](dim), distance, parts, CARDS[card]) <= 1


SPREADS = {
    "normal": lambda x: x,
    "lognormal lengths": lambda x: x * (torch.randn(len(x), 1) / 2).exp(),
    "unit length": torch.nn.functional.normalize,
    "600 classes": lambda x: x[torch.arange(len(x)) % 600] + torch.randn_like(x) / 2,
    "few huge rows": lambda x: torch.where(torch.arange(len(x))[:, None] % 300 == 0, 1000 * x, x),
}


@pytest.mark.parametrize("k", [10, 90, 400, 1000])
@pytest.mark.parametrize("kind", SPREADS)
def test_lists_of_candidates_hold_all_that_may_be_nearest(kind, k, monkeypatch):
    monkeypatch.setattr(fp16_search, "SAMPLE", 1024)
    x = SPREADS[kind](torch.randn(6000, 32))
    fp16_filter = Float16Filter(Filter(x, DISTANCES["l2"], torch.float32), LAYOUT)
    is_sampled, rank, step, capacity = fp16_search.Float16Search.plan(k, len(x), LAYOUT.BLOCK)
    queries = fp16_filter.query(x[:60])
    value = fp16_filter.bias - fp16_filter.factor * (queries.rows[:60].float() @ fp16_filter.rows.float().T)
    loss, length, rounding = queries.left[:, :60, None]
    rows, blocks = fp16_filter.row_bounds, fp16_filter.right
    error, of_block = (loss * right[0] + length * right[1] + right[2] for right in (rows, blocks))
    upper = value + error
    minima = upper[:, ::step] if is_sampled else value.view(60, -1, 32, 4).amin(2).flatten(1) + of_block
    limit = minima.kthvalue(rank, 1, keepdim=True).values + rounding
    assert ((value - error <= limit).sum(1) <= capacity).all()
    assert ((upper + rounding <= limit).sum(1) > k).all()


def allowed_sum_error(dim: int) -> float:
    """Return the error that the filter allows for the sum of a product, in units of the norms."""
    fp16_filter = Float16Filter(Filter(torch.eye(2, dim), DISTANCES["ip"], torch.float32), LAYOUT)
    sizes = torch.zeros(4, 128, dtype=torch.float64)
    sizes[2] = 1  # the norm of the rounded row
    return float(fp16_filter._left(sizes, fp16_filter.references.low)[0, 0])


def worst_sum(dim: int, card: tuple[int, int]) -> float:
    """Return the largest error of a sum among rows with a leading one, in units of the norms."""
    random, worst = np.random.default_rng(0), 0.0
    powers = [np.full(dim, below) for below in np.linspace(11, 14, 31)]
    for below in [*powers, *random.uniform(11, 13.5, (15, dim))]:
        x = (2.0**-below).astype(np.float16)[None]
        x[0, 0] = 1
        wide = x.astype(np.float64)
        worst = max(worst, abs(products(x, x, *card) - wide @ wide.T).item() / (wide**2).sum())
    return worst


@pytest.mark.parametrize("card, max_fraction", [("Hopper", 1 / 2), ("Ampere", 4 / 5)])
@pytest.mark.parametrize("dim", [16, 64, 128, 512, 2048])
def test_worst_sums_use_a_fraction_of_the_allowed_error(dim, card, max_fraction):
    error, allowed = worst_sum(dim, CARDS[card]), allowed_sum_error(dim)
    assert 0.02 * allowed < error <= max_fraction * allowed


def test_tensor_core_model_truncates_small_terms():
    """Next to a 1, each of 15 terms is at most half of the last bit that tensor cores keep, and is truncated."""
    x = np.full((1, 16), 2.0**-13, np.float16)
    x[0, 0] = 1
    y = x.copy()
    y[0, 1:] = 2.0**-12.0
    exact = float((x.astype(np.float64) @ y.astype(np.float64).T)[0, 0])
    assert exact == 1 + 15 * 2.0**-25
    assert products(x, y, 25, 16).item() == 1 + 3 * 2.0**-23  # 15 units of 2^-25, then truncated to float32
    assert products(x, y, 24, 16).item() == 1  # each of them is below the last bit


@pytest.mark.parametrize("distance", ["l2", "sqeuclidean", "ip", "cosine"])
def test_knn_inexact_neighbors_stay_within_error_bound(distance, device):
    x = torch.randn(1000, 20, device=device)
    exact, fast = (TorchKNN(distance, exact=is_exact).indices(x, 300, x, True) for is_exact in (True, False))
    assert 0 < (exact != fast).sum() < 0.01 * exact.numel()
    row = torch.arange(1000, device=device).repeat_interleave(300)
    exact_delta, fast_delta = (
        DISTANCES[distance].of_pairs(x, x, row, indices.flatten(), 2**28).view(1000, 300) for indices in (exact, fast)
    )
    filter_ = Filter(x, DISTANCES[distance], torch.float32)
    allowed = 2 * filter_.query(x)[1] / filter_.affine_map(x)[0]
    assert ((fast_delta - exact_delta).abs() <= allowed[:, None]).all()
