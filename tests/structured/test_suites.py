"""Bootstrap, conventions and properties of the suites, beyond golden values."""

import itertools

import pytest
import torch
from cases.structured import METRICS
from raising import raises
from torch import Tensor

from tensormetrics.structured import (
    BoxMatch,
    CorefScores,
    MultisetMatch,
    RankingScores,
    SpanScores,
)


def test_macro_leaves_out_nan():
    metric = MultisetMatch(average="macro", zero_division=float("nan"))
    metric.update(torch.tensor([[1], [1]]), torch.tensor([[1], [1]]), n_pred=torch.tensor([1, 0]))
    scores = {name: float(value) for name, value in metric.compute().items()}
    assert scores == {"precision": 1, "recall": 0.5, "f1": 0.5}


def test_coref_scores_invalid_clusters_raise():
    metric = CorefScores()
    with raises(ValueError, "preds: document 'wsj_0001': mention 'a' is in two clusters; repeated_mentions='first' or "
                "'largest' chooses one of them"):  # fmt: skip
        metric.update_clusters([[["a"], ["a"]]], [[]], names=["wsj_0001"])
    with pytest.raises(ValueError, match="^lengths differ: preds has 1, names has 2$"):
        metric.update_clusters([[]], [[]], names=["a", "b"])
    for clusters, got in ((["ab"], "'ab'"), ([3], "3")):
        with raises(TypeError, f"preds: document 0: got the cluster {got}, wanted a collection of mentions"):
            metric.update_clusters([clusters], [[]])


def test_coref_scores_repeated_mention_is_assigned_to_one_cluster():
    pred, ref = [["a", "b"], ["b", "c", "b"], ["c", "d", "e", "b"], ["b", "x", "y", "z"]], [["a", "b"], ["c", "d"]]
    for repeated, cleaned in (
        ("first", [["a", "b"], ["c"], ["d", "e"], ["x", "y", "z"]]),
        ("largest", [["a"], [], ["c", "d", "e", "b"], ["x", "y", "z"]]),
    ):
        metric, expected = CorefScores(repeated_mentions=repeated), CorefScores()
        metric.update_clusters([pred], [ref])
        expected.update_clusters([cleaned], [ref])
        assert metric.compute() == expected.compute()
        metric.update_clusters([ref], [pred])  # references too
        expected.update_clusters([ref], [cleaned])
        assert metric.compute() == expected.compute()
    with pytest.raises(ValueError, match="repeated_mentions: got 'last', wanted one of 'raise', 'first', 'largest'"):
        CorefScores(repeated_mentions="last")


@pytest.mark.filterwarnings("ignore:(pred|ref). tags do not fit")
@pytest.mark.parametrize("mode", ["lenient", "iob1", "iob2", "ioe1", "ioe2", "iobes", "bilou"])
def test_tags_as_numbers(mode, generator):
    vocabulary = ["O", *(f"{prefix}-{label}" for prefix in "BIES" for label in "XY")]
    pred, ref = (torch.randint(0, len(vocabulary), (20, 12), generator=generator) for _ in range(2))
    ignored = torch.rand(20, 12, generator=generator) < 0.2
    from_text, from_ids = (SpanScores(average="types", labels=("Y", "X")) for _ in range(2))
    inputs = [
        [
            [vocabulary[tag] for tag, out in zip(*row, strict=True) if not out]
            for row in zip(part.tolist(), ignored.tolist(), strict=True)
        ]
        for part in (pred, ref)
    ]
    from_text.update_tags(*inputs, mode)
    from_ids.update_tags(pred, ref.where(~ignored, -100), mode, vocabulary)
    assert from_ids.compute() == from_text.compute()


def test_ranking_scores_conventions_match_hand_computation():
    metric = RankingScores((2,), ("precision", "recall", "ap"), zero_division=float("nan"))
    metric.update(torch.tensor([[3, 3, 4]]), torch.tensor([[3, 4]]))  # a repeated prediction is a miss
    metric.update(torch.tensor([[3, 4]]), torch.tensor([[3]]), n_ref=torch.tensor([0]))
    scores = {name: float(value) for name, value in metric.compute().items()}
    assert scores == pytest.approx({"precision@2": 0.25, "recall@2": 0.5, "ap@2": 0.5, "ap": 5 / 6})


def test_ranking_without_references(generator):
    """Nothing found where nothing was to be found is right under "agree", and only there."""
    pred = torch.randint(0, 9, (2, 12), generator=generator)
    for zero_division, expected in (("agree", 0.5), (0.25, 0.25), (1, 1)):
        metric = RankingScores((2,), ("recall", "ap", "ndcg", "r_precision"), zero_division)
        metric.update(pred, pred, torch.tensor([0, 3]), torch.tensor([0, 0]))
        assert {float(value) for value in metric.compute().values()} == {expected}


def test_several_thresholds_and_formats():
    ref = torch.tensor([[0.0, 0.0, 2.0, 2.0]])
    for format, pred in (
        ("xyxy", [0.0, 0.0, 2.0, 1.4]),
        ("xywh", [0.0, 0.0, 2.0, 1.4]),
        ("cxcywh", [1.0, 0.7, 2.0, 1.4]),
    ):
        ours = BoxMatch((0.5, 0.75), format=format)
        theirs = ref if format != "cxcywh" else torch.tensor([[1.0, 1.0, 2.0, 2.0]])
        ours.update(torch.tensor([pred]), theirs)
        scores = ours.compute()
        assert (scores["f1@0.5"], scores["f1@0.75"]) == (1, 0)
        assert float(scores["mean_iou@0.5"]) == pytest.approx(0.7, rel=1e-6)


N = 24
LENGTHS = ("MultisetMatch", "RankingScores", "BoxMatch", "SpanScores", "RelationScores", "EventScores")
SYMMETRIC = ("MultisetMatch", "BoxMatch", "SpanScores", "RelationScores", "EventScores", "CorefScores")


def scored(name: str, inputs: tuple[Tensor, ...]) -> dict[str, float]:
    metric = METRICS[name].make()
    metric.update(*inputs)
    return {key: float(value) for key, value in metric.compute().items()}


@pytest.fixture
def inputs(name: str, generator: torch.Generator) -> tuple[Tensor, ...]:
    return METRICS[name].inputs(generator, N)


@pytest.mark.parametrize(
    ("name", "garbage"), [*itertools.product(LENGTHS, (0, 1, 2**40, -3)), ("BoxMatch", float("nan"))]
)
def test_padding_never_matters(name, inputs, garbage):
    """Arguments are tables, then the lengths of each."""
    tables, lengths = inputs[: len(inputs) // 2], inputs[len(inputs) // 2 :]
    padded = []
    for table, length in zip(tables, lengths, strict=True):
        wide = torch.cat([table, table[:, :2]], 1)
        valid = torch.arange(wide.shape[1]) < length[:, None]
        padded.append(wide.where(valid.view(*valid.shape, *[1] * (wide.ndim - 2)), garbage))
    assert scored(name, (*padded, *lengths)) == scored(name, inputs)


@pytest.mark.parametrize("name", ["SetMatch", "SequenceMatch"])
@pytest.mark.parametrize("garbage", [1.0, float("nan"), float("inf"), -float("inf")])
def test_padding_of_similarities_never_matters(name, inputs, garbage):
    similarity, *lengths = inputs
    wide = torch.nn.functional.pad(similarity, (0, 2, 0, 2))
    rows, columns = (torch.arange(size) < n[:, None] for size, n in zip(wide.shape[1:], lengths, strict=True))
    padded = wide.where(rows[:, :, None] & columns[:, None], garbage)
    assert scored(name, (padded, *lengths)) == scored(name, inputs)


@pytest.mark.parametrize("name", METRICS)
def test_documents_in_any_order_and_shape(name, inputs, generator):
    expected = pytest.approx(scored(name, inputs), rel=1e-12)
    order = torch.randperm(N, generator=generator)
    assert scored(name, tuple(t[order] for t in inputs)) == expected
    if name not in ("Family", "FieldScores"):  # which take lists of documents
        assert scored(name, tuple(t.unflatten(0, (2, 3, 4)) for t in inputs)) == expected


@pytest.mark.parametrize("name", SYMMETRIC)
def test_suites_swapped_inputs_swap_precision_and_recall(name, inputs):
    indices = [index ^ 1 for index in range(len(inputs))]  # predictions and references take turns
    result = scored(name, tuple(inputs[index] for index in indices))
    other = {"precision": "recall", "recall": "precision"}
    for key, value in scored(name, inputs).items():
        head, dash, score = key.rpartition("-")
        score, bracket, label = score.partition("[")
        mirrored = head + dash + other.get(score, score) + bracket + label
        if "blanc" not in key:  # it asks which links the reference has
            assert result[mirrored] == pytest.approx(value), key


@pytest.mark.parametrize("name", ["MultisetMatch", "BoxMatch", "SpanScores", "RelationScores"])
def test_items_in_any_order(name, inputs, generator):
    tables, lengths = inputs[: len(inputs) // 2], inputs[len(inputs) // 2 :]
    shuffled = []
    for table, length in zip(tables, lengths, strict=True):
        index = torch.rand(table.shape[:2], generator=generator)
        order = (index + 2 * (torch.arange(table.shape[1]) >= length[:, None])).argsort(1)
        shuffled.append(table[torch.arange(N)[:, None], order])
    assert scored(name, (*shuffled, *lengths)) == pytest.approx(scored(name, inputs), rel=1e-12)
