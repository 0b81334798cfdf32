"""Predicted structures against references: dataclasses, coreference, named entities, AMR."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click

from ...core.text.joining import Item, join
from ...structured import (
    CorefScores,
    Family,
    Smatch,
    SpanScores,
    derive,
    macro_average,
    micro_average,
)
from ...structured.fields.engine.faults import first_fault
from ...structured.fields.engine.slots import CompiledSchema, compile_schema, root_kinds
from ...structured.fields.instances import instance_of
from ...structured.fields.reading import Reader
from ...structured.objects.metric import StructuredMetric
from ...structured.suites.amr import read_amr_file
from ...structured.suites.conll import read_coref_file
from ...structured.suites.entities.tags import read_tagged
from ...structured.types.class_tree import schema_of
from ...structured.types.records import is_record, is_tuple
from ..inputs.documents import read_documents
from ..inputs.text import existing
from ..names import TAGS
from ..naming import naming
from ..option_types import Arguments, BadInput, Device, Option, Probability, Replicates, Rope, SecondModel
from ..output import find_device, publish
from ..score_tables import comparison_json, comparison_table, score_json, score_table

NORMALIZERS = ("precision", "recall", "f1")


def structured(predicted: str, reference: str, *, schema: str, option: Arguments = (), **options: Any) -> int:
    """Compare PREDICTED and REFERENCE by a metric derived from a class.

    Both are .jsonl files of one document per line. `json` says which fields are wrong, and reads the answers of
    language models.

    \b
    tensormetrics structured predicted.jsonl reference.jsonl --schema my_schema.py:Document

    Args:
        schema (MODULE:CLASS): Class of the documents: a dataclass, a NamedTuple, a TypedDict or a class of attrs,
            msgspec or pydantic. The module may be a path to a .py file; it is run.
        option: Another argument of `derive`, for a class without @metametric: constraint=~ matches items of lists
            repeatedly, constraint=-> those of the reference, constraint=<- those of the prediction.
    """
    cls = imported_class(schema)
    if not is_record(cls) or is_tuple(cls):
        kinds = "a dataclass, a NamedTuple, a TypedDict or a class of attrs, msgspec or pydantic"
        raise BadInput(f"--schema: got {schema}, which is {cls!r:.60}, wanted {kinds}")
    attached = vars(cls).get("metric")  # of @metametric, which writes it where no field is called so
    metric = attached if isinstance(attached, StructuredMetric) else derive(cls, **option)
    averages = {"micro": micro_average(NORMALIZERS), "macro": macro_average(NORMALIZERS)}
    plan = compile_schema(schema_of(cls))
    reader = Reader(root_kinds(plan))

    def read(file: str) -> list[Item]:
        answers = read_documents(file, None if file == reference else 0)
        return [
            Item(_object(plan, reader, f"{file}, line {line}", value), [line])
            for line, value in zip(answers.lines, answers.values, strict=True)
        ]

    return _report(read, partial(Family, metric, averages), predicted=predicted, reference=reference, **options)


def coref(predicted: str, reference: str, *, option: Arguments = (), **options: Any) -> int:
    """Score coreference of PREDICTED and REFERENCE.

    Both are files in the format of CoNLL-2011/2012: the last column has brackets such as (0, 0) and (0)|(1; "#begin
    document" and "#end document" enclose documents, which are joined by their names. Their words must be equal. Or
    JSON: a document is a line, or an item of a list, {"doc_key": ..., "clusters": [[[first, last], ...], ...]}.

    \b
    tensormetrics coref predicted.conll reference.conll

    Args:
        option: Another argument of `CorefScores`: singletons=drop, or repeated_mentions=first (or largest), the cluster
            of a mention that is in several clusters.
    """

    def update(scores: CorefScores, *inputs: list[tuple[str, Any]]) -> None:
        preds, refs = ([clusters for _, clusters in documents] for documents in inputs)
        scores.update_clusters(preds, refs, names=[name for name, _ in inputs[1]])

    return _report(
        read_coref_file, partial(CorefScores, **option), update, predicted=predicted, reference=reference, **options
    )


def ner(
    predicted: str,
    reference: str | None = None,
    *,
    mode: Annotated[Any, Option(type=click.Choice(TAGS))] = "lenient",
    suffix: bool = False,
    **options: Any,
) -> int:
    """Score named entities of PREDICTED and REFERENCE.

    Both have one token per line, its tag (B-PER, I-PER, O, ...) in the last column, and a blank line between sentences.
    Their tokens, in the first column (in CoNLL-U, which numbers words, the second), must be equal; sentences are joined
    by ids (# sent_id = 1, or # id 1) where all have one. Without REFERENCE it is the last column but one of PREDICTED,
    as for conlleval.

    \b
    tensormetrics ner predicted.bio reference.bio --mode iob2
    tensormetrics ner both.txt
    tensormetrics ner large.bio reference.bio --compare small.bio

    Args:
        mode: Tagging scheme; lenient interprets inconsistent tags as conlleval does, the others ignore them.
        suffix: Tags are PER-B and PER-I, the label first.
    """
    labels: list[str] = []
    read = partial(read_tagged, suffix=suffix, labels=labels)
    return _report(
        read,
        lambda **resampled: SpanScores(labels=sorted(labels) or None, **resampled),
        lambda scores, *inputs: scores.update_tags(*inputs, mode, suffix=suffix),
        unit="sentence",
        read_reference=read if reference else partial(read, column=-2),
        predicted=predicted,
        reference=reference or predicted,
        **options,
    )


def amr(
    predicted: str,
    reference: str,
    *,
    on_invalid: Annotated[Any, Option(type=click.Choice(("raise", "wrong")))] = "raise",
    **options: Any,
) -> int:
    """Compute Smatch of PREDICTED and REFERENCE, files of AMR graphs in PENMAN notation, separated by blank lines.

    Graphs are joined by `::id` where all have one, else by position; their `::snt` must be equal.

    \b
    tensormetrics amr predicted.amr reference.amr

    Args:
        on_invalid: wrong counts what is no graph in PREDICTED as a graph without triples.
    """

    read = partial(read_amr_file, on_invalid=on_invalid)
    return _report(
        read, Smatch, unit="graph", read_reference=read_amr_file, predicted=predicted, reference=reference, **options
    )


def _report(
    read: Callable[[str], list[Item]],
    make: Callable[..., Any],
    update: Callable[..., None] = lambda scores, *sides: scores.update(*sides),
    unit: str = "document",
    read_reference: Callable[[str], list[Item]] | None = None,
    *,
    predicted: str,
    reference: str,
    compare: SecondModel | None = None,
    rope: Rope | None = None,
    replicates: Replicates = 1000,
    confidence: Probability = 0.95,
    device: Device | None = None,
    **outputs: Any,
) -> int:
    """Score the documents that `read` and `read_reference` return by the metric that `make` returns, and publish them.

    Args:
        compare: PREDICTED of a second model: also its scores and the paired differences.
        replicates: Intervals from N reweightings of the documents (sentences, graphs); 0: none.
    """
    torch_device = find_device(device)
    files = [predicted, *filter(None, [compare])]

    def documents_of(file: str, read: Callable[[str], list[Item]]) -> list[Item]:
        with naming():
            documents = read(str(existing(file)))
        if not documents:
            raise BadInput(f"{file}: there is no {unit} in it")
        return documents

    documents = {file: documents_of(file, read) for file in dict.fromkeys(files)}
    references = documents_of(reference, read_reference or read)
    refs = [item.value for item in references]
    metrics: dict[str, Any] = {}
    for file, items in documents.items():
        preds = join(file, items, reference, references, unit)
        with naming(preds=file, refs=reference, pred=file, ref=reference):
            metrics[file] = make(replicates=None if replicates else 0).to(torch_device)
            update(metrics[file], preds, refs)
    metric = metrics[predicted]
    options: dict[str, Any] = {"confidence": confidence, "replicates": replicates}
    estimates = metric.interval(**options) if replicates else {}
    scores = score_table(metric.compute(), estimates, confidence, "score")
    tables = [scores]
    answer = {
        "files": {"predicted": predicted, "reference": reference, **({"compare": compare} if compare else {})},
        f"{unit}s": len(refs),
        "scores": score_json(scores),
    }
    if compare:
        pairs = {"": (metric, metrics[compare])}
        tables.append(comparison_table(pairs, (predicted, compare), "score", rope=rope, **options))
        answer["comparison"] = comparison_json(tables[-1])
    return publish(tables, answer, scores, **outputs)


def imported_class(schema: str) -> Any:
    """Return the class that MODULE:CLASS names."""
    module, _, name = schema.rpartition(":")
    if not module or not name:
        raise BadInput(f"--schema: got {schema!r}, wanted MODULE:CLASS")
    if module.endswith(".py"):
        existing(module)
    try:
        if not module.endswith(".py"):
            return getattr(importlib.import_module(module), name)
        # Under a separate name: a file may be called types.py.
        spec: Any = importlib.util.spec_from_file_location(f"_schema_{Path(module).stem}", module)
        loaded = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return getattr(loaded, name)
    except (Exception, SystemExit) as error:  # whatever the user's module does
        raise BadInput(f"--schema: {schema} cannot be imported: {type(error).__name__}: {error}") from error


def _object(plan: CompiledSchema, reader: Reader, location: str, text: Any) -> Any:
    """Parse text as JSON and convert it to the class of a plan."""
    reading = reader.read(text)
    if reading.how == "unreadable":
        reason = "the bytes are not UTF-8" if text is None else reading.reason
        raise BadInput(f"{location}: {reason if reason.startswith('got ') else f'this is no JSON: {reason}'}")
    if fault := first_fault(plan, reading.value):
        raise BadInput(f"{location}: {fault.removeprefix('.').removeprefix(': ')}")
    return instance_of(plan.root.slot, reading.value)
