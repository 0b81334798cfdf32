"""Ratings of models from battles in tables."""

from typing import Annotated, Any

import torch

from ...uncertainty import Ratings
from ..inputs.battles import read_battles
from ..naming import naming
from ..option_types import Arguments, Device, IntFromTwo, Option, Probability
from ..output import find_device, publish
from ..score_tables import caption_of, comparison_json, score_json


def ratings(
    files: Annotated[tuple[str, ...], Option(metavar="FILE...")],
    *,
    a: Annotated[str | None, Option(metavar="COLUMN")] = None,
    b: Annotated[str | None, Option(metavar="COLUMN")] = None,
    outcome: Annotated[str | None, Option(metavar="COLUMN")] = None,
    groups: Annotated[str | None, Option(metavar="COLUMN")] = None,
    option: Arguments = (),
    pairs: bool = False,
    win_rates: bool = False,
    confidence: Probability = 0.95,
    replicates: IntFromTwo = 1000,
    device: Device | None = None,
    **outputs: Any,
) -> int:
    """Rate models by battles in which people or judges say which of two answers is better.

    The models are those of Bradley-Terry and, with ties, Davidson; the table has intervals, ranks and the models that
    do not differ significantly from the best. Files are tables with a row for each battle: CSV, TSV, JSON, JSONL or
    Parquet.

    \b
    tensormetrics ratings battles.csv --groups question_id
    tensormetrics ratings votes.jsonl --a left --b right --outcome vote --pairs
    tensormetrics ratings battles.csv --option 'anchor=["gpt-4", 1200]'

    Args:
        a: Model with the first answer; default model_a, or a.
        b: Model with the second answer; default model_b, or b.
        outcome: Winner: model_a, model_b, tie, the model's name, or 1, 0, 0.5; default winner, outcome or winner_*.
        groups: Group of a battle, such as its question; battles of a group share a weight.
        option: Another argument of `Ratings`: anchor=["model", 1200], scale=logit, ties=false (a tie is half a win for
            each model) or prior_sd=null (no prior of the strengths); may be repeated.
        pairs: Also print the differences of all pairs of models.
        win_rates: Also print the fraction of battles that each model won against each other model.
        replicates: Number of reweightings of the battles or groups.
    """
    rows = read_battles(files, groups, a=a, b=b, outcome=outcome)
    options: dict[str, Any] = {"confidence": confidence, "replicates": replicates}
    with naming(battles=", ".join(files)):
        metric = Ratings(**option)
        score = torch.tensor(rows["outcome"], dtype=torch.float64).to(find_device(device))
        metric.update(rows["a"], rows["b"], score, groups=rows.get("groups"))
        table = metric.table(**options)
        effect = metric.position_effect(**options)
        further = [metric.win_rates(**options)] if win_rates else []
        compared = metric.compare(**options) if pairs else None
    report: dict[str, Any] = {"files": list(files), "models": score_json(table, "rating")}
    report["position_effect"] = effect.to_dict()
    report["ranks"] = {model: [table[model, f"{end} rank"] for end in ("first", "last")] for model in table.rows}
    report["best"] = [model for model in table.rows if table[model, "best"]]
    caption = f"{caption_of(confidence)}; position effect: {effect:+.3f}"
    tables = [table._with(caption=caption), *([compared] if compared is not None else []), *further]
    if compared is not None:
        report["comparison"] = comparison_json(compared)
    return publish(tables, report, table.select("rating"), **outputs)
