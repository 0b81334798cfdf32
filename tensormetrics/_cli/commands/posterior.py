"""Credible intervals of the scores of confusion matrices."""

import warnings
from collections.abc import Collection, Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import click

from ...core.results.estimates import Estimate
from ...core.results.plots import legend_below, new_axes
from ...core.results.table import Table
from ...core.text.files import file_suffix
from ...core.text.tables import is_number
from ...posterior import Study, items_needed, load_csv
from ...posterior.plots.distributions import REGIONS_HEIGHT, ROW_HEIGHT
from ...posterior.sampling.errors import ConfigWarning
from ..inputs.arrays import read_tensor
from ..inputs.text import existing, rows_of
from ..naming import naming
from ..option_types import BadInput, Device, Finite, Option, PositiveInt, Rope, decoded
from ..output import Size, find_device, publish
from ..score_tables import caption_of

Column = tuple[str, int | str | None]  # metric and class
PRIORS = {"prevalence_prior": "--prior", "confusion_prior": "--prior"}


def posterior(
    matrices: Annotated[tuple[str, ...], Option(metavar="[MATRIX]...")] = (),
    *,
    metrics: Annotated[tuple[str, ...], Option(name="--metric")] = ("acc", "f1@macro", "mcc"),
    paired: str | None = None,
    compare: bool = False,
    rope: Rope | None = None,
    width: Annotated[float, Option(type=Finite(0, min_open=True))] | None = None,
    prior: str = "balanced",
    zero_division: Literal["0", "1", "nan"] | None = None,
    replicates: PositiveInt = 10_000,
    confidence: Annotated[float, Option(type=Finite(0, 1, min_open=True))] = 0.95,
    seed: Annotated[int, Option(type=click.IntRange(0))] = 0,
    device: Device | None = None,
    **outputs: Any,
) -> int:
    """Compute credible intervals of the scores of confusion matrices.

    A MATRIX has counts: rows are the truth, columns the predictions.

    Files: .csv, with commas, semicolons or tabs, and optionally a first row and a first column of class names; also
    .npy, .npz, .pt, .safetensors and .jsonl. An experiment is named after its file, preceded by its folder if there
    are several folders.

    \b
    tensormetrics posterior mlp.csv cnn.csv --compare --rope 0.01
    tensormetrics posterior --paired answers.csv --metric acc --compare --plot acc.png

    Args:
        metrics (NAME): Metric, such as mcc, tpr (one value per class), f1@macro or fbeta+beta=2@macro; may be repeated;
            the names are listed below.
        paired (FILE): A .csv of items on which models are compared item by item: a header, then rows of the true label
            and each model's answer.
        compare: Also compare all pairs of experiments and find the best; --plot draws the differences.
        rope: With --compare: differences up to X are negligible.
        width (X): Also print the total number of similar items for an interval of width X.
        prior (NUMBER|NAME): Counts added to the cells: balanced, one for the table, half of it on the diagonal;
            hierarchical, which shares information between classes, for 5 to 20 items per class; perks, one for each
            row; or a number for every cell, jeffreys (1/2) or laplace (1). 0: unobserved cells are impossible.
        zero_division (0|1|nan): Value of an undefined score, such as the precision of a class that is never predicted.
            [default: 0 for f1, fbeta and p4, nan for others]
        replicates: Number of draws from each posterior.
        confidence (SHARE): Probability of the intervals, which are highest density intervals.
        seed (N): Seed of the draws.
    """
    if not matrices and not paired:
        raise BadInput("MATRIX: got no file, wanted at least one, or --paired FILE")
    of_rows = prior in ("balanced", "hierarchical")
    priors = ("perks", prior) if of_rows else (decoded(prior),) * 2
    with naming(replicates="--replicates", confidence="--confidence"):
        warnings.simplefilter("ignore", ConfigWarning)
        undefined = None if zero_division is None else float(zero_division)
        study = Study(seed, replicates, confidence, device=find_device(device), zero_division=undefined)
        for metric in metrics:
            study.add_metric(metric)
    classes = _add_matrices(study, matrices, priors)
    if paired:
        classes = _add_items(study, paired, classes, priors)
    if compare and len(study.list_experiments()) < 2:
        raise BadInput("--compare: got one experiment, wanted at least two")
    scores = study.table()
    columns = _columns(scores, classes)
    tables = [Table(scores.rows, scores.higher_is_better, scores.cells, caption=caption_of(confidence))]
    for name, column in columns.items() if compare else ():
        pairs = study.compare(*column, rope=rope)
        tables.append(Table(pairs.rows, pairs.higher_is_better, pairs.cells, index=name))
    if width is not None:
        needed = [_items_needed(study, *column, width, priors) for column in columns.values()]
        index = f"items for an interval of {width:g}"
        tables.append(Table(scores.rows, [*columns], [*zip(*needed, strict=True)], index=index))
    cells = {name: {row: scores[row, name] for row in scores.rows} for name in columns}
    medians = {name: {row: float(cell.details["median"]) for row, cell in of.items()} for name, of in cells.items()}
    numbers = {
        name: {row: {**cell.to_dict(), "median": medians[name][row]} for row, cell in of.items()}
        for name, of in cells.items()
    }
    answer = {"files": list(matrices), "paired": paired, "scores": numbers}
    values = chain(*(of.values() for of in medians.values()))
    return publish(tables, answer, lambda size: draw(study, columns.values(), compare, rope, size), values, **outputs)


def draw(study: Study, columns: Collection[Column], compare: bool = False, rope: Any = None, size: Size = None) -> Any:
    """Draw the posteriors of all experiments per metric, and with `compare` the differences from the best."""
    rows = len(study.list_experiments())
    heights = ([ROW_HEIGHT] * rows + [REGIONS_HEIGHT] * (rows - 1) * compare) * len(columns)
    size = size or (6.3, sum(heights) + 0.4 * len(columns) + 0.4)
    figure, axes = new_axes(None, size, len(heights), gridspec_kw={"height_ratios": heights})
    free = iter(axes)
    for metric, label in columns:
        study.plot(metric, label, ax=list(islice(free, rows)))
        if compare:
            scores = study.table(metric, label)
            best = scores.sort(next(iter(scores.columns))).rows[0]
            study.plot(metric, label, minus=best, rope=rope, ax=list(islice(free, rows - 1)))
    legend_below(figure, axes)
    return figure


def _add_matrices(study: Study, matrices: tuple[str, ...], priors: tuple[Any, Any]) -> list[str] | None:
    """Add an experiment for each file; return the names of the classes, if one has any."""
    matrices_of, classes = {}, None
    for file in _named(matrices):
        names, matrices_of[file] = _read_matrix(file)
        if classes and names and names != classes:
            raise BadInput(f"{file}: its classes are {', '.join(names)}, but those before are {', '.join(classes)}")
        classes = classes or names
    for file, name in _named(matrices).items():
        with naming(**PRIORS, confusion_matrix=file):
            study.add_experiment(name, matrices_of[file], *priors, labels=classes)
    return classes


def _add_items(study: Study, paired: str, classes: list[str] | None, priors: tuple[Any, Any]) -> list[str]:
    """Add an experiment for each model of a file of items; return the names of the classes."""
    truth, models = _read_items(paired)
    classes = classes or _sorted({*truth, *chain(*models.values())})
    if len(classes) < 2:
        raise BadInput(f"{paired}: got the one label {classes[0]!r}, wanted at least two")
    for model, answers in models.items():
        with naming(**PRIORS, y_true=paired, y_pred=paired, confusion_matrix=f"{paired}, {model}"):
            study.add_experiment(model, None, *priors, truth, answers, labels=classes, items=Path(paired).stem)
    return classes


def _read_matrix(file: str) -> tuple[list[str] | None, Any]:
    """Return the names of the classes, None without names, and the matrix."""
    if file_suffix(file) != ".csv":
        return None, read_tensor(file)
    with naming(confusion_matrix=file):
        matrix, labels = load_csv(existing(file), with_labels=True)
    return labels, matrix


def _items_needed(
    study: Study, metric: str, label: int | str | None, width: float, priors: tuple[Any, Any]
) -> list[int | None]:
    """Return the number of items that each experiment needs for an interval of this width; None if undefined."""
    counts: list[int | None] = []
    options = {"prevalence_prior": priors[0], "confusion_prior": priors[1], "seed": study.seed}
    options |= {"confidence": study.confidence, "replicates": study.replicates}
    for name in study.list_experiments():
        index = None if label is None else study.class_index(metric, label, name)
        try:
            counts.append(items_needed(study[name].confusion_matrix, metric, width, label=index, **options))
        except ValueError as error:
            warnings.warn(f"{name}: {str(error).replace('width: ', '--width: ', 1)}", stacklevel=1)
            counts.append(None)
    return counts


def _columns(scores: Table, classes: list[str] | None) -> dict[str, Column]:
    """Return the metric of each column of the table of scores, and its class if it has a value for each."""
    parts = {name: name.partition("/") for name, cells in scores.columns.items() if isinstance(cells, Estimate)}
    return {
        name: (metric, None if not has_class else label if classes else int(label))
        for name, (metric, has_class, label) in parts.items()
    }


def _named(files: tuple[str, ...]) -> dict[str, str]:
    """Return the experiment of each file: its stem, preceded by its folder if the files are in several folders."""
    folders = {Path(file).resolve().parent for file in files}
    names: dict[str, str] = {}
    for file in files:
        path = Path(file).resolve()
        name = path.stem if len(folders) == 1 else f"{path.parent.name}/{path.stem}"
        if name in names.values():
            raise BadInput(f"{file}: got a second experiment called {name}; rename one")
        names[file] = name
    return names


def _sorted(labels: Iterable[str]) -> list[str]:
    """Sort labels, as numbers if all are numbers: the order of classes matters to some metrics."""
    return sorted(labels, key=float if all(map(is_number, labels)) else str)


def _read_items(file: str) -> tuple[list[str], dict[str, list[str]]]:
    rows = rows_of(file)
    if len(rows) < 2 or len(rows[0][1]) < 2:
        raise BadInput(f"{file}: wanted a header, then rows of the true label and at least one model's answer")
    (_, (_, *models)), *items = rows
    for line, row in items:
        if not all(row):
            raise BadInput(f"{file}, line {line}: got an empty cell, wanted a label")
    if len(set(models)) < len(models):
        raise BadInput(f"{file}: got models called {', '.join(models)}, wanted distinct names")
    truth, *answers = zip(*(row for _, row in items), strict=True)
    return list(truth), {model: list(column) for model, column in zip(models, answers, strict=True)}
