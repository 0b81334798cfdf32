"""`tensormetrics retrieval`: do nearest neighbours share labels?"""

import os
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from ..retrieval import AccuracyCalculator, FaissKNN, KeOpsKNN
from .inputs import BadInput, naming, read_labels, read_tensor
from .output import common_options, draw_scores, find_device, on_a_terminal, save_figure, table, write_json

KNN = {"faiss": FaissKNN, "keops": KeOpsKNN}


@click.command()
@click.argument("embeddings")
@click.argument("labels")
@click.option("--reference", metavar="FILE", help="Embeddings to search in; default EMBEDDINGS themselves.")
@click.option("--reference-labels", metavar="FILE", help="Their labels.")
@click.option("--metric", "metrics", multiple=True, help="Such as precision_at_1 or ndcg_at_10; may be repeated.")
@click.option("--k", metavar="N", help="Neighbours per query; default all. Also max_bin_count: the largest class.")
@click.option("--knn", type=click.Choice(["torch", *KNN]), default="torch", show_default=True, help="Who searches.")
@click.option("--distance", default="l2", show_default=True, help="l2, sqeuclidean, ip or cosine.")
@click.option("--per-class", is_flag=True, help="Also a line for each class.")
@click.option("--bootstrap", type=click.IntRange(0), default=0, metavar="N", help="Intervals from N resamples.")
@common_options
def retrieval(
    embeddings: str,
    labels: str,
    reference: str | None,
    reference_labels: str | None,
    metrics: tuple[str, ...],
    k: str | None,
    knn: str,
    distance: str,
    per_class: bool,
    bootstrap: int,
    device: str | None,
    json_file: Path | None,
    plot: Path | None,
) -> None:
    """Score EMBEDDINGS (N rows) by their LABELS (N): do nearest neighbours share them, do clusters?

    Under torchrun each rank holds a part of the rows and all answer as one process does.

    Files: .npy, .npz, .pt, .safetensors, .csv, .jsonl; labels also as .txt, one word or number per line. `file:name`
    picks one array of several. A floating .npy file is read in pieces on a CPU and may be larger than the memory.
    """
    if (reference is None) != (reference_labels is None):
        raise BadInput("--reference and --reference-labels: give both or neither")
    place = find_device(device)
    query, given, classes = _side(embeddings, labels)
    sides: list[Tensor | None] = [query.to(place), given.to(place), None, None]
    if reference and reference_labels:
        references, numbers, names = _side(reference, reference_labels)
        if (classes is None) != (names is None):
            raise BadInput(f"{reference_labels}: wanted labels of the kind of {labels}, words or integers")
        if classes is not None and names is not None:
            given, numbers, classes = _joined(given, classes, numbers, names)
        sides = [query.to(place), given.to(place), references.to(place), numbers.to(place)]
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1 and (per_class or bootstrap):
        raise BadInput("--per-class, --bootstrap: not on several ranks; leave them out, or run without torchrun")
    files = {"query": embeddings, "query_labels": labels, "reference": reference, "reference_labels": reference_labels}
    with naming(**files):
        searcher = {"distance": distance} if knn == "torch" else {"knn_func": KNN[knn](distance=distance)}
        calculator = AccuracyCalculator(
            metrics, k=int(k) if k and k.isdigit() else k, device=place, progress=on_a_terminal(), **searcher
        )
        if ranks > 1:
            values = _on_ranks(calculator, sides)
            if int(os.environ["RANK"]):
                return
        else:
            values = calculator.get_accuracy(*sides)
        scored = calculator.last.scores
        intervals = {}
        if bootstrap:
            for name in scored:
                interval = calculator.interval(name, n_resamples=bootstrap, groups=sides[1])
                intervals[name] = (float(interval.low), float(interval.high))
        by_class = _by_class(scored, sides[1], calculator.class_labels, classes) if per_class else {}
    head = ["metric", "value", *(["95% interval"] if bootstrap else [])]
    click.echo(table(head, ([name, value, intervals.get(name)][: len(head)] for name, value in values.items())))
    if by_class:
        click.echo()
        click.echo(table(["class", *scored], ([label, *row.values()] for label, row in by_class.items())))
    answer: dict[str, Any] = {
        "files": {name: file for name, file in files.items() if file},
        "queries": len(query),
        "k": k,
        "metrics": {
            name: {"value": value, **dict(zip(("low", "high"), intervals.get(name, ()), strict=False))}
            for name, value in values.items()
        },
        "per_class": by_class,
    }
    write_json(json_file, "retrieval", answer)
    spread = {name: [row[name] for row in by_class.values()] for name in scored} if by_class else {}
    save_figure(plot, lambda: draw_scores(values, intervals, spread))


def _on_ranks(calculator: AccuracyCalculator, sides: list[Tensor | None]) -> dict[str, float]:
    """Each rank holds a part of the rows; all get the answer of one process."""
    torch.distributed.init_process_group("gloo")
    try:
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        roles = ("both",) if sides[2] is None else ("query", "reference")
        for role, rows, labels in zip(roles, sides[::2], sides[1::2], strict=False):
            own = slice(len(rows) * rank // ranks, len(rows) * (rank + 1) // ranks)
            calculator.update(rows[own], labels[own], role=role)
        return {name: float(value) for name, value in calculator.compute().items()}
    finally:
        torch.distributed.destroy_process_group()


def _side(embeddings: str, labels: str) -> tuple[Tensor, Tensor, list[str] | None]:
    rows, (numbers, classes) = read_tensor(embeddings), read_labels(labels)
    if rows.ndim != 2:
        raise BadInput(f"{embeddings}: got an array of shape {tuple(rows.shape)}, wanted one row per item: (N, D)")
    if len(rows) != len(numbers):
        raise BadInput(f"{labels}: got {len(numbers)} labels for the {len(rows)} rows of {embeddings}")
    return rows, numbers, classes


def _joined(a: Tensor, a_classes: list[str], b: Tensor, b_classes: list[str]) -> tuple[Tensor, Tensor, list[str]]:
    """Two numberings of words into one."""
    classes = sorted({*a_classes, *b_classes})
    number = {word: i for i, word in enumerate(classes)}
    tables = (torch.tensor([number[word] for word in words]) for words in (a_classes, b_classes))
    first, second = (numbers[side] for numbers, side in zip(tables, (a, b), strict=True))
    return first, second, classes


def _by_class(
    scores: dict[str, Tensor], labels: Tensor, numbers: Tensor, classes: list[str] | None
) -> dict[str, dict[str, float]]:
    # scores: (Q,) each  labels: (Q,)  numbers: (C,)
    found = numbers.tolist()
    position = torch.searchsorted(numbers, labels).clamp(max=len(numbers) - 1)
    rows: dict[str, dict[str, float]] = {str(classes[n] if classes else n): {} for n in found}
    for name, score in scores.items():
        used = ~score.isnan()
        total = score.new_zeros(len(found)).index_add_(0, position[used], score[used])
        count = score.new_zeros(len(found)).index_add_(0, position[used], torch.ones_like(score[used]))
        for row, value in zip(rows.values(), (total / count).tolist(), strict=True):
            row[name] = value
    return rows
