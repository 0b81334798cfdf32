"""What is stored: how an object is made, what it is fed with, and which values are read off it.

`write.py` feeds the objects and stores their states and values; `test_stored_files.py` makes new ones, which read the
states. Only public names are used here, because modules move.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from cases import METRICS, MetricCase
from torch import Generator, Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map
from torchmetrics import MeanSquaredError, Metric, MetricCollection
from torchmetrics.classification import MulticlassF1Score

from tensormetrics import association, posterior, retrieval, structured, uncertainty
from tensormetrics.structured import Family, Suite, macro_average, metametric, micro_average

N, REPLICATES = 20, 20


@dataclass(frozen=True)
class StoredObject:
    make: Callable[[], Any]
    feed: Callable[[Any, Generator], None]
    value: Callable[[Any], Any] = lambda module: module.compute()
    interval: bool = False  # whether its state is enough for `interval()`


def persistent_state_dict(module: torch.nn.Module) -> dict[str, Any]:
    """Return the state of a module, with the states of its metrics."""
    metrics = (
        [module] if isinstance(module, Metric) else [part for part in module.modules() if isinstance(part, Metric)]
    )
    for metric in metrics:
        metric.persistent(True)
    return module.state_dict()


def numbers_by_path(value: Any) -> dict[str, Any]:
    """Flatten a value to plain numbers by their paths in it, an estimate without the ends of its interval."""
    points = tree_map(
        lambda leaf: leaf.value if isinstance(leaf, uncertainty.Estimate) else leaf,
        value,
        is_leaf=lambda node: isinstance(node, uncertainty.Estimate),
    )
    leaves = tree_flatten_with_path(points)[0]
    return {keystr(path): leaf.tolist() if isinstance(leaf, Tensor) else leaf for path, leaf in leaves}


def exact_rows(count: int, width: int, start: int = 0) -> Tensor:
    """Return rows of sixteenths, which float16 holds and which need no generator of random numbers."""
    number = torch.arange(start, start + count * width)
    return (((37 * number**3 + 11 * number) % 1009) % 97 - 48).view(count, width) / 16


def stored_row(case: MetricCase) -> StoredObject:
    """Return the object of a row of the conformance table."""
    return StoredObject(case.make, lambda metric, generator: metric.update(*case.inputs(generator, N)))


def stored_with_replicates(row: str, make: Callable[[], Any]) -> StoredObject:
    """Return a metric with replicates, fed with what a row of the conformance table has, item by item."""

    def feed(metric: Any, generator: Generator) -> None:
        for item in zip(*(side.split(1) for side in METRICS[row].inputs(generator, N)), strict=True):
            metric.update(*item)

    return StoredObject(make, feed, interval=True)


def embeddings_and_labels(generator: Generator) -> tuple[Tensor, Tensor]:
    return METRICS["retrieval.AccuracyCalculator"].inputs(generator, N)


def feed_roles(metric: Any, generator: Generator) -> None:
    """Add queries and references of three cameras, one of each repeated, as samplers do."""
    for role in ("query", "reference"):
        embeddings, labels = embeddings_and_labels(generator)
        number = torch.arange(N) % (N - 1)
        metric.update(
            embeddings[number], labels[number], role=role, ids=number, cameras=number % 3, groups=labels[number]
        )


def feed_columns_of_labels(metric: Any, generator: Generator) -> None:
    embeddings, labels = embeddings_and_labels(generator)
    metric.update(embeddings, torch.stack([labels, labels // 2], -1))


def feed_named_items(metric: Any, generator: Generator) -> None:
    metric.update(*embeddings_and_labels(generator), ids=[f"item {number}" for number in range(N)])


def feed_groups(row: str) -> Callable[[Any, Generator], None]:
    """Return a function that adds what a row of the conformance table has, in groups of three items."""
    return lambda metric, generator: metric.update(*METRICS[row].inputs(generator, N), groups=torch.arange(N) // 3)


def feed_confusion_batch(metric: Any, generator: Generator) -> None:
    metric.update(torch.rand(2, N, generator=generator), torch.randint(0, 2, (2, N), generator=generator))


def feed_confusion_groups(metric: Any, generator: Generator) -> None:
    inputs = METRICS["posterior.ConfusionPosterior"].inputs(generator, N)
    metric.update(*inputs, ids=torch.arange(N), groups=torch.arange(N) // 2)


@dataclass
class Entity:
    label: str
    span: tuple[int, int]


@metametric(normalizer="f1")
@dataclass
class Document:
    entities: list[Entity]


def make_family(**options: Any) -> Family:
    reductions = {"micro": micro_average(["precision", "f1"]), "macro": macro_average(["f1"])}
    return Family(Document.metric, reductions, on_invalid="empty", **options)


def feed_documents(corpus: Any, generator: Generator) -> None:
    """Add pairs of documents that share entities, and one prediction that is no document."""
    documents = [
        [
            Document([Entity("LOC" if label else "PER", (start, start + 1)) for label, start in document])
            for document in torch.randint(0, 2, (N, 4, 2), generator=generator).tolist()
        ]
        for _ in range(2)
    ]
    corpus.update([None, *documents[0][1:]], documents[1])


WORDS = [f"word{number}" for number in range(13)]
PAIRS = [["word0", "word1"], ["word2", "word3"]]


def word_model() -> association.WordEmbeddingModel:
    return association.WordEmbeddingModel.from_tensor(exact_rows(13, 6).double(), WORDS)


def stored_debias(make: Callable[[], Any], **fit: Any) -> StoredObject:
    """Return a transform to be fitted, whose value is the transformed vectors of a model."""
    return StoredObject(
        make,
        lambda debias, _: debias.fit(word_model(), **fit) and None,
        lambda debias: debias.transform(word_model()).vectors,
    )


def same_column(query: Tensor, reference: Tensor) -> Tensor:
    return (query == reference).all(-1)


ROWS = {name: stored_row(case) for name, case in METRICS.items()}
OBJECTS = {
    "WEAT with replicates": stored_with_replicates(
        "association.WEAT", lambda: association.WEAT(replicates=REPLICATES, seed=3)
    ),
    "MAC with replicates": stored_with_replicates("association.MAC", lambda: association.MAC(replicates=REPLICATES)),
    "SCWEAT with replicates": stored_with_replicates(
        "association.SCWEAT", lambda: association.SCWEAT(replicates=REPLICATES)
    ),
    "LPBS with replicates": stored_with_replicates("association.LPBS", lambda: association.LPBS(replicates=REPLICATES)),
    "HardDebias": stored_debias(association.HardDebias, definitional_pairs=PAIRS),
    "MulticlassHardDebias": stored_debias(
        association.MulticlassHardDebias, definitional_sets=PAIRS, equalize_sets=[["word4", "word5"]]
    ),
    "DoubleHardDebias": stored_debias(
        lambda: association.DoubleHardDebias(n_words=3, n_components=2),
        definitional_pairs=PAIRS,
        bias_representation=["word0", "word1"],
    ),
    "HalfSiblingRegression": stored_debias(
        association.HalfSiblingRegression, definitional_words=["word0", "word1"], alpha=2.0
    ),
    "RepulsionAttractionNeutralization": stored_debias(
        lambda: association.RepulsionAttractionNeutralization(epochs=5, n_neighbours=4), definitional_pairs=PAIRS
    ),
    "ConfusionPosterior with groups": StoredObject(
        lambda: posterior.ConfusionPosterior(3, ["acc", "tpr", "f1@macro"], replicates=500),
        feed_confusion_groups,
        interval=True,
    ),
    "ConfusionPosterior of a batch": StoredObject(
        lambda: posterior.ConfusionPosterior(2, "f1", threshold=0.5, batch_shape=(2,), replicates=500),
        feed_confusion_batch,
        interval=True,
    ),
    "AccuracyCalculator of queries and references": StoredObject(
        lambda: retrieval.AccuracyCalculator(("mean_average_precision", "precision_at_1", "median_rank")), feed_roles
    ),
    "AccuracyCalculator of several labels": StoredObject(
        lambda: retrieval.AccuracyCalculator(("r_precision", "ndcg_at_5"), label_comparison_fn=same_column),
        feed_columns_of_labels,
        interval=True,
    ),
    "AccuracyCalculator of half precision": StoredObject(
        lambda: retrieval.AccuracyCalculator(("r_precision",), store_dtype=torch.float16),
        lambda metric, generator: metric.update(*embeddings_and_labels(generator)),
        interval=True,
    ),
    "AveragePrecision of queries and references": StoredObject(retrieval.AveragePrecision, feed_roles, interval=True),
    "NDCG of named items": StoredObject(lambda: retrieval.NDCG(10), feed_named_items, interval=True),
    "ClusterAccuracy with groups": StoredObject(
        retrieval.ClusterAccuracy, feed_groups("retrieval.ClusterAccuracy"), interval=True
    ),
    "MetricCollection": StoredObject(
        lambda: MetricCollection({"precision": retrieval.RPrecision(), "gain": retrieval.NDCG(10)}),
        lambda collection, generator: collection.update(*embeddings_and_labels(generator)),
    ),
    "SetMatch with replicates": stored_with_replicates(
        "structured.SetMatch", lambda: structured.SetMatch(replicates=REPLICATES)
    ),
    "MultisetMatch with replicates of means": stored_with_replicates(
        "structured.MultisetMatch", lambda: structured.MultisetMatch(average="macro", replicates=REPLICATES, seed=3)
    ),
    "CorefScores with replicates": stored_with_replicates(
        "structured.CorefScores", lambda: structured.CorefScores(("conll", "lea"), replicates=REPLICATES)
    ),
    "SpanScores with replicates": stored_with_replicates(
        "structured.SpanScores", lambda: structured.SpanScores(labels=("a", "b"), replicates=REPLICATES)
    ),
    "Family": StoredObject(make_family, feed_documents),
    "Family with replicates": StoredObject(lambda: make_family(replicates=REPLICATES), feed_documents, interval=True),
    "Suite": StoredObject(
        lambda: Suite({"all": make_family(), "nested": Suite({"same": make_family(replicates=REPLICATES)})}),
        feed_documents,
    ),
    "BinaryAUROC with groups": StoredObject(
        uncertainty.BinaryAUROC, feed_groups("uncertainty.BinaryAUROC"), interval=True
    ),
    "BrierScore with replicates": stored_with_replicates(
        "uncertainty.BrierScore", lambda: uncertainty.BrierScore(replicates=REPLICATES)
    ),
    "CalibrationError with replicates": stored_with_replicates(
        "uncertainty.CalibrationError", lambda: uncertainty.CalibrationError(7, replicates=REPLICATES)
    ),
    "Uncertain mean with replicates": stored_with_replicates(
        "uncertainty.Uncertain", lambda: uncertainty.Uncertain(MeanSquaredError(), replicates=REPLICATES)
    ),
    "Uncertain score of classes with replicates": stored_with_replicates(
        "posterior.ConfusionPosterior", lambda: uncertainty.Uncertain(MulticlassF1Score(3), replicates=REPLICATES)
    ),
}


def make_study() -> posterior.Study:
    """Return a study with all that a file of it may hold."""
    study = posterior.Study(
        seed=3,
        ci_probability=0.9,
        metrics={"acc": {"aggregation": "fe"}, "f1": {"aggregation": "beta", "estimation_method": "mm"}, "mcc": {}},
        dtype=torch.float64,
        zero_division=0.0,
    )
    for fold in (0, 1):
        matrix = (torch.tensor([[13, 2, 1], [3, 20, 4], [0, 5, 9]]) + fold).tolist()
        study.add_experiment(f"mlp/fold_{fold}", matrix, prevalence_prior=1, confusion_prior="perks")
    truth = [number % 3 for number in range(40)]
    for name, step in (("svm", 7), ("tree", 5)):
        predictions = [(label + (number % step == 0)) % 3 for number, label in enumerate(truth)]
        study.add_experiment(
            f"{name}/test", y_true=truth, y_pred=predictions, items="test", groups=[number // 2 for number in range(40)]
        )
    named = {"labels": ["cat", "dog"], "prevalence_prior": [1, 2], "confusion_prior": [[1.0, 0.5], [1, 1]]}
    study.add_experiment("named", torch.tensor([[0, 0.5], [1, 2]]), **named)
    return study


STUDY_FILES = ("study.json", "study.toml", "study.yaml")


def study_numbers(study: posterior.Study) -> dict[str, Any]:
    """Return what is observed, medians of samples and the first draws, of each experiment and of what is pooled."""
    numbers: dict[str, Any] = {}
    for metric in ("acc", "f1", "mcc"):
        for name in study.list_experiments():
            observed = study.get_metric_samples(metric, name, "input").values[0]
            samples = study.get_metric_samples(metric, name).values
            numbers[f"{metric} of {name}"] = {
                "observed": observed.tolist(),
                "median": samples.median(0).values.tolist(),
                "draws": samples[:3].tolist(),
            }
        if metric != "mcc":
            pooled = study.get_metric_samples(metric, "mlp/aggregated").values
            numbers[f"{metric} of mlp"] = {"median": pooled.median(0).values.tolist(), "draws": pooled[:3].tolist()}
    return numbers


KNN_FILES = {"knn.pt": torch.float32, "knn_float16.pt": torch.float16}
FAISS_FILE = "faiss.index"
DISTANCES = ("l2", "sqeuclidean", "cosine", "ip")


def references(dtype: torch.dtype = torch.float32) -> Tensor:
    return exact_rows(40, 6).to(dtype)


def neighbors(knn: Any) -> dict[str, Any]:
    """Return what a search in the references that it keeps gives for five queries."""
    distances, indices = knn(exact_rows(5, 6, start=500), 4)
    return {"distances": distances.tolist(), "indices": indices.tolist()}


class CountedRows(retrieval.EmbeddingSource):
    """Rows in the memory that count how many of them were read."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__(tuple(rows.shape), rows.dtype)
        self.rows, self.rows_read = rows, 0

    def read(self, start: int, stop: int) -> Tensor:
        self.rows_read += stop - start
        return self.rows[start:stop]


QUERIES, REFERENCES = 12, 300
DEEP = ("mean_average_precision", "r_precision", "median_rank")
ROWS_FILE, ROWS_WRITTEN_NS = "rows.npy", 10**18  # a state of a file holds when the file was written


@dataclass(frozen=True)
class Calculation:
    """A call of `AccuracyCalculator.get_accuracy` with references in blocks, stopped after some writes of its state."""

    calculator: Callable[[], retrieval.AccuracyCalculator]
    writes: int | None = None  # None: it was not stopped
    grouped: bool = False  # by the one process of a group
    from_file: bool = False
    options: dict[str, Any] = field(default_factory=dict)  # of the call

    def accuracies(self, source: retrieval.EmbeddingSource, **options: Any) -> dict[str, float]:
        labels = torch.arange(REFERENCES) % 7
        queries = calculator_rows()[:QUERIES], labels[:QUERIES]
        return self.calculator().get_accuracy(*queries, source, labels, True, **self.options, **options)


def calculator_rows() -> Tensor:
    return exact_rows(REFERENCES, 6).half()


def same_parity(labels: Tensor, others: Tensor) -> Tensor:
    return labels % 2 == others % 2


def closeness(labels: Tensor, others: Tensor) -> Tensor:
    return (2 - (labels - others).abs()).clamp(min=0)


def make_deep() -> retrieval.AccuracyCalculator:
    return retrieval.AccuracyCalculator(DEEP, memory_budget=40_000)


def make_shallow() -> retrieval.AccuracyCalculator:
    return retrieval.AccuracyCalculator(("ndcg_at_5", "hit_rate_at_1"), k=5, memory_budget=40_000)


CALCULATIONS = {
    "measured.state": Calculation(make_deep, 5),
    "counted.state": Calculation(make_deep, 14),
    "second_part.state": Calculation(make_deep, 28),
    "complete.state": Calculation(make_deep),
    "neighbours.state": Calculation(make_shallow, 2),
    "file.state": Calculation(make_shallow, 2, from_file=True),
    "group.state": Calculation(make_deep, 14, grouped=True),
    "comparison.state": Calculation(
        lambda: retrieval.AccuracyCalculator(DEEP, label_comparison_fn=same_parity, memory_budget=60_000), 28
    ),
    "gains.state": Calculation(
        lambda: retrieval.AccuracyCalculator(("ndcg", "mean_average_precision"), gains=closeness, memory_budget=60_000),
        28,
        options={
            "query_cameras": torch.arange(QUERIES) % 3,
            "reference_cameras": torch.arange(REFERENCES) % 3,
        },
    ),
}


def open_embeddings_file(folder: Path) -> retrieval.EmbeddingSource:
    """Open a copy of the stored rows that was written when the stored one was."""
    path = Path(shutil.copy(Path(__file__).parent / ROWS_FILE, folder))
    os.utime(path, ns=(ROWS_WRITTEN_NS, ROWS_WRITTEN_NS))
    return retrieval.open_embeddings(path)
