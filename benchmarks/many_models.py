"""Claim: all 4,950 comparisons of 100 models on 10,000 items take under 3 s and 500 MB. Rival: a loop of `compare`.

Results of some pairs are asserted to be equal, then both are timed; the loop on a part of the pairs.
"""

import random
import resource
import time
from collections.abc import Iterator

import torch
from _common import Table, arguments

from tensormetrics import compare

DEVICES = ("cpu",)
SIZES = {False: (100, 10_000, 40), True: (10, 1000, 5)}  # models, items, pairs of the loop; by `--quick`


def models(kind: str, count: int, items: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hard = torch.rand(items, generator=generator)
    noise = torch.randn(count, items, generator=generator)
    scores = hard + 0.2 * noise + torch.arange(count)[:, None] / 1000
    return {f"m{i}": row for i, row in enumerate(scores > 0.5 if kind == "right or wrong" else scores)}


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rows(count: int, items: int, num_single: int) -> Iterator[tuple[str, ...]]:
    for kind in ("right or wrong", "real"):
        scores = models(kind, count, items)
        before, start = megabytes(), time.perf_counter()
        table = compare(scores)
        seconds, memory = time.perf_counter() - start, megabytes() - before
        pairs = random.Random(0).sample(table.rows, num_single)
        start = time.perf_counter()
        for row in pairs:
            a, b = row.split(" - ")
            single, cell = compare(scores[a], scores[b]), table[row, "difference"]
            for name in ("difference", "low", "high", "p_value", "p_better"):
                assert torch.allclose(getattr(single, name), getattr(cell, name), rtol=1e-9, atol=1e-12), (row, name)
        per_pair = (time.perf_counter() - start) / num_single
        singly = per_pair * len(table)
        yield kind, str(len(table)), f"{seconds:.2f}", f"{memory:.0f}", f"{singly:.0f}", f"{singly / seconds:.0f}"


def main() -> None:
    options = arguments(__doc__, DEVICES)
    count, items, num_single = SIZES[options.quick]
    columns = ("scores", "comparisons", "seconds", "MB more", "seconds one by one", "ratio")
    notes = f"{count} models, {items} items; the last time is that of {num_single} pairs, times the number of pairs."
    table = Table(options, "Comparisons of many models", columns, notes)
    table.add(rows(count, items, num_single))
    table.finish()


if __name__ == "__main__":
    main()
