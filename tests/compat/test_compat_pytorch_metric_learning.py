"""The page on AccuracyCalculator of pytorch-metric-learning, with imports from `compat`."""

import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from documents import code_blocks, with_our_imports

from tensormetrics import retrieval
from tensormetrics.compat import pytorch_metric_learning as pml

BLOCKS = code_blocks("pytorch_metric_learning_accuracy_calculation.md")
CANNOT_RUN = {  # block -> its error with that package, too, and why
    2: (SyntaxError, "a signature alone"),
    5: (SyntaxError, "commas are missing"),
}
PACKAGE = "pytorch_metric_learning."
NEED_PACKAGE = {1: "its distance", 8: "its tester"}


@pytest.fixture
def rows(device):
    labels = torch.arange(40, device=device) % 4
    return torch.eye(4, device=device)[labels] + 0.4 * torch.randn(40, 4, device=device), labels


@pytest.fixture
def names(rows):
    embeddings, labels = rows
    given = {"query_embeddings": embeddings[:10], "query_labels": labels[:10], "reference_embeddings": embeddings}
    given |= {"reference_labels": labels, "fancy_computations": 0.25, "query": embeddings[:10], "reference": embeddings}
    return given | {"torch": torch, "e": True, "cluster_labels": labels}


def run(names, *numbers):
    for number in numbers:
        exec(with_our_imports(BLOCKS[number], "pytorch_metric_learning"), names)
    return names


def test_blocks_of_page_run(names):
    for number in sorted({*range(len(BLOCKS))} - NEED_PACKAGE.keys()):
        with pytest.raises(CANNOT_RUN[number][0]) if number in CANNOT_RUN else nullcontext():
            run(names, number)
    assert (len(BLOCKS), len(CANNOT_RUN), len(NEED_PACKAGE)) == (11, 2, 2)
    assert type(names["calculator"]).__mro__[1] is retrieval.AccuracyCalculator is names["AccuracyCalculator"]


def test_custom_metrics_of_page_join_built_in_ones(names, rows):
    scores = run(names, 3, 7)["acc_dict"]
    built_in = retrieval.AccuracyCalculator(("precision_at_2", *retrieval.AccuracyCalculator().selected))
    expected = built_in.get_accuracy(*(names[name] for name in ("query_embeddings", "query_labels")), *rows, True)
    assert scores == pytest.approx({**expected, "fancy_mutual_info": 0.25})
    assert {type(value) for value in scores.values()} == {float}
    assert list(scores) == names["calculator"].get_curr_metrics()
    calculator = names["YourCalculator"]()
    calculator.update(*rows)
    assert calculator.compute().keys() == scores.keys()


def test_comparison_functions_of_page_define_relevance(names):
    options = {"exclude": ("NMI", "AMI"), "device": torch.device("cpu")}
    for number in (9, 10):
        is_relevant, labels = (run(names, number)[name] for name in ("label_comparison_fn", "labels"))
        positions = torch.arange(len(labels), dtype=torch.float32)[:, None] ** 2
        relevant = is_relevant(labels[:, None], labels[None]).fill_diagonal_(False)
        nearest = (positions - positions.T).abs().fill_diagonal_(torch.inf).argmin(1)
        scored = relevant.any(1)
        expected = relevant[torch.arange(len(labels)), nearest][scored].double().mean()
        calculator = pml.AccuracyCalculator(**options, label_comparison_fn=is_relevant)
        assert calculator.get_accuracy(positions, labels)["precision_at_1"] == float(expected)
        assert len(labels) - int(scored.sum()) == 1


@pytest.mark.parametrize("batch_size", [None, 7])
def test_search_by_function_returns_its_order(batch_size, rows):
    def similarity(x, y):
        return x @ y.mT

    similarity.is_inverted = True
    embeddings, _ = rows
    distances, indices = pml.CustomKNN(similarity, batch_size=batch_size)(embeddings, 3, embeddings, True)
    expected = similarity(embeddings, embeddings).fill_diagonal_(-torch.inf).topk(3)
    assert torch.equal(indices, expected.indices)
    torch.testing.assert_close(distances, expected.values)


def test_helpers_of_subclasses_select_and_average():
    labels = torch.tensor([[0], [0], [1]])
    mask, counts = pml.get_relevance_mask((3, 4), labels, True, (torch.tensor([0, 1]), torch.tensor([3, 2])))
    assert mask.int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]] and counts.tolist() == [2, 2, 1]
    scores = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    averages = [pml.maybe_get_avg_of_avgs(scores, labels, *flags) for flags in ((0, 0), (True, 0), (0, True))]
    assert averages == [pytest.approx(2 / 3), 0.75, [0.5, 1.0]]
    lone = torch.tensor([False, True, True])
    assert [kept.tolist() for kept in pml.try_getting_not_lone_labels(mask, labels, lone)] == [
        mask[1:].tolist(),
        [[0], [1]],
    ]
    assert pml.try_getting_not_lone_labels(mask, labels, ~mask[:, 0]) == (None, None)
    assert np.isnan([pml.nan_accuracy(labels, False), *pml.nan_accuracy(labels, True)]).tolist() == [True] * 4


def test_distance_and_tester_of_page_are_those_of_the_package(names, rows):
    pytest.importorskip("pytorch_metric_learning")
    run(names, 0, 1, 3, 8)
    assert type(names["t"].accuracy_calculator) is names["YourCalculator"]
    x, y = (side.double() for side in rows[0].split([10, 30]))
    x, y = (torch.nn.functional.normalize(side, dim=1) for side in (x, y))
    noise = (x[:, None] - y).var(-1) / x.var(-1)[:, None]
    assert torch.equal(names["knn_func"](x, 5, y)[1], noise.argsort(1)[:, :5])
    for module, listed in pml.OF_PACKAGE.items():
        assert all(getattr(pml, name).__module__.startswith(PACKAGE + module) for name in listed.split())


def test_unknown_name_and_missing_package_raise(monkeypatch):
    with pytest.raises(AttributeError, match="has no attribute 'losses'"):
        pml.__getattr__("losses")
    for name in PACKAGE.rstrip("."), PACKAGE + "distances":
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="^SNRDistance is in that package: pip install pytorch-metric-learning$"):
        pml.__getattr__("SNRDistance")
