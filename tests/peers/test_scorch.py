"""Agreement with scorch, a coreference scorer."""

import random

import pytest

from tensormetrics.structured import CorefScores

scorch = pytest.importorskip("scorch.scores")


def partition(mentions: list[int], generator: random.Random) -> list[set[int]]:
    clusters: dict[int, set[int]] = {}
    for mention in mentions:
        clusters.setdefault(generator.randrange(5), set()).add(mention)
    return list(clusters.values())


@pytest.mark.parametrize(
    ("metric", "theirs"), [("muc", "muc"), ("b_cubed", "b_cubed"), ("ceaf_m", "ceaf_m"), ("ceaf_e", "ceaf_e")]
)
def test_coref_equals_scorch(metric, theirs):
    generator = random.Random(0)
    for _ in range(1000):
        sides = [partition(generator.sample(range(12), generator.randint(6, 12)), generator) for _ in range(2)]
        ours = CorefScores((metric,))
        ours.update_clusters([sides[0]], [sides[1]])
        recall, precision, f1 = getattr(scorch, theirs)(sides[1], sides[0])
        got = [float(value) for value in ours.compute().values()]
        assert got == pytest.approx([precision, recall, f1], abs=1e-9)
