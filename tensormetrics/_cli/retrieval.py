"""`tensormetrics retrieval`: do nearest neighbours share labels?"""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
import torch
from torch import Tensor

from ..retrieval import AccuracyCalculator, FaissKNN, KeOpsKNN
from ..retrieval.calculator.metric_names import NAMES, statistic_of
from ..retrieval.scores.embedding_metric import Role
from ..retrieval.scores.query_metric import Classes, averaged
from ..retrieval.search.distance import DISTANCES
from ..retrieval.sources.source import RowSource
from ..retrieval.sources.state import SECONDS
from .inputs import BadInput, naming, read_labels, read_rows
from .output import (
    common_options,
    draw_scores,
    find_device,
    on_a_terminal,
    percent,
    publish,
    status_of,
    stdout_aside,
    table,
)

KNN = {"faiss": FaissKNN, "keops": KeOpsKNN}


class Sides(NamedTuple):
    """Rows (N, D) and labels (N,) of the queries, and of the references."""

    query: Tensor | RowSource
    labels: Tensor
    reference: Tensor | RowSource | None = None
    reference_labels: Tensor | None = None


@click.command(epilog=f"Metrics: {', '.join(NAMES).replace('{k}', 'K')}.")
@click.argument("embeddings")
@click.argument("labels")
@click.option("--reference", metavar="FILE", help="Embeddings to search in; default EMBEDDINGS themselves.")
@click.option("--reference-labels", metavar="FILE", help="Their labels.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    show_default="AMI, NMI and five of neighbours",
    help="May be repeated; names stand below.",
)
@click.option(
    "--k",
    metavar="N",
    show_default="all",
    help="Neighbours per query, or max_bin_count: as many as the largest class has.",
)
@click.option("--knn", type=click.Choice(["torch", *KNN]), default="torch", show_default=True, help="Who searches.")
@click.option("--distance", type=click.Choice(DISTANCES), default="l2", show_default=True)
@click.option("--per-class", is_flag=True, help="Also a table with a row for each class.")
@click.option(
    "--replicates",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Intervals from N reweightings of whole classes; 0: none.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    metavar="SHARE",
    help="Of the intervals.",
)
@click.option("--state", type=click.Path(dir_okay=False), metavar="FILE", help="Of partial counts, to go on from.")
@click.option(
    "--state-seconds",
    type=click.FloatRange(0),
    default=SECONDS,
    show_default=True,
    metavar="N",
    help="Between two writes of the state.",
)
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
    replicates: int,
    confidence: float,
    state: str | None,
    state_seconds: float,
    device: str | None,
    **outputs: Path | None,
) -> int:
    """Score EMBEDDINGS (N rows) by their LABELS (N): do nearest neighbours share them, do clusters?

    Files: .npy, .npz, .pt, .safetensors, .csv and .jsonl, with pyarrow .parquet, .arrow and .feather; `file:name` picks
    one array or column of several. Patterns such as 'embeddings-*.parquet:column' are the files of these names, one
    after the other. Labels are integers, or words in a .txt, .csv or .jsonl file, one per line, or in a column. A .npy
    file on a CPU may be larger than the memory, and so may be any references that are several files, a table or scored
    with --state: these are read in blocks. With --state a run that was killed goes on where it was.

    Under torchrun each rank reads and holds a part of the rows, and the answer is that of one process.

    \b
    tensormetrics retrieval embeddings.npy labels.txt --replicates 1000 --plot scores.png
    tensormetrics retrieval queries.npz:x queries.npz:y --reference base.npy --reference-labels base.csv
    tensormetrics retrieval q.npy q.txt --reference 'base-*.parquet:x' --reference-labels 'base-*.parquet:y' --metric
    precision_at_1 --k 10 --state counts.pt
    """
    if (reference is None) != (reference_labels is None):
        raise BadInput("--reference and --reference-labels: give both or neither")
    if k not in (None, "max_bin_count") and not (k.isdecimal() and int(k)):
        raise BadInput(f"--k: got {k!r}, wanted an integer >= 1 or max_bin_count; leave it out for all neighbours")
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1 and per_class:
        raise BadInput("--per-class: not on several ranks; leave it out, or run without torchrun")
    if state and (ranks > 1 or not reference):
        raise BadInput("--state: wanted a --reference that is read in blocks, and one process; leave it out")
    depth: int | Literal["max_bin_count"] | None = int(k) if k and k.isdecimal() else "max_bin_count" if k else None
    place = find_device(device)
    query, given, classes = _side(embeddings, labels)
    if ranks == 1 and isinstance(query, RowSource):
        query = query.read(0, len(query))
    sides = Sides(query, given.to(place))
    if reference and reference_labels:
        references, numbers, names = _side(reference, reference_labels, bool(state))
        if (classes is None) != (names is None):
            raise BadInput(f"{reference_labels}: wanted labels of the kind of {labels}, words or integers")
        if classes is not None and names is not None:
            given, numbers, classes = _joined(given, classes, numbers, names)
        if not torch.isin(given, numbers).any():
            raise BadInput(f"{labels}: none of its labels is one of {reference_labels}")
        sides = Sides(query, given.to(place), references, numbers.to(place))
    files = {"query": embeddings, "query_labels": labels, "reference": reference, "reference_labels": reference_labels}
    aside = stdout_aside() if knn == "keops" else nullcontext()  # it tells what it compiles
    with naming(**files, include="--metric", k="--k", distance="--distance"), aside:
        searcher = {"distance": distance} if knn == "torch" else {"knn_func": KNN[knn](distance=distance)}
        calculator = AccuracyCalculator(metrics, k=depth, device=place, progress=on_a_terminal(), **searcher)
        if ranks > 1:
            values = _on_ranks(calculator, sides)
            if int(os.environ["RANK"]):
                return status_of(values.values())
        else:
            values = calculator.get_accuracy(*sides, state=state, state_seconds=state_seconds)
        assert calculator.last is not None  # what it has just scored
        scored = calculator.last.scores
        found = {}
        if replicates and any(statistic_of(name) == "mean" for name in scored):
            groups = sides.labels if ranks == 1 else None
            found = calculator.interval(confidence=confidence, replicates=replicates, groups=groups)
        intervals = {name: (float(each.low), float(each.high)) for name, each in found.items()}
        by_class = _by_class(scored, sides.labels, classes) if per_class else {}
    head = ["metric", "value", *([f"{percent(confidence)} interval"] if replicates else [])]
    tables = [table(head, ([name, value, intervals.get(name)][: len(head)] for name, value in values.items()))]
    if by_class:
        tables.append(table(["class", *scored], ([label, *row.values()] for label, row in by_class.items())))
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
    spread = {name: [row[name] for row in by_class.values()] for name in scored} if by_class else {}
    return publish(
        "retrieval",
        tables,
        answer,
        lambda: draw_scores(values, intervals, spread, confidence=confidence),
        values.values(),
        **outputs,
    )


def _on_ranks(calculator: AccuracyCalculator, sides: Sides) -> dict[str, float]:
    """Each rank holds a part of the rows; all get the answer of one process."""
    torch.distributed.init_process_group("gloo")
    try:
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        query, labels, reference, reference_labels = sides
        role: Role = "both" if reference is None else "query"
        given: list[tuple[Role, Tensor | RowSource, Tensor]] = [(role, query, labels)]
        if reference is not None and reference_labels is not None:
            given.append(("reference", reference, reference_labels))
        for role, rows, numbers in given:
            start, stop = (len(rows) * n // ranks for n in (rank, rank + 1))
            part = rows.read(start, stop) if isinstance(rows, RowSource) else rows[start:stop]
            own = numbers[start:stop]
            calculator.update(part.to(own.device), own, role=role, groups=own)
        return {name: float(value) for name, value in calculator.compute().items()}
    finally:
        torch.distributed.destroy_process_group()


def _side(embeddings: str, labels: str, in_blocks: bool = False) -> tuple[Tensor | RowSource, Tensor, list[str] | None]:
    rows, (numbers, classes) = read_rows(embeddings, in_blocks), read_labels(labels)
    if len(rows.shape) != 2:
        raise BadInput(f"{embeddings}: got an array of shape {tuple(rows.shape)}, wanted one row per item: (N, D)")
    if len(rows) != len(numbers):
        hint = "; leave out the header" if len(numbers) == len(rows) + 1 and classes else ""
        raise BadInput(f"{labels}: got {len(numbers)} labels for the {len(rows)} rows of {embeddings}{hint}")
    return rows, numbers, classes


def _joined(a: Tensor, a_classes: list[str], b: Tensor, b_classes: list[str]) -> tuple[Tensor, Tensor, list[str]]:
    """Two numberings of words into one."""
    classes = sorted({*a_classes, *b_classes})
    number = {word: i for i, word in enumerate(classes)}
    tables = (torch.tensor([number[word] for word in words]) for words in (a_classes, b_classes))
    first, second = (numbers[side] for numbers, side in zip(tables, (a, b), strict=True))
    return first, second, classes


def _by_class(scores: dict[str, Tensor], labels: Tensor, names: list[str] | None) -> dict[str, dict[str, float]]:
    # scores: (Q,) each  labels: (Q,)
    classes = Classes.of(labels, torch.ones_like(labels, dtype=torch.bool))
    rows: dict[str, dict[str, float]] = {str(names[n] if names else n): {} for n in classes.labels.tolist()}
    for metric, score in scores.items():
        for row, value in zip(rows.values(), averaged(score, classes, "class", statistic_of(metric)), strict=True):
            row[metric] = float(value)
    return rows
