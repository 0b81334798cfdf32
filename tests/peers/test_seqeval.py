"""Agreement with seqeval on random tag sequences."""

import random

import pytest

from tensormetrics.structured import SpanScores

seqeval = pytest.importorskip("seqeval.metrics")
TAGS = ("O", *(f"{prefix}-{label}" for prefix in "BIES" for label in ("PER", "LOC")))


@pytest.mark.parametrize("average", ["micro", "types", "weighted"])
def test_tags_equal_seqeval(average):
    generator = random.Random(0)
    pred, ref = [], []
    for _ in range(10_000):
        length = generator.randint(1, 12)
        ref.append(generator.choices(TAGS, k=length))
        pred.append([tag if generator.random() < 0.7 else generator.choice(TAGS) for tag in ref[-1]])
    metric = SpanScores(average=average, labels=None if average == "micro" else ("PER", "LOC"))
    metric.update_tags(pred, ref)
    theirs = {"micro": "micro", "types": "macro", "weighted": "weighted"}[average]
    wanted = [getattr(seqeval, f"{score}_score")(ref, pred, average=theirs) for score in ("precision", "recall", "f1")]
    assert [float(metric.compute()[name]) for name in ("precision", "recall", "f1")] == pytest.approx(wanted, abs=1e-9)
