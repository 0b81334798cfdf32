"""Rates of small p-values and coverage of intervals for word sets of one population.

A word is normal around a common center in 8 dimensions, and each of its rows (contexts, templates) normal around the
word. The true score of two target sets is then 0; for other scores, the truth is their mean over all tables of a cell.
Attribute sets have 6 words.
"""

import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from tensormetrics import association
from tensormetrics.association.functional import WordSet

TABLES = 2000
CHUNK = 100  # tables at a time
DIMENSIONS, ATTRIBUTES = 8, 6
REPLICATES, DRAWS, SAMPLES = 200, 399, 200  # of intervals, of shuffles, and of contexts
LEVEL = 0.05


class Cell(NamedTuple):
    """Range of the number of rows of a word, and numbers of words of the two target sets."""

    min_rows: int
    max_rows: int
    sizes: tuple[int, int]

    @property
    def name(self) -> str:
        rows = f"{self.min_rows}" if self.min_rows == self.max_rows else f"{self.min_rows} to {self.max_rows}"
        return f"{rows} row{'s' * (self.max_rows > 1)}, {self.sizes[0]} + {self.sizes[1]} words"


CELLS = [Cell(*rows, sizes) for rows in ((1, 1), (5, 5), (1, 12)) for sizes in ((6, 6), (4, 9))]


class Rate(NamedTuple):
    fraction: float
    tables: int


def word_sets(cell: Cell, counts: tuple[int, ...], seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    """Yield sets of CHUNK tables each; numbers of rows are drawn separately for each chunk."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{cell.name}, {seed}".encode()))
    for _ in range(tables // CHUNK):
        sets = []
        for count in counts:
            rows = torch.randint(cell.min_rows, cell.max_rows + 1, (count,), generator=generator)
            word_ids = torch.arange(count).repeat_interleave(rows)
            means = torch.randn(CHUNK, count, DIMENSIONS, generator=generator, dtype=torch.float64)
            means[..., 0] += 1
            noise = torch.randn(CHUNK, len(word_ids), DIMENSIONS, generator=generator, dtype=torch.float64)
            sets.append(WordSet(means[:, word_ids] + (noise if cell.max_rows > 1 else 0), words=word_ids))
        yield tuple(sets)


def pairs(cell: Cell, seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    """Yield x and y with equal numbers of words and of rows, and attributes."""
    count = cell.sizes[1]
    for x, a in word_sets(cell, (2 * count, ATTRIBUTES), seed, tables):
        masks = [(x.words < count), (x.words >= count)]
        rows = [torch.bincount(x.words[mask] - index * count) for index, mask in enumerate(masks)]
        first = [torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]]) for lengths in rows]
        turns = torch.lcm(*rows)  # rows are paired in turns, as in a query of words
        words = torch.arange(count).repeat_interleave(turns)
        turn = torch.cat([torch.arange(int(length)) for length in turns])
        targets = (
            WordSet(x.values[:, mask][:, start[words] + turn % length[words]], words=words)
            for mask, start, length in zip(masks, first, rows, strict=True)
        )
        yield (*targets, a)


def four_sets(cell: Cell, seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    return word_sets(cell, (*cell.sizes, ATTRIBUTES, ATTRIBUTES), seed, tables)


def three_sets(cell: Cell, seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    return word_sets(cell, (*cell.sizes, ATTRIBUTES), seed, tables)


def padded(*sets: WordSet) -> WordSet:
    """Return groups of sets as one set (..., G, W, D)."""
    width = max(s.values.shape[-2] for s in sets)
    values, masks, words = [], [], []
    for s in sets:
        missing = width - s.values.shape[-2]
        values.append(torch.nn.functional.pad(s.values, (0, 0, 0, missing)))
        masks.append(torch.arange(width) < s.values.shape[-2])
        words.append(torch.nn.functional.pad(s.words, (0, missing)))
    return WordSet(torch.stack(values, -3), torch.stack(masks), torch.stack(words))


def grouped(cell: Cell, seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    for x, y, a, b in four_sets(cell, seed, tables):
        yield padded(x, y), padded(a, b)


def target_and_groups(cell: Cell, seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    for t, a, b in one_target(cell, seed, tables):
        yield t, padded(a, b)


def one_target(cell: Cell, seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    return word_sets(cell, (ATTRIBUTES, *cell.sizes), seed, tables)


def aligned_groups(cell: Cell, seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    for x, y, a in pairs(cell, seed, tables):
        yield a, padded(x, y)


def pools(cell: Cell, seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    for sets in four_sets(cell, seed, tables):
        yield tuple(_pool(s) for s in sets)


def _pool(rows: WordSet) -> WordSet:
    counts = torch.bincount(rows.words)
    start = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)[:-1]])
    mask = torch.arange(int(counts.max())) < counts.unsqueeze(-1)
    index = (start.unsqueeze(-1) + torch.arange(int(counts.max()))).clamp(max=len(rows.words) - 1)
    return WordSet(rows.values[:, index], mask)


Draw = Callable[[Cell, str, int], Iterator[tuple[WordSet, ...]]]


class MetricCase(NamedTuple):
    """Metric with a generator of its sets; `truth` is None if it is the mean over the tables of a cell."""

    name: str
    make: Callable[..., association.extend.BaseMetric]
    draw: Draw
    truth: float | None = 0.0
    key: str = "p_value"


def p_value_cases() -> list[MetricCase]:
    a = association
    return [
        MetricCase("WEAT", a.WEAT, four_sets),
        MetricCase("ML-EAT, first target", a.MLEAT, four_sets, key="p_value_x"),
        MetricCase("SC-WEAT, a word", a.SCWEAT, one_target, key="p_value_by_word"),
        MetricCase("RND", a.RND, three_sets),
        MetricCase("RND, cosines", lambda **options: a.RND(distance="cos", **options), three_sets),
        MetricCase("ECT", a.ECT, three_sets),
        MetricCase("GWEAT", a.GWEAT, grouped),
        MetricCase("RIPA, of as many pairs as the larger set", a.RIPA, pairs),
        MetricCase("CEAT", lambda **options: a.CEAT(samples=SAMPLES, **options), pools),
        MetricCase(
            "CEAT, `p_value_random_effects`",
            lambda **options: a.CEAT(samples=SAMPLES, **options),
            pools,
            key="p_value_random_effects",
        ),
    ]


def interval_cases() -> list[MetricCase]:
    a = association
    return [
        MetricCase("WEAT", a.WEAT, four_sets),
        MetricCase(
            "WEAT, effect size",
            lambda **options: a.WEAT(return_effect_size=True, **options),
            four_sets,
        ),
        MetricCase("ML-EAT", a.MLEAT, four_sets),
        MetricCase("SC-WEAT", a.SCWEAT, one_target),
        MetricCase("RND, `rnd_corrected`", a.RND, three_sets),
        MetricCase(
            "RND, cosines",
            lambda **options: a.RND(distance="cos", **options),
            three_sets,
        ),
        MetricCase("GWEAT", a.GWEAT, grouped),
        MetricCase("RIPA, of as many pairs as the larger set", a.RIPA, pairs),
        MetricCase(
            "CEAT, `effect_size`",
            lambda **options: a.CEAT(samples=20, **options),
            pools,
        ),
        MetricCase("MAC (mean of the tables)", a.MAC, target_and_groups, None),
        MetricCase("ECT (mean of the tables)", a.ECT, three_sets, None),
        MetricCase("SAME (mean of the tables)", a.SAME, target_and_groups, None),
        MetricCase("direct bias (mean of the tables)", a.DirectBias, aligned_groups, None),
        MetricCase("RNSB (mean of the tables)", a.RNSB, one_target, None),
    ]


def small_p_values(case: MetricCase, cell: Cell, tables: int | None = None) -> Rate:
    """Compute how often a two-sided p-value is at most .05."""
    count = tables or TABLES
    metric = case.make(alternative="two-sided", permutations=DRAWS)
    p_values = []
    for sets in case.draw(cell, case.name, count):
        if case.key == "p_value_random_effects":
            p_values.append(metric.measure(*sets)[case.key])
        else:
            p_values.append(metric.null_distributions(*sets)[case.key].p_value("two-sided", "auto", DRAWS))
    flat = torch.cat([p.flatten() for p in p_values])
    return Rate(float((flat <= LEVEL).double().mean()), count)


def coverage(case: MetricCase, cell: Cell, tables: int | None = None) -> Rate:
    """Compute how often an interval of 95 % holds the truth."""
    count = tables or TABLES
    metric, results = case.make(replicates=REPLICATES), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about biased scores
        for sets in case.draw(cell, case.name, count):
            answer = metric.evaluate(*sets)
            results.append(torch.stack([answer.details.get("corrected", answer.value), answer.low, answer.high]))
    value, low, high = torch.cat(results, -1)
    truth: float | Tensor = value.mean() if case.truth is None else case.truth
    return Rate(float(((low <= truth) & (truth <= high)).double().mean()), count)
