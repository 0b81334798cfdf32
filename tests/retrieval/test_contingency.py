import re

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import NormalizedMutualInfo, contingency, mutual_info


def test_contingency_small_example_has_expected_counts(device):
    labels, clusters = torch.tensor([[7, 7, -2, 7, 0], [1.5, 9.0, 1.5, 1.5, -0.0]], device=device)
    table = contingency(labels.long(), clusters)
    assert [part.tolist() for part in table[:-1]] == [[0, 1, 2, 2], [1, 0, 1, 2], [1, 1, 2, 1], [1, 1, 3], [1, 3, 1]]
    assert table.total == 5 and all(part.dtype == torch.int64 for part in table[:-1])


def test_contingency_equals_dense_counts(device):
    random = np.random.RandomState(0)
    labels, clusters = random.randint(-3, 4, 90), random.randint(0, 9, 90)
    table = contingency(torch.tensor(labels, device=device), torch.tensor(clusters, device=device))
    dense = np.zeros((len(table.row_size), len(table.col_size)), int)
    dense[table.row.cpu(), table.col.cpu()] = table.count.cpu()
    names = np.unique(labels), np.unique(clusters)
    expected = [[np.sum((labels == a) & (clusters == b)) for b in names[1]] for a in names[0]]
    np.testing.assert_array_equal(dense, expected)
    np.testing.assert_array_equal(table.row_size.cpu(), np.sum(expected, 1))
    np.testing.assert_array_equal(table.col_size.cpu(), np.sum(expected, 0))
    assert (table.count > 0).all()


def test_contingency_batch_pads_shorter_tables(device):
    labels = torch.tensor([[3, 3, 3, 3], [0, 1, 2, 3]], device=device)
    table = contingency(labels, labels.flip(1))
    assert table.count.tolist() == [[4, 0, 0, 0], [1, 1, 1, 1]]
    assert table.row_size.tolist() == table.col_size.tolist() == table.count.tolist()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.uint32, torch.float16, torch.float64])
def test_contingency_accepts_any_label_dtype(dtype, device):
    labels = torch.tensor([1, 0, 1, 1], device=device)
    assert contingency(labels.to(dtype), labels).row_size.tolist() == [1, 3]


def test_contingency_large_labels_stay_distinct(device):
    labels = torch.tensor([2**62, 2**62 + 1, -(2**63)], device=device)
    assert contingency(labels, labels).row_size.tolist() == [1, 1, 1]


def test_contingency_without_items_is_empty(device):
    table = contingency(*torch.zeros(2, 0, device=device))
    assert table.total == 0 and [part.shape for part in table[:-1]] == [(0,)] * 5


def test_contingency_invalid_input_raises(device):
    x = torch.zeros(4, dtype=torch.int64, device=device)
    nan = torch.tensor([0, torch.nan, 1, torch.nan], device=device)
    for inputs, message in (
        ((x, x[:3]), "clusters: got shape (3,), wanted (4,)"),
        ((x[0], x), "labels: got shape (), wanted (..., N)"),
        ((x, x.to("meta")), f"devices differ: labels on {x.device}, clusters on meta; move them with .to(device)"),
        ((nan, x), "labels: 2 of 4 rows hold NaN or infinity, the first is row 1; wanted finite values"),
        (
            (x, (-1 - x).to(torch.uint64)),
            "clusters: got torch.uint64 above 2**63 - 1, wanted integers that int64 can hold, or real numbers",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            contingency(*inputs)
    table = contingency(x, x)
    for arguments in ((x,), (table, x)):
        with pytest.raises(
            ValueError, match=r"^wanted either a Contingency alone or two tensors, labels and clusters$"
        ):
            mutual_info(*arguments)


def test_metric_update_accepts_inputs_of_function(device):
    metric = NormalizedMutualInfo().to(device)
    metric.update([0, 0, 1], np.array([[4.5], [4.5], [2.0]]))
    metric.update(torch.tensor([1], device=device), torch.tensor([2.0], device=device))
    assert float(metric.compute()) == 1
    with pytest.raises(ValueError, match=r"^clusters: got rows of shape \(\) and torch.int64 after"):
        metric.update([1], [2])
    assert len(metric.labels) == len(metric.clusters) == 4


@pytest.mark.parametrize("offset", [0, -7, 2**62])
@pytest.mark.parametrize("classes, groups", [(3, 4), (30, 2), (1, 1), (200, 90)])
def test_contingency_counted_table_equals_sorted_table(classes, groups, offset, device):
    """Cover labels that all occur and labels that do not; the largest shape is sorted in both cases."""
    generator = torch.Generator().manual_seed(classes)
    labels = torch.randint(0, classes, (60,), generator=generator).to(device) + offset
    clusters = torch.randint(0, groups, (60,), generator=generator).to(device) * 2 - offset
    table = contingency(labels, clusters)
    expected = contingency(labels[None].double() if offset < 2**62 else labels[None], clusters[None])
    for part, expected_part in zip(table[:5], expected[:5], strict=True):
        assert torch.equal(part, expected_part[0])
    assert table.total == expected.total == 60
