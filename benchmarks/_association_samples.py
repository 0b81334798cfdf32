"""Coverage of intervals of the effect size of WEAT for simulated sets of few words.

Words of the four sets are drawn from populations with an effect size that is known or computed from 40,000 words each.
"Normal scores": associations of the target words are normal and attributes are fixed. "Clusters": words are drawn in
100 dimensions around the center of their set, and two words of a set have a cosine of .4 on average; each target's
center is shifted towards one attribute.
"""

import zlib
from collections.abc import Callable
from typing import NamedTuple

import torch
from _small_samples import Coverage
from torch import Tensor

from tensormetrics.association.functional import WordSet, bootstrap_interval, weat_effect_size

SETS = 1000
SET_SIZES = 5, 8, 15, 30
DIMENSIONS = 100
VARIANCE = 1.5  # of a word around its center of length 1
POPULATION = 40_000
CHUNK = 50  # sets at a time
REPLICATES = 1000

Sets = tuple[Tensor, Tensor, Tensor, Tensor]  # x, y, a, b (sets, words, dimensions)


class Model(NamedTuple):
    """Populations of the words of four sets."""

    kind: str
    draw: Callable[[torch.Generator, int, int], Sets]  # generator, sets, words
    truth: float


def normal_scores(shift: float) -> Model:
    def draw(generator: torch.Generator, sets: int, size: int) -> Sets:
        scores = 0.1 * torch.randn(2, sets, size, generator=generator, dtype=torch.float64)
        scores[0] += 0.1 * shift
        x, y = torch.stack([scores, (1 - scores.square()).sqrt()], -1)
        attribute = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(sets, 1, 2)
        return x, y, attribute, -attribute

    return Model(f"normal scores, {shift:g} standard deviations apart", draw, shift / (1 + shift**2 / 4) ** 0.5)


def clusters(lean: float) -> Model:
    generator = torch.Generator().manual_seed(5)
    x, y, a, b = torch.linalg.qr(torch.randn(DIMENSIONS, 4, generator=generator, dtype=torch.float64))[0].T
    centers = x + lean * a, y + lean * b, a, b

    def draw(generator: torch.Generator, sets: int, size: int) -> Sets:
        shape, scale = (sets, size, DIMENSIONS), (VARIANCE / DIMENSIONS) ** 0.5
        return tuple(
            center + scale * torch.randn(shape, generator=generator, dtype=torch.float64) for center in centers
        )

    truth = float(weat_effect_size(*(size[0] for size in draw(torch.Generator().manual_seed(0), 1, POPULATION))))
    return Model(f"clusters of effect size {truth:.1f}", draw, truth)


def models() -> list[Model]:
    return [*map(normal_scores, (0.0, 0.8, 1.5)), *map(clusters, (0.0, 0.06, 0.15))]


def percentile_interval(sets: Sets) -> tuple[Tensor, Tensor]:
    """Return the library's former interval: percentiles 2.5 and 97.5 after resampling the words of each set."""
    generator, weighted = torch.Generator().manual_seed(0), []
    for rows in sets:
        count = rows.shape[-2]
        index = torch.randint(count, (REPLICATES, count), generator=generator)
        counts = torch.zeros_like(index).scatter_add(1, index, torch.ones_like(index))
        weighted.append(WordSet(rows.unsqueeze(-3), counts))
    draws = weat_effect_size(*weighted)
    low, high = draws.nanquantile(torch.tensor([0.025, 0.975], dtype=draws.dtype), -1)
    return low, high


def coverage_of(model: Model, size: int, sets: int | None = None) -> Coverage:
    """Compute the coverage of simulated intervals of 95 % of the effect size."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{model.kind}, {size}".encode()))
    ends: list[tuple[Tensor, ...]] = []
    for _ in range((sets or SETS) // CHUNK):
        samples = model.draw(generator, CHUNK, size)
        estimate = bootstrap_interval(weat_effect_size, *samples, replicates=REPLICATES)
        ends.append((*percentile_interval(samples), estimate.low, estimate.high))
    low_before, high_before, low, high = (torch.cat(column) for column in zip(*ends, strict=True))

    def fraction(low: Tensor, high: Tensor) -> float:
        return float(((low <= model.truth) & (model.truth <= high)).double().mean())

    widths = (float((high - low).nanmean()) for low, high in ((low_before, high_before), (low, high)))
    return Coverage(fraction(low_before, high_before), fraction(low, high), *widths)
