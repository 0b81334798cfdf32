"""`dsl.mean`: the weighted mean over the fields that one of both values has."""

import pickle
import random
from dataclasses import asdict, dataclass, field

import pytest
import torch

from tensormetrics.structured import Family, dsl, evaluate, micro_average
from tensormetrics.structured.fields import weight


@dataclass
class Doc:
    title: str | None = None
    year: int | None = None
    tags: list[str] = field(default_factory=list)


METRIC = dsl.mean[Doc](
    {"title": ..., "year": ..., "tags": dsl.set_matching[str, "<->", "f1"](dsl.discrete[str])}, weights={"title": 3}
)


def random_docs(count, seed):
    generator = random.Random(seed)
    return [
        Doc(generator.choice(["a", "b", None]), generator.choice([1, 2, None]), generator.choices("xyz", k=n % 4))
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("pred", "ref", "score"),
    [
        (Doc("a", 1, ["x"]), Doc("a", 1, ["x"]), 1),
        (Doc("a", 1, ["x"]), Doc("a", 2, ["x"]), 4 / 5),
        (Doc("a"), Doc("a"), 1),  # fields that neither has are left out
        (Doc("a"), Doc("a", 1), 3 / 4),
        (Doc("a", 1, ["x", "y"]), Doc("b", 1, ["y"]), (1 + 2 / 3) / 5),
        (Doc(), Doc(), 1),
        (Doc(), Doc("a"), 0),
    ],
)
def test_hand_worked_means(pred, ref, score):
    assert METRIC.score(pred, ref) == METRIC.score(ref, pred) == pytest.approx(score)
    assert METRIC([pred, ref], [ref, ref]).tolist() == pytest.approx([score, 1])


def test_means_are_the_similarities_of_documents_of_evaluate():
    preds, refs = random_docs(200, 0), random_docs(200, 1)
    report = evaluate(preds, refs, Doc, fields={"title": weight(3)}, replicates=0)
    assert [row.similarity for row in report.documents] == pytest.approx(METRIC(preds, refs).tolist(), abs=1e-12)
    single = torch.stack([METRIC([pred], [ref])[0] for pred, ref in zip(preds, refs, strict=True)])
    assert torch.equal(single, METRIC(preds, refs))
    report = evaluate([asdict(pred) for pred in preds], refs, Doc, fields={"title": weight(3)}, replicates=0)
    assert [row.similarity for row in report.documents] == pytest.approx(METRIC(preds, refs).tolist(), abs=1e-12)


def test_items_of_collections_are_matched_by_their_means():
    metric = dsl.set_matching[Doc, "<->", "f1"](METRIC)
    a, b, c = Doc("a", 1), Doc("b", 2), Doc("a", 2)
    assert metric.score([a, b], [c, b]) == pytest.approx((3 / 4 + 1) / 2)
    family = Family(pickle.loads(pickle.dumps(metric)), micro_average(["f1"]))
    family.update([[a, b]], [[c, b]])
    assert family.compute()["f1"] == pytest.approx((3 / 4 + 1) / 2)
    score, matching = metric.compute([a, b], [c, b])
    assert score == pytest.approx((3 / 4 + 1) / 2) and len([*matching]) > 2


def test_weights_are_checked():
    with pytest.raises(ValueError, match="weights: got the field 'yea', wanted one of title, year"):
        dsl.mean[Doc]({"title": ..., "year": ...}, weights={"yea": 1})
    with pytest.raises(ValueError, match=r"weights\['year'\]: got -1"):
        dsl.mean[Doc]({"year": ...}, weights={"year": -1})
    with pytest.raises(ValueError, match="dataclass: got the field 'name'"):
        dsl.mean[Doc]({"name": ...})
    assert dsl.mean[Doc]({"title": ..., "year": ...}, weights={"year": 0}).score(Doc("a", 1), Doc("a", 2)) == 1
