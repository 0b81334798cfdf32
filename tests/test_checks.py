"""Errors for lists and other wrong arguments name the argument and the call to write instead, in every domain."""

import pytest
import torch

from tensormetrics import assignment, association, posterior, retrieval, structured, uncertainty
from tensormetrics.association.functional import direct_bias
from tensormetrics.posterior.functional import compute_confusion_matrix, sample_metrics, sample_sums, sums_from_matrices
from tensormetrics.uncertainty.statistics import density, heterogeneity

MATRIX, ROW = [[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cost", lambda: assignment.linear_sum_assignment(MATRIX)),
        ("u", lambda: association.functional.permutation_p_value(ROW, ROW)),
        ("e", lambda: association.functional.random_effects(ROW, ROW)),
        ("x", lambda: association.functional.weat(MATRIX, MATRIX, MATRIX, MATRIX)),
        ("counts", lambda: sample_metrics(MATRIX, ["acc"], 10)),
        ("counts", lambda: sample_sums(MATRIX, 10)),
        ("matrices", lambda: posterior.get_metric("acc")(MATRIX)),
        ("labels", lambda: retrieval.functional.adjusted_mutual_info([0, 1], [0, 1])),
        ("query", lambda: retrieval.TorchKNN()(MATRIX, 1)),
        ("query", lambda: retrieval.functional.positive_ranks(MATRIX, [0, 1])),
        ("similarity", lambda: structured.SetMatch().update([[0]], [[0]])),
        ("row_lengths", lambda: assignment.linear_sum_assignment(torch.rand(2, 2, 2), row_lengths=[1, 2])),
        ("mask", lambda: assignment.linear_sum_assignment(torch.rand(2, 2), mask=MATRIX)),
        ("pred_labels", lambda: structured.BoxMatch().update(*torch.rand(2, 3, 4), None, None, [1], [1])),
        ("weights", lambda: sums_from_matrices(torch.eye(2), [MATRIX])),
        ("preds", lambda: posterior.ConfusionPosterior(2).update(ROW, torch.tensor([0, 1]))),
        ("samples", lambda: uncertainty.functional.hdi(ROW)),
        ("samples", lambda: posterior.functional.estimate_i2(MATRIX)),
        ("a", lambda: uncertainty.compare_folds(ROW, ROW)),
        ("a", lambda: uncertainty.compare_samples(ROW, ROW)),
        ("a", lambda: structured.functional.box_iou([ROW * 2], [ROW * 2])),
        ("cross", lambda: structured.functional.normalize(ROW, ROW, ROW)),
        ("adjacency", lambda: structured.functional.reachability(MATRIX)),
        ("similarity", lambda: structured.functional.graph_overlap(MATRIX, torch.eye(2).bool(), torch.eye(2).bool())),
        ("pred_self", lambda: structured.SetMatch().update(torch.rand(1, 2, 2), pred_self=ROW)),
        ("groups", lambda: association.functional.same(torch.rand(2, 3), [MATRIX])),
        ("ref_gain", lambda: structured.RankingScores().update(*torch.ones(2, 1, 3).long(), ref_gain=[ROW])),
    ],
)
def test_list_instead_of_tensor_names_as_tensor_call(name, call):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value) == f"{name}: got a list, wanted a tensor; write torch.as_tensor({name})"


def test_sparse_cost_raises_with_to_dense_call():
    with pytest.raises(ValueError) as error:
        assignment.linear_sum_assignment(torch.eye(3).to_sparse())
    assert str(error.value) == (
        "cost: got a tensor of layout torch.sparse_coo, wanted a dense one; write cost.to_dense()"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: posterior.functional.estimate_i2(x), "samples: got shape (3,), wanted (S, M, ...) of M experiments"),
        (lambda x: uncertainty.functional.hdi(x[0]), "samples: got shape (), wanted samples along dimension 0"),
        (lambda x: uncertainty.functional.hdi(x, dim=1), "samples: got shape (3,), wanted samples along dimension 1"),
        (lambda x: density.kde(x[0]), "samples: got shape (), wanted (S, ...)"),
        (lambda x: density.kde(x, clip=(1.0,)), "clip: got (1.0,), wanted (low, high)"),
        (lambda x: heterogeneity.heterogeneity_pm(x[0], x[0]), "means: got shape (), wanted (M, ...)"),
        (lambda x: uncertainty.compare_folds(x[0], x[0]), "a, b: got shapes () and (), wanted equal ones"),
        (lambda x: posterior.get_metric("acc")(torch.rand(3, 2)), "matrices: got shape (3, 2), wanted (..., C, C)"),
        (lambda x: sums_from_matrices(torch.eye(2), torch.rand(1, 3, 3)), "weights: got shape (1, 3, 3), w"),
        (lambda x: sample_sums(torch.eye(2), 3, names="a"), "names: got 'a', wanted a list of 1, one for"),
        (lambda x: sample_sums(torch.eye(2), 3, names=[1]), "name: got 1, wanted a text; write '1'"),
        (lambda x: sample_metrics(torch.eye(2), None, 3), "metrics: got None, wanted a name such as 'acc'"),
        (lambda x: uncertainty.compare_samples(x, x[:2]), "b: got shape (2,), wanted (3,)"),
        (lambda x: structured.functional.box_iou(x, x), "a: got shape (3,), wanted (..., N, 4)"),
        (lambda x: structured.functional.box_iou(torch.rand(2, 1, 4), torch.rand(3, 1, 4)), "got (2,) of a, (3,) of b"),
        (lambda x: structured.SetMatch().update(torch.rand(2, 1, 1), ref_self=x), "ref_self: got shape (3,), wanted ("),
        (lambda x: structured.SpanScores(labels="PER"), "labels: got the text 'PER', wanted a list; write ['PER']"),
        (lambda x: structured.read_tags([["O"]], labels="PER"), "labels: got the text 'PER', wanted a list"),
        (lambda x: direct_bias(torch.rand(2, 3), torch.ones(2, 2, 3).long()), "groups: got torch.int64"),
        (lambda x: assignment.linear_sum_assignment(torch.eye(2), maximize="max"), "maximize: got 'max', wanted one"),
        (lambda x: assignment.linear_sum_assignment(torch.eye(2), unmatched_cost="1"), "unmatched_cost: got '1', want"),
        (lambda x: structured.RankingScores(ks=5), "ks: got 5, wanted a list"),
        (lambda x: structured.RankingScores(scores="ap"), "scores: got the text 'ap', wanted a list; write ['ap']"),
        (lambda x: structured.CorefScores(metrics="muc"), "metrics: got the text 'muc', wanted a list; write ['muc']"),
        (lambda x: structured.BoxMatch(threshold="0.5"), "threshold: got the text '0.5', wanted a list"),
        (lambda x: structured.micro_average(["f1macro"]), "; write macro_average(['f1'])"),
        (lambda x: structured.macro_average(["micro_f1"]), "; write micro_average(['f1'])"),
        (lambda x: structured.extend.FScore("1"), "beta: got '1', wanted a positive finite number"),
        (lambda x: structured.read_triples([("a", "b")]), "triples: got ('a', 'b'), wanted (source, role, target)"),
        (lambda x: structured.ner_report([["B-A"]], [["B-A"]], digits=-1), "digits: got -1, wanted an integer >= 0"),
        (lambda x: structured.SpanScores(avrage="micro"), "SpanScores: got the argument 'avrage', wanted one of"),
        (lambda x: structured.SpanScores(avrage="micro"), "replicates, seed; write average"),
        (lambda x: structured.SetMatch(policies="x"), "wanted one of constraint, scores, average, policy, empty,"),
        (lambda x: posterior.ConfusionPosterior(3, metric="acc"), "ConfusionPosterior: got the argument 'metric'"),
        (lambda x: association.WEAT(colour=1), "WEAT: got the argument 'colour', wanted one of "),
        (lambda x: compute_confusion_matrix([1.0, torch.nan], [1, 0]), "none of the labels [0.0, 1.0]"),
        (lambda x: assignment.pairs(torch.eye(2)), "write pairs(linear_sum_assignment(cost))"),
    ],
)  # fmt: skip
def test_invalid_argument_raises_with_its_name(call, message):
    with pytest.raises((TypeError, ValueError)) as error:
        call(torch.tensor([0.2, 0.4, 0.5]))
    assert message in str(error.value)
