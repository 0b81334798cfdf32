"""Non-finite floating arguments never give plausible finite values, for each row of the table.

Functions that synchronize raise a ValueError, others return NaN or an infinity, unless DOCUMENTED has another meaning.
In the padding, and for the other documents of the batch, non-finite values have no effect.
"""

import math

import pytest
import torch
from cases import FUNCTIONS, METRICS
from torch.utils._pytree import tree_leaves

from tensormetrics import structured
from tensormetrics.assignment import LinearAssignment, linear_sum_assignment

DOCUMENTED = {  # (name, value): documented meaning
    ("assignment.linear_sum_assignment", math.inf): "forbids a pair",
    ("structured.set_overlap", -math.inf): "forbids a pair",
    ("structured.sequence_overlap", -math.inf): "forbids a pair",
    ("structured.graph_overlap", -math.inf): "forbids a pair",
    ("structured.SetMatch", -math.inf): "forbids a pair",
    ("structured.SequenceMatch", -math.inf): "forbids a pair",
}
VALUES = pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)


def of_domains(table):
    return {name: case for name, case in table.items() if name.startswith(("structured.", "assignment."))}


def is_floating(argument):
    return isinstance(argument, torch.Tensor) and argument.is_floating_point()


def lengths_of(arguments):
    """The two last arguments where they say how many entries count, filled up: one document has to have some."""
    return [a for a in arguments if not is_floating(a) and a.ndim == 1 and a.dtype == torch.int64]


def full(case, generator, batch):
    """The arguments of a row, with lengths that let everything count."""
    arguments = list(case.inputs(generator, batch))
    for index, argument in enumerate(arguments):
        if any(argument is length for length in lengths_of(arguments)):
            arguments[index] = torch.full_like(argument, 3)
    return arguments


@VALUES
@pytest.mark.parametrize("name", [name for name in of_domains(FUNCTIONS) if name != "structured.multiset_overlap"])
def test_functions_nonfinite_inputs_stay_local(name, value, generator):
    case, batch = FUNCTIONS[name], (4,)
    arguments = full(case, generator, batch)
    clean = case.call(*arguments)
    indices = [index for index, argument in enumerate(arguments) if is_floating(argument)]
    if not indices:
        pytest.skip("takes no floating tensor")
    for index in indices:
        spoilt = [argument.clone() for argument in arguments]
        spoilt[index][2].view(-1)[0] = value
        result = case.call(*spoilt)
        for before, after in zip(clean, result, strict=True):
            finite_rows = [0, 1, 3]
            torch.testing.assert_close(before[finite_rows], after[finite_rows], rtol=1e-12, atol=1e-12)
        unlike = any(leaf[2].is_floating_point() and not leaf[2].isfinite().all() for leaf in result)
        assert unlike != ((name, value) in DOCUMENTED), (index, [leaf[2] for leaf in result])


@VALUES
@pytest.mark.parametrize("name", of_domains(METRICS))
def test_metrics_nonfinite_inputs_stay_local(name, value, generator):
    case = METRICS[name]
    arguments = full(case, generator, 4)
    indices = [index for index, argument in enumerate(arguments) if is_floating(argument)]
    if not indices:
        pytest.skip("takes no floating tensor")
    for index in indices:
        spoilt = [argument.clone() for argument in arguments]
        spoilt[index][2].view(-1)[0] = value
        metric = case.make()
        metric.update(*spoilt)
        scores = tree_leaves(metric.compute())
        assert any(not score.isfinite() for score in scores) != ((name, value) in DOCUMENTED)
        padded, clean = case.make(), case.make()
        lengths = [torch.zeros_like(a) if a.dtype == torch.int64 and a.ndim == 1 else a for a in spoilt]
        padded.update(*lengths)
        clean.update(*[lengths[n] if n != index else arguments[n] for n in range(len(arguments))])
        assert [float(x) for x in tree_leaves(padded.compute())] == [float(x) for x in tree_leaves(clean.compute())]


@VALUES
@pytest.mark.parametrize("objective", ["iou", "count"])
@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("coordinate", range(4))
@pytest.mark.parametrize("format", ["xyxy", "xywh", "cxcywh"])
def test_box_match_nonfinite_box_gives_nan(value, objective, part, coordinate, format):
    boxes = [torch.tensor([[[0.0, 0, 2, 2], [5, 5, 2, 2]]]), torch.tensor([[[0.0, 0, 2, 2], [5, 5, 2, 3]]])]
    if format == "xyxy":
        boxes = [torch.cat([box[..., :2], box[..., :2] + box[..., 2:]], -1) for box in boxes]
    boxes[part][0, 1, coordinate] = value
    for labels in ({}, {"pred_labels": torch.tensor([[0, 1]]), "ref_labels": torch.tensor([[0, 2]])}):
        metric = structured.BoxMatch((0.5, 0.0), format=format, objective=objective)
        metric.update(*boxes, **labels)
        assert all(score.isnan() for score in metric.compute().values())
    lengths = {("n_pred", "n_ref")[part]: torch.tensor([1])}
    metric.reset()
    metric.update(*boxes, **lengths)
    assert metric.compute()["f1@0"] == 2 / 3
    macro = structured.BoxMatch(average="macro", format=format, objective=objective)
    macro.update(*(torch.cat([box, box[:, [0, 0]]]) for box in boxes))
    assert macro.compute()["f1"].isfinite()  # documents whose score is NaN are left out, as CountMetric says


def test_boxes_too_large_for_their_dtype():
    box = torch.tensor([[0.0, 0, 1e30, 1e30]])
    assert structured.box_iou(box, box).isnan().all() and structured.box_iou(box.double(), box.double()) == 1
    assert structured.box_iou(box, torch.tensor([[-2.0, -2, -1, -1]])).isnan().all()


@VALUES
def test_set_match_nonfinite_self_overlap_propagates(value):
    """Scores that read a non-finite self-overlap are not finite; the other scores are unchanged."""
    metric = structured.SetMatch("~")
    self = torch.tensor([value])
    metric.update(torch.eye(2)[None], pred_self=self, ref_self=torch.tensor([2.0]))
    scores = metric.compute()
    assert scores["recall"] == 1 and not scores["precision"].isfinite() and not scores["f1"].isfinite()


@VALUES
def test_ranking_scores_nonfinite_gain_propagates(value):
    metric = structured.RankingScores((1, 3), ("precision", "ndcg"))
    keys = torch.tensor([[1, 2, 3]])
    metric.update(keys, torch.tensor([[1, 4, 5]]), ref_gain=torch.tensor([[1.0, value, 2]]))
    scores = metric.compute()
    assert scores["precision@3"] == 1 / 3 and scores["ndcg@1"].isnan() and scores["ndcg@3"].isnan()
    metric.reset()
    metric.update(keys, torch.tensor([[1, 4, 5]]), n_ref=torch.tensor([1]), ref_gain=torch.tensor([[1.0, value, 2]]))
    assert metric.compute()["ndcg@3"] == 1
    with pytest.raises(ValueError, match=r"gains\[0\]\[1\]: got (nan|inf|-inf), wanted a finite number"):
        metric.update_rankings(structured.dsl.ranking[3](structured.dsl.auto[int]), [[1]], [[1, 2]], [[1.0, value]])


@VALUES
def test_solver_nonfinite_costs_raise_with_check(value):
    cost = torch.rand(2, 3, 3)
    cost[1, 0, 0] = value
    for maximize in (False, True):
        forbids = value == (-math.inf if maximize else math.inf)
        for solve in (lambda **o: linear_sum_assignment(cost, **o), lambda **o: LinearAssignment(**o)(cost)):
            if forbids:
                assert solve(maximize=maximize).cost.isfinite().all()
                continue
            with pytest.raises(ValueError, match=r"cost: problem \(1,\) contains NaN or"):
                solve(maximize=maximize)
            assert solve(maximize=maximize, check=False).cost.isfinite().tolist() == [True, False]


@VALUES
def test_dsl_nonfinite_similarity_raises(value):
    """A user's similarity and numbers; -inf forbids a pair, and an infinite number is the function's to judge."""
    mm = structured.dsl
    if value > -math.inf or math.isnan(value):
        with pytest.raises(ValueError, match="from_func: got (nan|inf) for .*, wanted a number below infinity"):
            mm.set_matching[int](mm.from_func(lambda x, y: value)).score([1], [2])
    else:
        assert mm.set_matching[int](mm.from_func(lambda x, y: value)).score([1], [2]) == 0
    if math.isnan(value):
        with pytest.raises(ValueError, match=r"preds\[0\]\[0\]: got nan, wanted float"):
            mm.set_matching[float](mm.auto[float]).score([value], [1.0])
        with pytest.raises(ValueError, match="got nan, wanted a number"):
            mm.set_matching[float](mm.tensor_func(lambda x, y: (x == y).double()[:, 0])[float]).score([value], [1.0])
