"""Calls of a training loop at the end of an epoch, updates over all batches and one compute, against a peer in each
domain, for even batches and for ragged ones.

Equal values are asserted before anything is timed: sampled intervals within their error, all others to 1e-5. Times are
medians of interleaved turns and include the conversion of the batches for a rival; a rival that is not installed is
left out, and a loop in numpy replaces WEFE.
"""

import contextlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Callable, Iterator

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from _common import Table, arguments
from _detr import match_layer
from association_functions import interleaved, numpy_weat
from torch import Tensor

from tensormetrics import association, structured
from tensormetrics.assignment import HungarianMatcher
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator

NEEDS = ("scipy",)
DEVICES = ("cpu", "cuda")
COLUMNS = ("hook", "peer", "tensormetrics, ms", "peer, ms", "peer / tensormetrics")
ROUNDS = 5

Hook = Callable[[], list[float]]  # runs an epoch and returns the numbers that it logs


def installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(name) for name in modules)


def labels_of(items: int, classes: int, ragged: bool) -> Tensor:
    """Return labels of equal frequencies, or (ragged) with a frequency of about 1 / k for the k-th class."""
    if not ragged:
        return torch.arange(items) % classes
    return torch.multinomial(1 / torch.arange(1.0, classes + 1), items, True)


# Retrieval: embeddings of an epoch and their labels.


def retrieval(size: int, ragged: bool, device: str) -> tuple[str, str, Hook, Hook | None]:
    names = ("mean_average_precision_at_r", "precision_at_1")
    items, classes = 10 * size + 37 * ragged, size // 10
    labels = labels_of(items, classes, ragged)
    x = torch.nn.functional.normalize(torch.randn(classes, 128)[labels] + 1.5 * torch.randn(items, 128), dim=1)
    batches = [*zip(x.to(device).split(256), labels.to(device).split(256), strict=True)]

    def ours() -> list[float]:
        metric = AccuracyCalculator(names, k="max_bin_count").to(device)
        for batch in batches:
            metric.update(*batch)
        values = metric.compute()
        return [float(values[name]) for name in names]

    def peer() -> list[float]:
        from pytorch_metric_learning.distances import LpDistance
        from pytorch_metric_learning.utils import accuracy_calculator, inference

        knn = inference.FaissKNN() if device == "cpu" else inference.CustomKNN(LpDistance(normalize_embeddings=False))
        scores = accuracy_calculator.AccuracyCalculator(
            include=names, k="max_bin_count", knn_func=knn, kmeans_func=len, device=torch.device(device)
        )
        with contextlib.redirect_stdout(None):  # it prints warnings
            values = scores.get_accuracy(*map(torch.cat, zip(*batches, strict=True)))
        return [values[name] for name in names]

    rival = peer if installed("pytorch_metric_learning", *["faiss"] * (device == "cpu")) else None
    return f"retrieval, {items:,} x 128, {classes} classes", "pytorch-metric-learning", ours, rival


# Posterior: the intervals of three metrics, from logits.


def posterior(size: int, ragged: bool, device: str) -> tuple[str, str, Hook, Hook | None]:
    names, classes, items = ["acc", "ba", "mcc"], 10, 20 * size + 37 * ragged
    target = labels_of(items, classes, ragged)
    logits = 2 * torch.nn.functional.one_hot(target, classes) + torch.randn(items, classes)
    batches = [*zip(logits.to(device).split(256), target.to(device).split(256), strict=True)]

    def ours() -> list[float]:
        metric = ConfusionPosterior(classes, names, prevalence_prior=1, confusion_prior=1).to(device)
        for batch in batches:
            metric.update(*batch)
        ends = [(e.details["median"], e.low, e.high) for e in metric.interval().values()]
        return torch.stack([end for estimate in ends for end in estimate]).tolist()

    def peer() -> list[float]:
        from prob_conf_mat.experiment import Experiment
        from prob_conf_mat.metrics import MetricCollection
        from prob_conf_mat.stats import hdi_estimator
        from prob_conf_mat.utils import RNG

        pairs = torch.cat([truth * classes + batch.argmax(1) for batch, truth in batches]).cpu().numpy()
        counts = np.bincount(pairs, minlength=classes**2).reshape(classes, classes)
        results = Experiment("e", RNG(0), counts, 1, 1).sample_metrics(MetricCollection(names), "posterior", 10_000)
        values = {metric.name: result.values.ravel() for metric, result in results.items()}
        return [n for name in names for v in [values[name]] for n in (np.median(v), *hdi_estimator(v, prob=0.95))]

    hook = f"posterior, {items:,} items, {classes} classes, 3 intervals"
    return hook, "prob_conf_mat", ours, peer if installed("prob_conf_mat") else None


# Association: WEAT of word sets in an embedding that is being trained.


def association_(size: int, ragged: bool, device: str) -> tuple[str, str, Hook, Hook | None]:
    queries, dim = size // 50, 300
    table = torch.randn(2000, dim, device=device)
    lengths = torch.randint(5, 26, (queries, 4)) if ragged else torch.full((queries, 4), 25)
    token_ids = torch.rand(queries, 4, len(table)).topk(25).indices  # WEFE counts a word of a set once
    token_mask = torch.arange(25) < lengths[..., None]
    batches = [
        (w.unbind(1), m.unbind(1))
        for w, m in zip(token_ids.to(device).split(16), token_mask.to(device).split(16), strict=True)
    ]
    sets = [
        [w[:n].tolist() for w, n in zip(*of_query, strict=True)] for of_query in zip(token_ids, lengths, strict=True)
    ]

    def ours() -> list[float]:
        metric = association.WEAT().to(device)
        for columns, masks in batches:
            vectors = (table[tokens] for tokens in columns)
            metric.update(*(map(association.functional.WordSet, vectors, masks) if ragged else vectors))
        return [float(metric.compute())]

    def numpy_loop() -> list[float]:
        vectors = table.cpu().double().numpy()
        return [np.mean([numpy_weat(*(vectors[tokens] for tokens in query))[0] for query in sets])]

    def wefe() -> list[float]:
        import gensim
        from wefe.metrics import WEAT
        from wefe.query import Query
        from wefe.word_embedding_model import WordEmbeddingModel

        keyed = gensim.models.KeyedVectors(dim, dtype=np.float32)
        keyed.add_vectors([str(n) for n in range(len(table))], table.cpu().numpy())
        model = WordEmbeddingModel(keyed, "epoch")
        named = [[[str(n) for n in tokens] for tokens in query] for query in sets]
        return [np.mean([WEAT().run_query(Query(q[:2], q[2:]), model)["result"] for q in named])]

    has_wefe = installed("wefe", "gensim")
    hook = f"association, WEAT of {queries} queries of {'5 to 25' if ragged else '25'} words"
    return hook, "WEFE" if has_wefe else "numpy, in float64", ours, wefe if has_wefe else numpy_loop


# Structured: F1 of named entities from tags.


def tags(size: int, ragged: bool, device: str) -> tuple[str, str, Hook, Hook | None]:
    draw, names = np.random.default_rng(0), ("precision", "recall", "f1")
    spans = [["B-PER", "I-PER", "O"], ["O"], ["B-LOC", "O"], ["B-LOC", "I-LOC", "I-LOC", "O"]]
    lengths = draw.integers(0, 60, size) if ragged else np.full(size, 30)

    def row(length: int) -> list[str]:
        sampled = [tag for which in draw.integers(0, 4, length + 1) for tag in spans[which]]
        return sampled[:length]

    ref = [row(length) for length in lengths]
    pred = [other if draw.random() < 0.3 else original for original, other in zip(ref, map(row, lengths), strict=True)]
    batches = [(pred[n : n + 64], ref[n : n + 64]) for n in range(0, size, 64)]

    def ours() -> list[float]:
        metric = structured.SpanScores().to(device)
        for batch in batches:
            metric.update_tags(*batch)
        values = metric.compute()
        return [float(values[name]) for name in names]

    def peer() -> list[float]:
        from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

        original = [[row for batch in batches for row in batch[index]] for index in (1, 0)]
        return list(precision_recall_fscore_support(*original, average="micro")[:3])

    hook = f"structured, spans of {size:,} sentences of {'0 to 59' if ragged else '30'} tags"
    return hook, "seqeval", ours, peer if installed("seqeval") else None


# Structured: triggers as objects.


def triggers(size: int, ragged: bool, device: str) -> tuple[str, str, Hook, Hook | None]:
    from structured import TheirTrigger, TheirTriggers, Triggers, their_scores, theirs  # needs metametric

    draw, names = np.random.default_rng(1), ("precision", "recall", "f1")
    count = size // 20
    lengths = draw.integers(1, 31, (2, count)) if ragged else np.full((2, count), 15)
    spans = [[[(int(k), 5 * int(k) + int(draw.integers(2))) for k in range(n)] for n in column] for column in lengths]

    def corpus(container: type, item: type, mention: type) -> list[list[object]]:
        return [[container([item(mention(a, b), str(a % 3)) for a, b in row]) for row in column] for column in spans]

    mine = corpus(Triggers, structured.Trigger, structured.Mention)
    other = corpus(TheirTriggers, TheirTrigger, theirs.Mention)

    def ours() -> list[float]:
        metric = structured.Family(Triggers.metric, {"micro": structured.micro_average(names)}).to(device)
        for n in range(0, count, 16):
            metric.update(*(column[n : n + 16] for column in mine))
        values = metric.compute()
        return [float(values[f"micro-{name}"]) for name in names]

    def peer() -> list[float]:
        values = their_scores(TheirTriggers.metric, *other, "micro")
        return [float(values[name]) for name in names]

    hook = f"structured, triggers of {count} documents of {'1 to 30' if ragged else '15'}"
    return hook, "metametric", ours, peer


# Assignment: queries and targets of a detector, matched for a validation loss.


def assignment(size: int, ragged: bool, device: str) -> tuple[str, str, Hook, Hook | None]:
    images, queries, classes = size // 10, 100, 20
    counts = torch.randint(0, 64, (images,)).tolist() if ragged else [30] * images
    logits, boxes = torch.randn(images, queries, classes), torch.rand(images, queries, 4) * 0.5 + 0.1
    targets = [
        {"labels": torch.randint(0, classes, (n,)).to(device), "boxes": (torch.rand(n, 4) * 0.5 + 0.1).to(device)}
        for n in counts
    ]
    batches = [
        ({"pred_logits": logits[n : n + 8].to(device), "pred_boxes": boxes[n : n + 8].to(device)}, targets[n : n + 8])
        for n in range(0, images, 8)
    ]

    def logged(matched: list) -> list[float]:
        return (
            torch.cat([torch.stack(pair) for image in matched for pair in image], 1).double().cpu().flatten().tolist()
        )

    def ours() -> list[float]:
        matcher = HungarianMatcher()
        return logged([matcher(*batch) for batch in batches])

    def detr(outputs: dict[str, Tensor], targets: list[dict[str, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        return match_layer(outputs, targets, dict.fromkeys(("cost_class", "cost_bbox", "cost_giou"), 1.0), "softmax")

    hook = f"assignment, {images} images, {queries} queries, {'0 to 63' if ragged else '30'} targets"
    return hook, "scipy, as in DETR", ours, lambda: logged([detr(*batch) for batch in batches])


def row(domain: Callable, size: int, ragged: bool, device: str) -> Iterator[tuple[str, ...]]:
    torch.manual_seed(0)
    hook, name, ours, peer = domain(size, ragged, device)
    hook += ", ragged" if ragged else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if peer is None:
            ours()
            yield hook, f"{name} is not installed", f"{1e3 * interleaved({'ours': ours}, ROUNDS)['ours']:.3g}", "", ""
            return
        tolerance = {"rtol": 0.01, "atol": 0.003} if domain is posterior else {"rtol": 1e-5, "atol": 1e-5}
        np.testing.assert_allclose(ours(), peer(), **tolerance, err_msg=hook)
        times = interleaved({"ours": ours, "peer": peer}, ROUNDS)
    figures = (f"{1e3 * times[name]:.3g}" for name in ("ours", "peer"))
    yield hook, name, *figures, f"{times['peer'] / times['ours']:.2g}"


def main() -> None:
    options = arguments(__doc__, DEVICES)
    logging.disable(logging.WARNING)
    notes = (
        f"Medians of {ROUNDS} interleaved epochs. Ragged: labels, lengths or sets of unequal sizes, and a short batch."
    )
    table = Table(options, "A validation hook in each domain", COLUMNS, notes, ("numpy", "scipy"))
    domains = [retrieval, posterior, association_, tags, assignment]
    if installed("metametric", "jaxtyping", "scorch"):
        domains.insert(4, triggers)
    for domain in domains:
        for ragged in (False, True):
            table.add(row(domain, 200 if options.quick else 1000, ragged, options.device))
    table.finish()


if __name__ == "__main__":
    main()
