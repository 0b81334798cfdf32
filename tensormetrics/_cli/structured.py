"""`tensormetrics structured`, `coref`, `ner`, `amr`: how good are these predicted structures?"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ..structured import (
    CorefScores,
    Family,
    Smatch,
    SpanScores,
    derive,
    macro_average,
    micro_average,
    read_conll_coref,
)
from .inputs import BadInput, existing, json_lines, naming
from .output import common_options, draw_scores, find_device, save_figure, table, write_json

NORMALIZERS = ("precision", "recall", "f1")


def comparison(command: Callable) -> Callable:
    for option in (
        click.option("--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95,
                     show_default=True, help="Of the intervals."),
        click.option("--bootstrap", type=click.IntRange(0), default=0, metavar="N", help="Intervals from N resamples."),
        click.argument("reference"),
        click.argument("predicted"),
    ):  # fmt: skip
        command = option(command)
    return common_options(command)


@click.command()
@comparison
@click.option(
    "--schema",
    required=True,
    metavar="MODULE:CLASS",
    help="The dataclass of a line; the module may be a path to a .py file, which is run.",
)
@click.option("--constraint", default="<->", show_default=True, help="For a class without @metametric: <->, ->, <-, ~.")
def structured(schema: str, constraint: str, **options: Any) -> None:
    """Compare PREDICTED and REFERENCE, .jsonl files of a document per line, by a metric derived from a dataclass."""
    cls, metric = _metric_of(schema, constraint)
    averages = {"micro": micro_average(NORMALIZERS), "macro": macro_average(NORMALIZERS)}
    _report(
        "structured",
        lambda file: list(_objects(existing(file), cls)),
        lambda preds, refs, **resampled: Family(metric, averages, **resampled),
        **options,
    )


@click.command()
@comparison
@click.option("--singletons", type=click.Choice(["keep", "drop"]), default="keep", show_default=True)
def coref(singletons: str, predicted: str, reference: str, **options: Any) -> None:
    """Coreference of PREDICTED and REFERENCE, files in the format of CoNLL-2011/2012."""

    def read(file: str) -> list[tuple[str, Any]]:
        with naming(line=f"{file}, line"), existing(file).open(encoding="utf-8") as lines:
            documents = list(read_conll_coref(lines))
        if not documents:
            raise BadInput(f"{file}: wanted '#begin document' to '#end document', found none")
        return documents

    def make(preds: list[tuple[str, Any]], refs: list[tuple[str, Any]], **resampled: Any) -> CorefScores:
        for number, ((pred, _), (ref, _)) in enumerate(zip(preds, refs, strict=True), 1):
            if pred != ref:
                raise BadInput(f"{predicted}: document {number} is {pred!r}, but in {reference} it is {ref!r}")
        return CorefScores(singletons=singletons, **resampled)

    def update(scores: CorefScores, *sides: list[tuple[str, Any]]) -> None:
        scores.update_clusters(*([clusters for _, clusters in side] for side in sides))

    _report("coref", read, make, update, predicted=predicted, reference=reference, **options)


@click.command()
@comparison
@click.option("--mode", type=click.Choice(["lenient", "iob2", "iobes"]), default="lenient", show_default=True)
def ner(mode: str, predicted: str, reference: str, **options: Any) -> None:
    """Named entities in PREDICTED and REFERENCE: a token per line, its tag in the last column, a blank line between
    sentences."""

    def make(preds: list[list[str]], refs: list[list[str]], **resampled: Any) -> SpanScores:
        for number, (pred, ref) in enumerate(zip(preds, refs, strict=True), 1):
            if len(pred) != len(ref):
                raise BadInput(
                    f"{predicted}: sentence {number} has {len(pred)} tokens, but in {reference} it has {len(ref)}"
                )
        labels = {tag.partition("-")[2] for side in (preds, refs) for row in side for tag in row}
        return SpanScores(labels=sorted(filter(None, labels)), **resampled)

    _report(
        "ner",
        lambda file: [[line.split()[-1] for line in block] for block in _blocks(existing(file), "-DOCSTART-")],
        make,
        lambda scores, *sides: scores.update_tags(*sides, mode),
        predicted=predicted,
        reference=reference,
        **options,
    )


@click.command()
@comparison
def amr(**options: Any) -> None:
    """Smatch of PREDICTED and REFERENCE, files of AMR graphs in PENMAN notation with a blank line between them."""
    _report(
        "amr",
        lambda file: ["".join(block) for block in _blocks(existing(file), "#")],
        lambda preds, refs, **resampled: Smatch(**resampled),
        **options,
    )


def _report(
    command: str,
    read: Callable[[str], list[Any]],
    make: Callable[..., Any],
    update: Callable[..., None] = lambda scores, *sides: scores.update(*sides),
    *,
    predicted: str,
    reference: str,
    bootstrap: int,
    confidence: float,
    device: str | None,
    json_file: Path | None,
    plot: Path | None,
) -> None:
    sides = [read(file) for file in (predicted, reference)]
    if len(sides[0]) != len(sides[1]):
        raise BadInput(f"{predicted}: got {len(sides[0])} documents, but {reference} has {len(sides[1])}")
    with naming(preds=predicted, refs=reference):
        scores = make(*sides, bootstrap=bootstrap, confidence=confidence).to(find_device(device))
        update(scores, *sides)
        values = {key: float(value) for key, value in scores.compute().items()}
    ends = {
        key: (values.pop(f"{key}-low"), values.pop(f"{key}-high")) for key in list(values) if f"{key}-low" in values
    }
    head = ["score", "value", *([f"{confidence:.0%} interval"] if ends else [])]
    click.echo(table(head, ([key, value, ends.get(key)][: len(head)] for key, value in values.items())))
    answer = {
        "files": {"predicted": predicted, "reference": reference},
        "documents": len(sides[0]),
        "scores": {
            key: {"value": value, **dict(zip(("low", "high"), ends.get(key, ()), strict=False))}
            for key, value in values.items()
        },
    }
    write_json(json_file, command, answer)
    save_figure(plot, lambda: draw_scores(values, ends, confidence=confidence))


def _metric_of(schema: str, constraint: str) -> tuple[type, Any]:
    module, _, name = schema.rpartition(":")
    try:
        cls = getattr(_imported(module), name)
    except (ImportError, ValueError, AttributeError) as error:
        raise BadInput(f"--schema: got {schema!r}, wanted MODULE:CLASS: {error}") from error
    with naming():
        return cls, vars(cls).get("metric") or derive(cls, constraint=constraint)


def _imported(module: str) -> Any:
    if not module.endswith(".py"):
        return importlib.import_module(module)
    spec = importlib.util.spec_from_file_location(Path(module).stem, existing(module))
    loaded = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def _objects(path: Path, cls: type) -> Iterator[Any]:
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True)
    for line, value in json_lines(path):
        try:
            yield converter.structure(value, cls)
        except Exception as error:  # groups of errors, and whatever a constructor of the user raises
            reasons = "; ".join(cattrs.transform_error(error, path="document"))
            raise BadInput(f"{path}, line {line}: {reasons}") from error


def _blocks(path: Path, skip: str) -> list[list[str]]:
    """Lines between blank ones; lines that begin with `skip` do not count."""
    blocks: list[list[str]] = [[]]
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.strip():
                blocks.append([])
            elif not line.startswith(skip):
                blocks[-1].append(line)
    return [block for block in blocks if block]
