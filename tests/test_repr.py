"""What `print` and `dir` show of everything that is public."""

import functools
import importlib
import inspect
from dataclasses import dataclass, is_dataclass

import pytest
import torch
from cases import FILES, METRICS

from tensormetrics import assignment, association, posterior, retrieval, structured, uncertainty

DOMAINS = {name: importlib.import_module(f"tensormetrics.{name}") for name in FILES}
ROWS = torch.tensor([[0.0], [0.1], [5.0], [5.3]])
MATRIX = [[8, 2], [1, 9]]


@structured.metametric(normalizer="f1")
@dataclass
class Bag:
    items: list[str]


def trained(knn):
    knn.train(ROWS)
    return knn


def faiss_knn():
    pytest.importorskip("faiss")
    return trained(retrieval.FaissKNN(index_init_fn="Flat", distance="cosine"))


def faiss_kmeans():
    pytest.importorskip("faiss")
    return retrieval.FaissKMeans(niter=3)


def keops_knn():
    pytest.importorskip("pykeops")
    return retrieval.KeOpsKNN("cosine")


def study():
    made = posterior.Study(seed=3, metrics={"acc": {}, "f1@macro": {}})
    made.add_experiment("mlp/fold", MATRIX)
    return made


class Generated(retrieval.EmbeddingSource):
    def __init__(self):
        super().__init__((7, 2), torch.float32)

    def read(self, start, stop):
        return torch.zeros(stop - start, 2)


FAMILY = structured.Family(structured.metric_of(Bag), structured.micro_average(["f1"]))
RUN = {"a": {"x": 2.0, "y": 1.0}, "b": {"x": 1.0}}
QRELS = {"a": {"y": 1}, "b": {"x": 1}}
LEFT_OUT = {
    **dict.fromkeys(("association.BaseMetric", "structured.CountMetric", "structured.OverlapMetric"), "bases"),
    **dict.fromkeys(("posterior.Averaging", "posterior.ExperimentAggregator"), "bases"),
    "structured.Normalizer": "a base",
    "structured.Hook": "a protocol",
    "structured.Constraint": "an enumeration",
}
# Instances of classes that are no metrics of tests/cases, and what their text holds.
OBJECTS = {
    "assignment.HungarianMatcher": (
        lambda: assignment.HungarianMatcher(2, class_cost="focal"),
        "HungarianMatcher(cost_class=2, class_cost='focal')",
    ),
    "assignment.LinearAssignment": (
        lambda: assignment.LinearAssignment(maximize=True),
        "LinearAssignment(maximize=True)",
    ),
    "association.DoubleHardDebias": (lambda: association.DoubleHardDebias(n_words=5), "DoubleHardDebias(n_words=5)"),
    "association.HalfSiblingRegression": (
        lambda: association.HalfSiblingRegression(verbose=True),
        "HalfSiblingRegression(verbose=True)",
    ),
    "association.HardDebias": (
        lambda: association.HardDebias(criterion_name="gender"),
        "HardDebias(criterion_name='gender')",
    ),
    "association.INLP": (lambda: association.INLP(n_iterations=5), "INLP(n_iterations=5)"),
    "association.LEACE": (lambda: association.LEACE(criterion_name="gender"), "LEACE(criterion_name='gender')"),
    "association.MulticlassHardDebias": (
        lambda: association.MulticlassHardDebias({"n_components": 3}),
        "MulticlassHardDebias(pca_args={'n_components': 3})",
    ),
    "association.RepulsionAttractionNeutralization": (
        lambda: association.RepulsionAttractionNeutralization(epochs=2),
        "RepulsionAttractionNeutralization(epochs=2)",
    ),
    "association.WordEmbeddingModel": (
        lambda: association.WordEmbeddingModel.from_tensor(ROWS, list("abcd")),
        "4 word embeddings of 1 dims",
    ),
    "association.Query": (lambda: association.Query([["a"], ["b"]], [["c"], ["d"]]), "'a'"),
    "posterior.AveragedMetric": (lambda: posterior.get_metric("f1@macro"), "'f1@macro'"),
    "posterior.RootMetric": (lambda: posterior.RootMetric("tp"), "RootMetric('tp')"),
    "posterior.Experiment": (lambda: study()["mlp/fold"], "Experiment('mlp/fold', items=20, classes=2)"),
    "posterior.ExperimentGroup": (lambda: study()["mlp"], "ExperimentGroup('mlp', experiments=['fold'])"),
    "posterior.ExperimentResult": (
        lambda: study().get_metric_samples("acc", "mlp/fold"),
        "experiment=Experiment('mlp/fold', items=20, classes=2)",
    ),
    "posterior.Study": (study, "Study(seed=3)\n  mlp/fold: 20 items\n  metrics: acc, f1@macro"),
    "retrieval.FaissKMeans": (faiss_kmeans, "FaissKMeans(niter=3)"),
    "retrieval.FaissKNN": (faiss_knn, "FaissKNN(index_init_fn='Flat', distance='cosine', references=4)"),
    "retrieval.KeOpsKNN": (keops_knn, "KeOpsKNN(distance='cosine')"),
    "retrieval.Qrels": (lambda: retrieval.Qrels(QRELS), "2 documents for 2 queries"),
    "retrieval.Run": (lambda: retrieval.Run(RUN), "3 documents for 2 queries"),
    "retrieval.RunScores": (
        lambda: retrieval.evaluate_run(RUN, QRELS, ["map", "num_ret"]),
        "RunScores(queries=2, map=0.75, num_ret=3)",
    ),
    "retrieval.EmbeddingSource": (Generated, "Generated(shape=(7, 2), dtype=torch.float32)"),
    "retrieval.ShardedKNN": (
        lambda: retrieval.ShardedKNN(knn=retrieval.TorchKNN("cosine")),
        "ShardedKNN(knn=TorchKNN(distance='cosine'))",
    ),
    "retrieval.StoredKNN": (
        lambda: retrieval.StoredKNN(torch.tensor([[0, 1]]), distance="cosine"),
        "StoredKNN(indices=tensor of (1, 2), distance='cosine', queries=1, k=2)",
    ),
    "retrieval.TorchKMeans": (lambda: retrieval.TorchKMeans(3, seed=7), "TorchKMeans(niter=3, seed=7)"),
    "retrieval.TorchKNN": (
        lambda: trained(retrieval.TorchKNN("cosine", exact=False)),
        "TorchKNN(distance='cosine', exact=False, references=4)",
    ),
    "structured.Family": (lambda: FAMILY, "reduction="),
    "structured.Matching": (
        lambda: structured.metric_of(Bag).compute(Bag(["a"]), Bag(["b", "a"]))[1],
        "Matching(3 matches: @ -> @ (0.666667), items -> items (1), items[0] -> items[1] (1))",
    ),
    "structured.StructuredMetric": (lambda: structured.metric_of(Bag), "Bag"),
    "structured.Suite": (lambda: structured.Suite({"all": FAMILY}), "'all'"),
    "uncertainty.ComparisonTable": (
        lambda: uncertainty.compare({"a": [1] * 9, "b": [0] * 9, "c": [1] * 8 + [0]}),
        "corrected p  p_better  verdict\na - b  +1.000 [+0.547, +1.000]  0.004",
    ),
}


def public_classes():
    for domain, module in DOMAINS.items():
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and not issubclass(value, BaseException | tuple):
                yield f"{domain}.{name}", value


@pytest.mark.lists
def test_every_public_class_has_an_instance_here():
    missing = {
        key
        for key, value in public_classes()
        if key not in METRICS | OBJECTS | LEFT_OUT and not is_dataclass(value) and "__repr__" not in vars(value)
    }
    assert missing == set(), "write a row in OBJECTS above, or for a metric in tests/cases/"


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_shows_its_options_and_size(name):
    make, expected = OBJECTS[name]
    text = repr(make())
    assert expected in text and "0x" not in text


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_shows_its_options(name):
    metric = METRICS[name].make()
    text = repr(metric)
    args, kwargs = metric._arguments
    assert "0x" not in text and (len(text) > len(f"{type(metric).__name__}()")) >= bool(args or kwargs)


def test_no_address_of_an_option_is_shown():
    knns = functools.partial(torch.cdist, p=1), lambda x, y: x @ y.T, torch.cdist
    texts = [repr(retrieval.TorchKNN(distance)) for distance in knns]
    assert texts[2] == "TorchKNN(distance=cdist)" and not any("0x" in text for text in texts)


@pytest.mark.parametrize("domain", DOMAINS)
def test_dir_shows_public_names(domain):
    module = DOMAINS[domain]
    extra = {name for name in dir(module) if not name.startswith("__")} - {*module.__all__}
    assert extra == ({"dsl", "fields"} if domain == "structured" else set())
    assert "__doc__" in dir(module)
