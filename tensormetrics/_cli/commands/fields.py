"""JSON answers of language models against references, field by field."""

import re
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import click

from ...core.text.tables import is_number
from ...structured import FieldReport, evaluate
from ...structured.comparators.annotations import annotation_of_text
from ...structured.fields.documents import read_schema
from ...structured.types.tree import ItemList, Record
from ..inputs.documents import aligned, json_file, read_documents
from ..naming import naming
from ..option_types import (
    STDOUT,
    Arguments,
    Option,
    OutputFile,
    Probability,
    Replicates,
    Rope,
    SecondModel,
    refuse,
    split_assignment,
)
from ..output import publish
from ..score_tables import score_table
from .structured import imported_class

UNMET = 4  # status if a --require is not met


def json(
    predicted: str,
    reference: str,
    *,
    schema: str | None = None,
    compare: SecondModel | None = None,
    id: Annotated[str | None, Option(metavar="KEY")] = None,
    answer: Annotated[str | None, Option(metavar="KEY")] = None,
    group: Annotated[str | None, Option(metavar="KEY")] = None,
    field: Annotated[tuple[str, ...], Option(metavar="PATH=SPEC")] = (),
    option: Arguments = (),
    worst: Annotated[int, Option(type=click.IntRange(0), metavar="N")] = 10,
    explain: Annotated[tuple[str, ...], Option(metavar="ID")] = (),
    html: OutputFile | None = None,
    save_schema: OutputFile | None = None,
    require: Annotated[tuple[str, ...], Option(metavar="SCORE=X")] = (),
    rope: Rope | None = None,
    replicates: Replicates = 1000,
    confidence: Probability = 0.95,
    **outputs: Any,
) -> int:
    """Compare a language model's JSON answers in PREDICTED with REFERENCE, field by field.

    `structured` computes metametric's product of similarities, with constraints and normalizers.

    \b
    tensormetrics json answers.jsonl reference.jsonl
    tensormetrics json answers.jsonl reference.jsonl --schema invoice.json --compare other.jsonl
    tensormetrics json log.jsonl reference.jsonl --id id --answer output --field 'lines[].price=near:rel=0.01'

    A line of PREDICTED is an answer: JSON, or text that contains JSON; an empty line is an empty answer. In a file that
    is one JSON array each item is an answer.

    Args:
        schema (FILE|MODULE:CLASS): A file with a JSON Schema, or a class; the module may be a path to a .py file, which
            is run. [default: types inferred from REFERENCE, and printed]
        compare: PREDICTED of a second model: also the differences by field.
        id: Key of the id by which documents are matched; default: by line number.
        answer: Key or path (choices[0].text) of the answer in each line, and of the reference if REFERENCE has it.
        group: Key of REFERENCE with the group of a document; groups are resampled together.
        field: Comparison of a field, such as name=similar:0.9, price=near:rel=0.01, notes=ignore or lines=by:sku.
        option: Another argument of `structured.evaluate`: extract=strict (or fences, lenient), on_invalid=skip (or
            raise, wrong), extra=ignore (or invented), match=0.7, numbers_in_strings=true, null_strings=["-"] or
            unlabelled=true; may be repeated.
        replicates: Intervals from N reweightings of the documents; 0: none.
        worst: Number of documents of lowest similarity that --html explains.
        explain: Also print the alignment of the document with this id or line number, on stderr next to JSON; may be
            repeated.
        html: Write the report as a self-contained page.
        save_schema: Write the schema as JSON, to be edited and passed to --schema.
        require: Status 4 if a score, such as micro-f1 or f1[total], is below X.
    """
    kind = (json_file(schema) if schema.endswith(".json") else imported_class(schema)) if schema else None
    root = read_schema(kind).root if kind is not None else None
    are_lists = isinstance(root, ItemList) or isinstance(root, Record) and root.is_tuple
    references = read_documents(reference, None, are_lists, answer=answer, id=id, group=group)
    specs = dict(split_assignment("--field", text) for text in field)
    fields = {path: annotation_of_text(spec, "--field") for path, spec in specs.items()}
    required = [split_assignment("--require", text) for text in require]
    refuse({f"--require: got {number!r}, wanted a number": not is_number(number) for _, number in required})
    options = option | {"fields": fields or None, "confidence": confidence, "replicates": replicates}
    groups = None if references.groups is None else [str(name) for name in references.groups]
    ids = None if references.ids is None else [str(name) for name in references.ids]
    keys, names = ids or range(len(references.lines)), ids or references.lines
    options |= {"ids": ids, "groups": groups}
    reports: dict[str, FieldReport] = {}
    for file in filter(None, (predicted, compare)):
        count = len(references.lines) if id is None else 0
        answers = read_documents(file, count, are_lists, answer=answer, id=id)
        preds = aligned(file, answers, reference, references, answer)
        where = f"{file}, {'line' if ids is None else 'id'}"
        lines_of = {f"predictions[{key!r}]": f"{where} {name}" for key, name in zip(keys, names, strict=True)}
        with naming(**lines_of, fields="--field"):
            try:
                reports[file] = evaluate(preds, references.values, kind, **options)
            except ValueError as error:
                match = re.match(r"references\[(\d+)\]\.?(?:: )?(.*)", str(error), re.DOTALL)
                if match is None:
                    raise
                raise ValueError(f"{reference}, line {references.lines[int(match[1])]}: {match[2]}") from error
        documents = zip(reports[file].documents, reports[file].positions, strict=True)
        reports[file].documents = [document._replace(id=names[n]) for document, n in documents]
    report = reports[predicted]
    tables = [report.table()]
    answer_of_command = {
        "files": {"predicted": predicted, "reference": reference, **({"compare": compare} if compare else {})},
        "documents": len(references.values),
        "scores": _numbers(report),
        "schema": report.schema,
    }
    if compare:
        tables.append(report.compare(reports[compare], confidence=confidence, rope=rope))
    files: dict[Path, str] = {}
    if html is not None:
        files[html] = report.to_html(worst=worst, other=reports[compare] if compare else None)
    if save_schema is not None:
        files[save_schema] = dumps(report.schema, indent=2) + "\n"
    if kind is None:
        click.echo(f"schema: {dumps(report.schema)}", err=True)
    by_name = {str(each.id): each.id for each in report.documents}
    wanted = "wanted the id or the line of a document"
    refuse({f"--explain: got {name!r}, {wanted}": name not in by_name for name in explain})
    explanations = [report.explain(by_name[name]) for name in explain]
    unmet = _unmet(report, required)
    totals = score_table(report.totals, report.totals if replicates else {}, confidence, "score")
    status = publish(tables, answer_of_command, totals, (), files, **outputs)
    is_json = outputs["text_format"] == "json" or outputs["json_file"] == STDOUT
    for explanation in explanations:
        click.echo(f"\n{explanation}", err=is_json)
    if unmet:
        click.echo(f"not met: {'; '.join(unmet)}", err=True)
    return UNMET if unmet else status


def _numbers(report: FieldReport) -> dict[str, Any]:
    scores = {name: float(value) for name, value in report.totals.items()}
    return scores | {f"f1[{path}]": float(report[path].f1) for path in report}


def _unmet(report: FieldReport, required: list[tuple[str, str]]) -> list[str]:
    """Return a text for each score below its required value."""
    scores = _numbers(report)
    refuse({f"--require: got {name!r}, wanted one of {', '.join(scores)}": name not in scores for name, _ in required})
    unmet = [(name, number) for name, number in required if not scores[name] >= float(number)]  # also NaN
    return [f"{name} is {scores[name]:.4g}, required {float(number):g}" for name, number in unmet]
