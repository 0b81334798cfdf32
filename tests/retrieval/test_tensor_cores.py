"""Bounds of the float16 filter hold for sums on tensor cores; on Hopper they are twice as large as needed."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tensor_cores import CARDS, products
from torch import Tensor

from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.fp16_filter import Float16Filter
from tensormetrics.retrieval.search.product_filter import Filter

LAYOUT = SimpleNamespace(TILE=128, DEPTH=64, BLOCK=32, STRIDE=4)
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
    rounded_norm, lost_norm, ref_error = fp16_filter.row_bounds.double()[:, is_row]
    bound = sum_error * rounded_norm + norm * lost_norm + ref_error + twice_query_error / 2
    if parts == 2:
        bound = fp16_filter.error(queries)[:, None].expand_as(bound)
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


def allowed_sum_error(dim: int) -> float:
    """Return the error that the filter allows for the sum of a product, in units of the norms."""
    fp16_filter = Float16Filter(Filter(torch.eye(2, dim), DISTANCES["ip"], torch.float32), LAYOUT)
    sizes = torch.zeros(4, 128, dtype=torch.float64)
    sizes[2] = 1  # the norm of the rounded row
    return float(fp16_filter._left(sizes, fp16_filter.low)[0, 0])


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
