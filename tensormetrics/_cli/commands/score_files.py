"""Scores of items in logs and tables: their means, and comparisons of models."""

import glob
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

from ...core.results.estimates import Estimate
from ...core.results.table import Table
from ...uncertainty import compare, interval, read_scores
from ...uncertainty.item_scores.item_scores import Scores
from ...uncertainty.planning import more_items
from ..inputs.text import existing
from ..naming import naming
from ..option_types import IntFromTwo, Option, Power, Probability, Rope, refuse
from ..output import publish
from ..score_tables import comparison_json, comparison_table, differences, score_json, score_table


def scores(
    files: Annotated[tuple[str, ...], Option(metavar="FILE...")],
    *,
    metric: str | None = None,
    answer_filter: Annotated[str | None, Option(name="--filter")] = None,
    ids: str | None = None,
    groups: str | None = None,
    model: str | None = None,
    on_missing: Literal["error", "drop", "zero"] = "error",
    lower_is_better: bool = False,
    bounds: Annotated[tuple[float, float] | None, Option(type=float, nargs=2, metavar="LOW HIGH")] = None,
    anytime: bool = False,
    rope: Rope | None = None,
    power: Power | None = None,
    confidence: Probability = 0.95,
    replicates: IntFromTwo = 1000,
    **outputs: Any,
) -> int:
    """Average the scores of items in FILE with an interval, or compare those of several files.

    Two files are compared item by item, several also by rank. Files are logs of lm-evaluation-harness (samples_*.jsonl)
    or inspect_ai (JSON), or tables as CSV, TSV, JSON or JSONL. A folder of logs, or a pattern in quotes, is one model.

    \b
    tensormetrics scores samples_gsm8k.jsonl --metric exact_match
    tensormetrics scores large.jsonl small.jsonl --metric exact_match --groups subject --rope 0.01
    tensormetrics scores large.csv middle.csv small.csv --metric acc --ids question
    tensormetrics scores "large/samples_mmlu_*.jsonl" "small/samples_mmlu_*.jsonl" --groups task
    tensormetrics scores all.csv --metric acc --model model
    tensormetrics scores so_far.jsonl --metric judge --bounds 0 10 --anytime

    Args:
        metric (NAME): Metric or scorer of a log, or column of a table, there by default score. [default: the only one]
        answer_filter (NAME): Filter of the answers in a log of lm-evaluation-harness.
        ids (COLUMN): Names of the items; default the ids of the log, or the column id.
        groups (COLUMN): Groups of items, such as documents; items of a group share a weight. Of several logs also task.
        model (COLUMN): With one table: the column that names the model of each row; the models are compared.
        on_missing: Treatment of items that are missing in a file: an error, left out, or counted as 0.
        lower_is_better: Lower scores are better, as for losses and errors.
        bounds: Smallest and largest possible score. [default: 0 and 1 if all scores are, else unknown]
        anytime: With one or two files: intervals and p-values that are valid at every number of items, so that an
            evaluation may be monitored and stopped early.
        rope: With several files: differences up to X are negligible; print their probability.
        power: With several files: print the number of additional items that decide a comparison with this probability.
        replicates: Number of reweightings of the items or groups.
    """
    of_table, several = model is not None, len(files) > 1
    refuse(
        {
            "--rope: is for several files; give another one": rope is not None and not (several or of_table),
            "--power: is for several files; give another one": power is not None and not (several or of_table),
            f"--model: is for one file, got {len(files)}": of_table and several,
            "--filter: is for logs, got it with --model, which is for a table": of_table and answer_filter is not None,
            "--anytime: is for one file or two": anytime and len(files) > 2,
            **{
                f"{file}: got this file twice, wanted distinct files": file in files[:i] for i, file in enumerate(files)
            },
        }
    )
    models: dict[str, Scores] = {}
    options: dict[str, Any] = {"confidence": confidence}
    options |= {"anytime": True} if anytime else {"replicates": replicates}
    if model is not None:
        models = read_scores(existing(files[0]), metric, ids=ids, groups=groups, model=model)
        files = tuple(models)
    else:
        names = [Path(file).name for file in files]
        names = names if len({*names}) == len(names) else [*files]
        for file, name in zip(files, names, strict=True):
            models[name] = read_scores(_logs(file), metric, filter=answer_filter, ids=ids, groups=groups)
    estimates: dict[str, Estimate] = {}
    for name, read in models.items():
        with naming(scores=name):
            models[name] = read.replaced(higher_is_better=not lower_is_better, bounds=bounds)
            estimates[name] = interval(models[name], **options)
    if missing := [f"{read.missing} of {name}" for name, read in models.items() if read.missing]:
        warnings.warn(f"missing scores are left out: {', '.join(missing)}", stacklevel=1)
    means = score_table(estimates, estimates, confidence, "file")
    report: dict[str, Any] = {"files": list(files), "models": score_json(means)}
    options |= {"rope": rope, "on_missing": on_missing}
    tables = [means]
    if len(models) == 2:
        (a, b), name = models.values(), next(iter(models.values())).name
        tables = [comparison_table({name: (a, b)}, (files[0], files[1]), "metric", **options)]
    elif len(models) > 2:
        with naming(ids=", ".join(files)):
            pairs = compare(models, **options)
        tables = [pairs.models, pairs]
    if len(models) > 1:
        report["comparison"] = comparison_json(tables[-1])
    if len(models) > 2:
        report["ranks"] = pairs.ranks
    if power is not None:
        report["more_items"] = {name: more_items(result, power) for name, result in differences(tables[-1]).items()}
        cells = [["no number is enough" if count is None else f"{count:,}"] for count in report["more_items"].values()]
        caption = f"items to add, so that the interval excludes 0 with probability {power:g}"
        tables.append(Table([*report["more_items"]], ["more items"], cells, caption=caption, index="comparison"))
    return publish(tables, report, means, **outputs)


def _logs(file: str) -> str | Path:
    """Return a folder or a pattern as it is, and a file that exists."""
    return file if Path(file).is_dir() or (glob.has_magic(file) and not Path(file).exists()) else existing(file)
