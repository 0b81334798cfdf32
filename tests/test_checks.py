"""Lists and arrays in the place of tensors are told what to write instead, in every domain."""

import pytest
import torch

from tensormetrics import assignment, association, posterior, retrieval, structured

MATRIX, ROW = [[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cost", lambda: assignment.linear_sum_assignment(MATRIX)),
        ("u", lambda: association.permutation_p_value(ROW, ROW)),
        ("e", lambda: association.random_effects(ROW, ROW)),
        ("x", lambda: association.weat(MATRIX, MATRIX, MATRIX, MATRIX)),
        ("counts", lambda: posterior.sample_metrics(MATRIX, ["acc"], 10)),
        ("counts", lambda: posterior.sample_sums(MATRIX, 10)),
        ("matrices", lambda: posterior.get_metric("acc")(MATRIX)),
        ("samples", lambda: posterior.summarize(ROW)),
        ("labels", lambda: retrieval.adjusted_mutual_info([0, 1], [0, 1])),
        ("query", lambda: retrieval.TorchKNN()(MATRIX, 1)),
        ("query", lambda: retrieval.positive_ranks(MATRIX, [0, 1])),
        ("similarity", lambda: structured.SetMatch().update([[0]], [[0]])),
        ("row_lengths", lambda: assignment.linear_sum_assignment(torch.rand(2, 2, 2), row_lengths=[1, 2])),
        ("mask", lambda: assignment.linear_sum_assignment(torch.rand(2, 2), mask=MATRIX)),
        ("pred_labels", lambda: structured.BoxMatch().update(*torch.rand(2, 3, 4), None, None, [1], [1])),
        ("ref_gain", lambda: structured.RankingScores().update(*torch.ones(2, 1, 3).long(), ref_gain=[ROW])),
    ],
)
def test_a_list_is_no_tensor(name, call):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value) == f"{name}: got a list, wanted a tensor; write torch.as_tensor({name})"


def test_a_sparse_tensor_is_told_what_to_write():
    with pytest.raises(ValueError) as error:
        assignment.linear_sum_assignment(torch.eye(3).to_sparse())
    assert str(error.value) == (
        "cost: got a tensor of layout torch.sparse_coo, wanted a dense one; write cost.to_dense()"
    )
