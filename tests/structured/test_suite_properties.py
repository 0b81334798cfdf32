"""Common properties of suites: independence of padding, order and shape of a batch; swapped inputs swap scores."""

import itertools

import pytest
import torch
from cases.structured import METRICS
from torch import Tensor

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
    if name not in ("Family", "FieldScores", "Suite"):  # which take lists of documents
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
