"""Word sets of one population, and how often p-values are small and intervals hold the true score there.

A word is normal around a common center in 8 dimensions, and each of its rows (contexts, templates) normal around the
word. Every score of two target sets is then 0 but for chance; of the others, which have no such value, the truth is
their mean over all tables of a cell. Attribute sets have 6 words.
"""

import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from tensormetrics import association
from tensormetrics.association import WordSet

TABLES, INTERVAL_TABLES = 2000, 1000
SLOW_TABLES = 300  # of intervals of logistic regressions and singular vectors
PIECE = 100  # tables at a time
DIMENSIONS, ATTRIBUTES = 8, 6
REPLICATES, DRAWS, SAMPLES = 200, 399, 200  # of intervals, of shuffles, and of contexts
LEVEL = 0.05


class Cell(NamedTuple):
    """Numbers of rows of a word, and of words of the two target sets."""

    fewest: int
    most: int
    sizes: tuple[int, int]

    @property
    def name(self) -> str:
        rows = f"{self.fewest}" if self.fewest == self.most else f"{self.fewest} to {self.most}"
        return f"{rows} row{'s' * (self.most > 1)}, {self.sizes[0]} + {self.sizes[1]} words"


CELLS = [Cell(*rows, sizes) for rows in ((1, 1), (5, 5), (1, 12)) for sizes in ((6, 6), (4, 9))]


class Rate(NamedTuple):
    share: float
    tables: int


def word_sets(cell: Cell, words: tuple[int, ...], seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    """Yield sets of PIECE tables each; numbers of rows are drawn anew for each piece."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{cell.name}, {seed}".encode()))
    for _ in range(tables // PIECE):
        sets = []
        for count in words:
            rows = torch.randint(cell.fewest, cell.most + 1, (count,), generator=generator)
            numbers = torch.arange(count).repeat_interleave(rows)
            means = torch.randn(PIECE, count, DIMENSIONS, generator=generator, dtype=torch.float64)
            means[..., 0] += 1
            noise = torch.randn(PIECE, len(numbers), DIMENSIONS, generator=generator, dtype=torch.float64)
            sets.append(WordSet(means[:, numbers] + (noise if cell.most > 1 else 0), words=numbers))
        yield tuple(sets)


def pairs(cell: Cell, seed: str, tables: int) -> Iterator[tuple[WordSet, ...]]:
    """Yield x and y of the same number of words and of rows, and attributes."""
    count = cell.sizes[1]
    for x, a in word_sets(cell, (2 * count, ATTRIBUTES), seed, tables):
        places = [(x.words < count), (x.words >= count)]
        rows = [torch.bincount(x.words[place] - side * count) for side, place in enumerate(places)]
        first = [torch.cat([torch.zeros(1, dtype=torch.long), each.cumsum(0)[:-1]]) for each in rows]
        turns = torch.lcm(*rows)  # rows are taken in turns, as a query in words takes them
        words = torch.arange(count).repeat_interleave(turns)
        turn = torch.cat([torch.arange(int(number)) for number in turns])
        sides = (
            WordSet(x.values[:, place][:, start[words] + turn % number[words]], words=words)
            for place, start, number in zip(places, first, rows, strict=True)
        )
        yield (*sides, a)


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


class Door(NamedTuple):
    """A metric with the sets that it takes; `truth` is None where it is the mean over the tables of a cell."""

    name: str
    make: Callable[..., association.BaseMetric]
    draw: Draw
    truth: float | None = 0.0
    tables: int | None = None  # fewer, where they take long
    key: str = "p_value"


def p_value_doors() -> list[Door]:
    a = association
    return [
        Door("WEAT", a.WEAT, four_sets),
        Door("ML-EAT, first target", a.MLEAT, four_sets, key="p_value_x"),
        Door("SC-WEAT, a word", a.SCWEAT, one_target, key="p_value_by_word"),
        Door("RND", a.RND, three_sets),
        Door("RND, cosines", lambda **options: a.RND(distance="cos", **options), three_sets),
        Door("ECT", a.ECT, three_sets),
        Door("GWEAT", a.GWEAT, grouped),
        Door("RIPA, of as many pairs as the larger set", a.RIPA, pairs),
        Door("CEAT", lambda **options: a.CEAT(samples=SAMPLES, **options), pools),
        Door(
            "CEAT, `p_value_random_effects`",
            lambda **options: a.CEAT(samples=SAMPLES, **options),
            pools,
            key="p_value_random_effects",
        ),
    ]


def interval_doors() -> list[Door]:
    a = association
    return [
        Door("WEAT", a.WEAT, four_sets),
        Door(
            "WEAT, effect size",
            lambda **options: a.WEAT(return_effect_size=True, **options),
            four_sets,
        ),
        Door("ML-EAT", a.MLEAT, four_sets),
        Door("SC-WEAT", a.SCWEAT, one_target),
        Door("RND, `rnd_corrected`", a.RND, three_sets),
        Door(
            "RND, cosines",
            lambda **options: a.RND(distance="cos", **options),
            three_sets,
        ),
        Door("GWEAT", a.GWEAT, grouped),
        Door("RIPA, of as many pairs as the larger set", a.RIPA, pairs),
        Door(
            "CEAT, `effect_size`",
            lambda **options: a.CEAT(samples=20, **options),
            pools,
        ),
        Door("MAC (mean of the tables)", a.MAC, target_and_groups, None),
        Door("ECT (mean of the tables)", a.ECT, three_sets, None),
        Door("SAME (mean of the tables)", a.SAME, target_and_groups, None),
        Door("direct bias (mean of the tables)", a.DirectBias, aligned_groups, None, SLOW_TABLES),
        Door("RNSB (mean of the tables)", a.RNSB, one_target, None, SLOW_TABLES),
    ]


def small_p_values(door: Door, cell: Cell, tables: int | None = None) -> Rate:
    """Compute how often a two-sided p-value is at most .05."""
    count = tables or door.tables or TABLES
    metric = door.make(p_value_test_type="two-sided", p_value_iterations=DRAWS)
    p_values = []
    for sets in door.draw(cell, door.name, count):
        if door.key == "p_value_random_effects":
            p_values.append(metric.measure(*sets)[door.key])
        else:
            p_values.append(metric.null_distributions(*sets)[door.key].p_value("two-sided", "auto", DRAWS))
    flat = torch.cat([p.flatten() for p in p_values])
    return Rate(float((flat <= LEVEL).double().mean()), count)


def coverage(door: Door, cell: Cell, tables: int | None = None) -> Rate:
    """Compute how often an interval of 95 % holds the truth."""
    count = tables or door.tables or INTERVAL_TABLES
    metric, found = door.make(replicates=REPLICATES), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of biased scores
        for sets in door.draw(cell, door.name, count):
            answer = metric.evaluate(*sets)
            value = answer.get("rnd_corrected", next(iter(answer.values())))
            found.append(torch.stack([value, answer["low"], answer["high"]]))
    value, low, high = torch.cat(found, -1)
    truth: float | Tensor = value.mean() if door.truth is None else door.truth
    return Rate(float(((low <= truth) & (truth <= high)).double().mean()), count)
