"""What `print` and `dir` show of everything that is public."""

import functools
from dataclasses import dataclass

import pytest
import torch
from cases import METRICS, PUBLIC

from tensormetrics import association, posterior, retrieval, structured, uncertainty

ROWS = torch.tensor([[0.0], [0.1], [5.0], [5.3]])
MATRIX = [[8, 2], [1, 9]]


@structured.metametric(normalizer="f1")
@dataclass
class Bag:
    items: list[str]


def trained():
    knn = retrieval.TorchKNN("cosine", exact=False)
    knn.train(ROWS)
    return knn


def study():
    made = posterior.Study(seed=3, metrics={"acc": {}, "f1@macro": {}})
    made.add_experiment("mlp/fold", MATRIX)
    return made


RUN = {"a": {"x": 2.0, "y": 1.0}, "b": {"x": 1.0}}
QRELS = {"a": {"y": 1}, "b": {"x": 1}}
# Calls that are shown as they are written.
CALLS = [
    "HungarianMatcher(cost_class=2, class_cost='focal')",
    "MulticlassHardDebias(pca_args={'n_components': 3})",
    "ShardedKNN(knn=TorchKNN(distance='cosine'))",
    "TorchKMeans(niter=3, seed=7)",
]
# Other instances of classes that are no metrics of tests/cases, and what their text holds.
OBJECTS = {
    "association.WordEmbeddingModel": (
        lambda: association.WordEmbeddingModel.from_tensor(ROWS, list("abcd")),
        "4 word embeddings of 1 dims",
    ),
    "posterior.Experiment": (lambda: study()["mlp/fold"], "Experiment('mlp/fold', items=20, classes=2)"),
    "posterior.Study": (study, "Study(seed=3)\n  mlp/fold: 20 items\n  metrics: acc, f1@macro"),
    "retrieval.RunScores": (
        lambda: retrieval.evaluate_run(RUN, QRELS, ["map", "num_ret"]),
        "RunScores(queries=2, map=0.75, num_ret=3)",
    ),
    "retrieval.StoredKNN": (
        lambda: retrieval.StoredKNN(torch.tensor([[0, 1]]), distance="cosine"),
        "StoredKNN(indices=tensor of (1, 2), distance='cosine', queries=1, k=2)",
    ),
    "retrieval.TorchKNN": (trained, "TorchKNN(distance='cosine', exact=False, references=4)"),
    "structured.Matching": (
        lambda: structured.metric_of(Bag).compute(Bag(["a"]), Bag(["b", "a"]))[1],
        "Matching(3 matches: @ -> @ (0.666667), items -> items (1), items[0] -> items[1] (1))",
    ),
    "uncertainty.ComparisonTable": (
        lambda: uncertainty.compare({"a": [1] * 9, "b": [0] * 9, "c": [1] * 8 + [0]}),
        "corrected p  p_better  verdict\na - b  +1.000 [+0.547, +1.000]  0.004",
    ),
}


NAMES = {name.partition(".")[2]: value for name, value in PUBLIC.items()}


@pytest.mark.parametrize("call", CALLS)
def test_an_object_shows_how_it_was_made(call):
    assert repr(eval(call, dict(NAMES))) == call


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_shows_its_options_and_size(name):
    make, expected = OBJECTS[name]
    assert expected in repr(make())


def test_options_are_shown_if_they_are_no_defaults_and_without_addresses():
    calculator = retrieval.AccuracyCalculator
    assert repr(calculator(k=None, avg_of_avgs=True)) == "AccuracyCalculator(avg_of_avgs=True)"
    gains = "AccuracyCalculator(include=['ndcg'], gains=tensor of (2, 3))"
    assert repr(calculator(["ndcg"], gains=torch.ones(2, 3))) == gains
    assert repr(retrieval.TorchKNN(torch.cdist)) == "TorchKNN(distance=cdist)"
    options = functools.partial(torch.cdist, p=1), lambda x, y: x @ y.T
    metrics = [case.make() for case in METRICS.values()]
    assert not any("0x" in repr(made) for made in [*map(retrieval.TorchKNN, options), *metrics])
    for metric in metrics:
        args, kwargs = metric._arguments
        assert (len(repr(metric)) > len(f"{type(metric).__name__}()")) >= bool(args or kwargs), metric
