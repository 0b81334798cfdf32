"""The bounds of the float16 filter hold for the sums of tensor cores: on Hopper with twice the slack these need."""

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
    """Beside a 1 all other products lose nearly half a unit each, always in the same direction."""
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


def share_of_bound(x: Tensor, distance: str, parts: int, card: tuple[int, int]) -> float:
    """The largest error of a value over its bound."""
    halves = Float16Filter(Filter(x, DISTANCES[distance], torch.float32), LAYOUT, parts=parts)
    queries = halves.query(x[:QUERIES])
    product = torch.from_numpy(products(queries.rows[:QUERIES].numpy(), halves.rows.numpy(), *card))
    value = (halves.bias - (halves.factor * product).float()).double()
    there = halves.order[:-1] >= 0
    factor, shift = halves.affine_map(x[:QUERIES], queries)
    wide = x.numpy().astype(np.longdouble)  # the bound leaves little for the rounding of float64
    a, b = wide[:QUERIES, None], wide[None]
    exact = torch.from_numpy(((a - b) ** 2 if distance == "l2" else -a * b).sum(2).astype(np.float64))
    wanted = (factor[:, None] * exact + shift[:, None])[:, halves.order[:-1][there].long()]
    near, length, twice = queries.left.double()[:, :QUERIES, None]
    kept, lost, own = halves.row_bounds.double()[:, there]
    bound = near * kept + length * lost + own + twice / 2
    if parts == 2:
        bound = halves.error(queries)[:, None].expand_as(bound)
    return float(((value[:, there] - wanted).abs() / bound).max())


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("distance", ["l2", "ip"])
@pytest.mark.parametrize(
    "dim, parts",
    [(16, 1), (128, 1), (128, 2)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in [(512, 1), (512, 2), (2048, 1)]],
)
def test_values_are_within_their_bound(dim, parts, distance, family, card):
    assert share_of_bound(FAMILIES[family](dim), distance, parts, CARDS[card]) <= 1


def summing(dim: int) -> float:
    """What the filter allows the sum of a product to be off by, in units of the norms."""
    halves = Float16Filter(Filter(torch.eye(2, dim), DISTANCES["ip"], torch.float32), LAYOUT)
    sizes = torch.zeros(4, 128, dtype=torch.float64)
    sizes[2] = 1  # the norm of what rounding has kept
    return float(halves._left(sizes, halves.low)[0, 0])


def worst_sum(dim: int, card: tuple[int, int]) -> float:
    """The largest error of a sum that was found among rows with a leading one, in units of the norms."""
    random, worst = np.random.default_rng(0), 0.0
    powers = [np.full(dim, below) for below in np.linspace(11, 14, 31)]
    for below in [*powers, *random.uniform(11, 13.5, (15, dim))]:
        x = (2.0**-below).astype(np.float16)[None]
        x[0, 0] = 1
        wide = x.astype(np.float64)
        worst = max(worst, abs(products(x, x, *card) - wide @ wide.T).item() / (wide**2).sum())
    return worst


@pytest.mark.parametrize("card, share", [("Hopper", 1 / 2), ("Ampere", 4 / 5)])
@pytest.mark.parametrize("dim", [16, 64, 128, 512, 2048])
def test_sums_leave_a_part_of_what_is_allowed(dim, card, share):
    found, allowed = worst_sum(dim, CARDS[card]), summing(dim)
    assert 0.02 * allowed < found <= share * allowed


def test_the_model_loses_what_float32_keeps():
    """16 terms beside a 1, each half of the last bit that is kept or less: on a card nothing is left of them."""
    x = np.full((1, 16), 2.0**-13, np.float16)
    x[0, 0] = 1
    y = x.copy()
    y[0, 1:] = 2.0**-12.0
    exact = float((x.astype(np.float64) @ y.astype(np.float64).T)[0, 0])
    assert exact == 1 + 15 * 2.0**-25
    assert products(x, y, 25, 16).item() == 1 + 3 * 2.0**-23  # 15 units of 2^-25, then cut to float32
    assert products(x, y, 24, 16).item() == 1  # each of them is below the last bit
