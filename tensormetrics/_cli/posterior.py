"""`tensormetrics posterior`: how sure are these scores?"""

import csv
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .._plots import legend_below, new_axes
from ..posterior import Study, get_metric, load_csv
from ..posterior.errors import ConfigWarning
from .inputs import BadInput, naming
from .output import common_options, find_device, save_figure, table, write_json


@click.command()
@click.argument("matrices", nargs=-1, metavar="[MATRIX.csv]...")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    default=("acc", "f1@macro", "mcc"),
    show_default=True,
    help="Such as mcc, tpr (one value per class) or fbeta+beta=2@macro; may be repeated.",
)
@click.option(
    "--paired",
    metavar="FILE",
    help="A .csv of items on which models are compared item by item: a header, "
    "then the true label and each model's answer.",
)
@click.option("--compare", is_flag=True, help="Also all pairs of experiments, and who is best.")
@click.option("--min-sig-diff", type=click.FloatRange(0), metavar="X", help="Differences below X do not matter.")
@click.option(
    "--prior",
    default="0",
    show_default=True,
    help="Of every cell: a number, perks, jeffreys or laplace; 0: what was not seen is impossible.",
)
@click.option("--samples", type=click.IntRange(1), default=10_000, show_default=True)
@click.option(
    "--ci",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.95,
    show_default=True,
    help="Mass of the highest density intervals.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@common_options
def posterior(
    matrices: tuple[str, ...],
    metrics: tuple[str, ...],
    paired: str | None,
    compare: bool,
    min_sig_diff: float | None,
    prior: str,
    samples: int,
    ci: float,
    seed: int,
    device: str | None,
    json_file: Path | None,
    plot: Path | None,
) -> None:
    """Credible intervals of scores of confusion matrices: rows are the truth, columns the predictions.

    An experiment is called by its file, a group of experiments by its folder where there are several.
    """
    if not matrices and not paired:
        raise BadInput("MATRIX.csv: got no file, wanted at least one, or --paired FILE")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        study = Study(seed, samples, ci, device=find_device(device))
    given = _number_or_word(prior)
    with naming():
        for metric in metrics:
            study.add_metric(metric)
    for file, name in _named(matrices).items():
        with naming(confusion_matrix=file):
            matrix = _read_matrix(file)
            study.add_experiment(name, matrix, given, given)
    if paired:
        truth, models = _read_items(paired)
        for model, answers in models.items():
            with naming(y_true=paired, y_pred=paired):
                study.add_experiment(model, None, given, given, truth, answers, items=Path(paired).stem)
    answer: dict[str, Any] = {}
    for metric, label in _columns(study, metrics):
        name = metric if label is None else f"{metric}, class {label}"
        rows = study.report_metric_summaries(metric, label, columns=["Observed", "Median", "HDI"], table_fmt="records")
        answer[name] = {"summaries": rows}
        head = [name, "observed", "median", f"{ci:.0%} interval"]
        click.echo(table(head, ([_label(row), *list(row.values())[2:]] for row in rows)))
        if compare and len(study.all_experiments()) > 1:
            _compare(study, metric, label, min_sig_diff, answer[name])
        click.echo()
    write_json(json_file, "posterior", {"files": list(matrices), "paired": paired, "prior": prior, "scores": answer})
    save_figure(plot, lambda: draw(study, list(_columns(study, metrics))))


def draw(study: Study, columns: Sequence[tuple[str, int | None]]) -> Any:
    """The posteriors of all experiments, below each other for each value of a metric."""
    rows = len(study.list_experiments())
    figure, axes = new_axes(None, (6.3, len(columns) * (0.625 * rows + 0.4) + 0.4), len(columns) * rows)
    for i, column in enumerate(columns):
        study.plot_metric_summaries(*column, ax=axes[i * rows : (i + 1) * rows])
    legend_below(figure, axes)
    return figure


def _read_matrix(file: str) -> Any:
    try:
        return load_csv(file)
    except FileNotFoundError as error:
        raise BadInput(f"{file}: there is no such file") from error
    except (OSError, ValueError) as error:
        raise BadInput(str(error) if str(error).startswith(file) else f"{file}: {error}") from error


def _compare(study: Study, metric: str, label: int | None, min_sig_diff: float | None, answer: dict[str, Any]) -> None:
    pairs = study.report_pairwise_comparisons(metric, label, min_sig_diff=min_sig_diff, table_fmt="records")
    answer["pairs"] = pairs
    click.echo(table(list(pairs[0]), (list(row.values()) for row in pairs)))
    if get_metric(metric).higher_is_better is not None:
        ranks = study.report_listwise_comparison(metric, label, table_fmt="records")
        answer["ranks"] = ranks
        click.echo(table(["best is", "with probability"], ([_label(row), row["Rank 1"]] for row in ranks)))


def _label(row: dict[str, Any]) -> str:
    return row["Group"] if row["Group"] == row["Experiment"] else f"{row['Group']}/{row['Experiment']}"


def _columns(study: Study, metrics: tuple[str, ...]) -> Any:
    """Metrics of one number, and each class of those with one number per class."""
    for metric in dict.fromkeys(metrics):
        if get_metric(metric).is_multiclass:
            yield metric, None
        else:
            yield from ((metric, label) for label in range(study.num_classes))


def _named(files: tuple[str, ...]) -> dict[str, str]:
    """File -> experiment: its stem, after its folder where files lie in several."""
    folders = {Path(file).resolve().parent for file in files}
    names: dict[str, str] = {}
    for file in files:
        path = Path(file).resolve()
        name = path.stem if len(folders) == 1 else f"{path.parent.name}/{path.stem}"
        if name in names.values():
            raise BadInput(f"{file}: got a second experiment called {name}; rename one")
        names[file] = name
    return names


def _number_or_word(prior: str) -> float | str:
    try:
        return float(prior)
    except ValueError:
        return prior


def _read_items(file: str) -> tuple[list[str], dict[str, list[str]]]:
    try:
        with Path(file).open(encoding="utf-8", newline="") as opened:
            rows = [row for row in csv.reader(opened) if row]
    except OSError as error:
        raise BadInput(f"{file}: {error}") from error
    if len(rows) < 2 or len(rows[0]) < 2:
        raise BadInput(f"{file}: wanted a header, then rows of the true label and at least one model's answer")
    for line, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise BadInput(f"{file}, line {line}: got {len(row)} columns, wanted {len(rows[0])} as above")
    (_, *models), *items = rows
    truth, *answers = zip(*items, strict=True)
    return list(truth), {model: list(column) for model, column in zip(models, answers, strict=True)}
