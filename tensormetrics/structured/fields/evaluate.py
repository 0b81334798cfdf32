"""The function `evaluate`, which scores structured documents field by field in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.arguments import checks
from ..types.tree import Schema
from .documents import ScoredDocuments, read_json, read_schema
from .infer import complete_schema, infer_schema
from .report import BATCH, DocumentScore, FieldReport
from .scores import FieldScores

MAX_WEIGHTED = 1 << 23  # replicates times sums; beyond, the number of replicates is not increased


def evaluate(
    predictions: Sequence[Any],
    references: Sequence[Any],
    schema: Any = None,
    *,
    ids: Sequence[Any] | None = None,
    groups: Sequence[Any] | None = None,
    confidence: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    **options: Any,
) -> FieldReport:
    """Compare structured answers, such as the JSON of a language model, with references, field by field.

    A value is correct, wrong, missed (only in the reference) or invented (only in the prediction). Items of lists are
    matched one-to-one with the maximum sum of similarities; pairs below `match` are not matched. An answer that is no
    JSON misses all values.

    Args:
        predictions: An answer for each document: a text, None, or a parsed value.
        references: A reference for each document: a value, or a text of JSON.
        schema: A record class (dataclass, TypedDict, NamedTuple, attrs, msgspec, pydantic), another type such as
            ``list[Invoice]``, or a JSON Schema as a dictionary; default: types are inferred from the references, and
            keys that the references lack count as invented.
        ids: Integers or names of the documents, which may have another order in the report of another model.
        groups: Integers or names of the groups of the documents, such as customers; groups are resampled as units.
        confidence: Mass of the intervals, in (0, 1).
        replicates: Number of random draws, 0 for no intervals; raised to about 20 per row of the report if memory
            allows, so that corrected p-values can reach 0.05.
        seed: Seed of the draws.
        **options: Options of reading and comparison.
            ``extract``: locations of JSON: "lenient" (default): also code blocks of Markdown and prose; "fences": also
            code blocks; "strict": the answer is JSON; "repair": as "lenient", and rewrites trailing commas, single
            quotes, None, True and False, which are counted as "repaired".
            ``on_invalid``: an unreadable answer is "wrong" (default), an error ("raise"), or skipped ("skip").
            ``extra``: keys that the schema lacks: "ignore" (default with a schema), or "invented" values.
            ``numbers_in_strings``: "12" is a number. ``null_strings``: texts that denote null.
            ``unlabelled``: keys that a reference lacks were not annotated, and are not compared.
            ``defaults``: missing keys of predictions and references have the default of the class.
            ``match``: smallest similarity of matched items of lists, in [0, 1], default 0.5.
            ``fields``: annotations of `tensormetrics.structured.fields` by path, such as ``{"name": similar(0.9)}``.
            ``validate``: function of a value that raises a ValueError if it is not valid, for the rate of valid ones.

    Returns:
        A report; `print` shows it as a table.

    Raises:
        ValueError: If there are no documents, the numbers of documents differ, or a reference is no value of the
            schema; the message has the path.
        TypeError: If an option is unknown.

    Example:
        >>> report = evaluate(
        ...     ['{"name": "Ada", "born": 1815}', 'Sure: {"name": "Kurt", "born": 1907}'],
        ...     [{"name": "Ada", "born": 1815}, {"name": "Kurt", "born": 1906}],
        ...     replicates=0,
        ... )
        >>> report["born"].f1, report["name"].recall, report["born"].wrong
        (0.5, 1.0, 1)
        >>> report.worst(1)[0].id
        1
    """
    predictions, references = checks.as_list("predictions", predictions), checks.as_list("references", references)
    if not references:
        raise ValueError("references: got no documents, wanted at least one")
    if len(predictions) != len(references):
        raise ValueError(f"predictions: got {len(predictions)} documents, wanted {len(references)}")
    ids, groups = _names("ids", ids, len(references)), _names("groups", groups, len(references))
    is_inferred = schema is None
    tree = _complete(schema, references)
    if is_inferred and options.get("extra") is None:
        options = options | {"extra": "invented"}
    metric = FieldScores(tree, replicates=replicates, seed=seed, **options)
    needed = 20 * len(metric.paths) - 1  # with fewer, corrected p-values could not reach .05
    if 0 < replicates < needed and needed * metric.sums.numel() <= MAX_WEIGHTED:
        metric = FieldScores(tree, replicates=needed, seed=seed, **options)
    documents: list[DocumentScore] = []
    positions: list[int] = []
    for start in range(0, len(references), BATCH):
        part = slice(start, start + BATCH)
        names, units = (None if column is None else column[part] for column in (ids, groups))
        scored = metric.add_batch(predictions[part], references[part], names, units)
        documents += _documents(scored, range(start, start + len(scored.readings)) if names is None else names)
        positions += (start + scored.included).tolist()
    return FieldReport(metric, confidence, predictions, references, documents, positions, is_inferred)


def _names(name: str, values: Any, count: int) -> list[Any] | None:
    """Return ids or groups as a list.

    Raises:
        ValueError: If there are more or fewer than documents.
    """
    if values is None:
        return None
    names = values.tolist() if hasattr(values, "tolist") else checks.as_list(name, values)
    if len(names) != count:
        raise ValueError(f"{name}: got {len(names)}, wanted {count}, one for each document")
    return names


def _complete(schema: Any, references: Sequence[Any]) -> Schema:
    if schema is None:
        return infer_schema([read_json(reference, n) for n, reference in enumerate(references)])
    tree = read_schema(schema)
    has_parts = [not isinstance(reference, str) or reference[:1] in "{[" for reference in references]
    return complete_schema(tree, [read_json(x, n) for n, x in enumerate(references) if has_parts[n]])


def _documents(scored: ScoredDocuments, ids: Sequence[Any]) -> list[DocumentScore]:
    errors = scored.comparison.counts[..., 1:].sum((1, 2)) + scored.comparison.invalid.sum(1)
    columns = (scored.included, scored.similarity, scored.is_exact, scored.is_valid, errors)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    readings = [(reading.how, reading.reason) for reading in scored.readings]
    return [DocumentScore._make((ids[n], *row, *readings[n])) for n, *row in rows]
