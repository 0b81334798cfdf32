"""A table of 100 models x 10,000 items: all 4,950 comparisons at once, against one `compare` after another.

The comparisons of some pairs are equal, then both ways are timed; the second one on a part of the pairs.
"""

import random
import resource
import time

import torch

from tensormetrics import compare

MODELS, ITEMS, ALONE = 100, 10_000, 40


def models(kind: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hard = torch.rand(ITEMS, generator=generator)
    noise = torch.randn(MODELS, ITEMS, generator=generator)
    scores = hard + 0.2 * noise + torch.arange(MODELS)[:, None] / 1000
    return {f"m{i}": row for i, row in enumerate(scores > 0.5 if kind == "right or wrong" else scores)}


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    for kind in ("right or wrong", "real"):
        given = models(kind)
        before = megabytes()
        start = time.perf_counter()
        table = compare(given)
        seconds = time.perf_counter() - start
        pairs = random.Random(0).sample(table.rows, ALONE)
        start = time.perf_counter()
        for row in pairs:
            a, b = row.split(" - ")
            alone, cell = compare(given[a], given[b]), table[row, "difference"]
            for name in ("difference", "low", "high", "p_value", "p_better"):
                assert torch.allclose(getattr(alone, name), getattr(cell, name), rtol=1e-9, atol=1e-12), (row, name)
        each = (time.perf_counter() - start) / ALONE
        print(
            f"{kind}: {len(table)} comparisons in {seconds:.1f} s and {megabytes() - before:.0f} MB more; "
            f"one after another {each * len(table):.0f} s"
        )


if __name__ == "__main__":
    main()
