"""Non-finite values where tests/cases/ has no argument for them never give plausible finite ones."""

import math

import pytest
import torch

from tensormetrics import structured
from tensormetrics.structured import functional

VALUES = pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)


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
    assert functional.box_iou(box, box).isnan().all() and functional.box_iou(box.double(), box.double()) == 1
    assert functional.box_iou(box, torch.tensor([[-2.0, -2, -1, -1]])).isnan().all()


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
