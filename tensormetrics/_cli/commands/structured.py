"""Predicted structures against references: dataclasses, coreference, named entities, AMR."""

import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...structured import (
    CorefScores,
    Family,
    Smatch,
    SpanScores,
    derive,
    macro_average,
    micro_average,
    read_conll_coref,
    read_penman,
)
from ...structured.suites.entities.tags import tag_code
from ..inputs import BadInput, existing, full_lines, json_of, naming, open_text
from ..output import Table, draw_scores, find_device, percent, publish

NORMALIZERS = ("precision", "recall", "f1")


def structured(schema: str, constraint: str, invalid: str, predicted: str, **options: Any) -> int:
    cls, metric = _metric_of(schema, constraint)
    how = "empty" if invalid == "empty" else "raise"
    averages = {"micro": micro_average(NORMALIZERS), "macro": macro_average(NORMALIZERS)}
    return _report(
        lambda file: list(_objects(existing(file), cls, invalid == "empty" and file == predicted)),
        lambda preds, refs, **resampled: Family(metric, averages, on_invalid=how, **resampled),
        predicted=predicted,
        **options,
    )


def coref(singletons: str, predicted: str, reference: str, **options: Any) -> int:
    def read(file: str) -> list[tuple[str, Any]]:
        with naming(line=f"{file}, line"):
            return list(read_conll_coref(open_text(file)))

    def make(preds: list[tuple[str, Any]], refs: list[tuple[str, Any]], **resampled: Any) -> CorefScores:
        for number, ((pred, _), (ref, _)) in enumerate(zip(preds, refs, strict=True), 1):
            if pred != ref:
                raise BadInput(f"{predicted}: document {number} is {pred!r}, but in {reference} it is {ref!r}")
        return CorefScores(singletons=singletons, **resampled)

    def update(scores: CorefScores, *sides: list[tuple[str, Any]]) -> None:
        scores.update_clusters(*([clusters for _, clusters in side] for side in sides))

    return _report(read, make, update, predicted=predicted, reference=reference, **options)


def ner(mode: str, suffix: bool, predicted: str, reference: str, **options: Any) -> int:
    labels: list[str] = []

    def read(file: str) -> list[list[str]]:
        sentences: list[list[str]] = []
        seen: set[str] = set()
        for block in _blocks(file, "-DOCSTART-"):
            sentences.append([text.split()[-1] for _, text in block])
            for (line, _), tag in zip(block, sentences[-1], strict=True):
                if tag not in seen:
                    with naming():
                        tag_code(tag, labels, f"{file}, line {line}", suffix)
                    seen.add(tag)
        return sentences

    def make(preds: list[list[str]], refs: list[list[str]], **resampled: Any) -> SpanScores:
        for number, (pred, ref) in enumerate(zip(preds, refs, strict=True), 1):
            if len(pred) != len(ref):
                raise BadInput(
                    f"{predicted}: sentence {number} has {len(pred)} tokens, but in {reference} it has {len(ref)}"
                )
        return SpanScores(labels=sorted(labels) or None, **resampled)

    return _report(
        read,
        make,
        lambda scores, *sides: scores.update_tags(*sides, mode, suffix=suffix),
        unit="sentence",
        predicted=predicted,
        reference=reference,
        **options,
    )


def amr(**options: Any) -> int:
    def read(file: str) -> list[Any]:
        graphs = []
        for block in _blocks(file, "#"):
            with naming(text=f"{file}, line {block[0][0]}"):
                graphs.append(read_penman("".join(text for _, text in block)))
        return graphs

    return _report(read, lambda preds, refs, **resampled: Smatch(**resampled), unit="graph", **options)


def _report(
    read: Callable[[str], list[Any]],
    make: Callable[..., Any],
    update: Callable[..., None] = lambda scores, *sides: scores.update(*sides),
    *,
    unit: str = "document",
    predicted: str,
    reference: str,
    replicates: int,
    confidence: float,
    device: str | None,
    **outputs: Any,
) -> int:
    place = find_device(device)
    sides = []
    for file in (predicted, reference):
        sides.append(read(file))
        if not sides[-1]:
            raise BadInput(f"{file}: there is no {unit} in it")
    if len(sides[0]) != len(sides[1]):
        raise BadInput(f"{predicted}: number of {unit}s is {len(sides[0])}, but that of {reference} is {len(sides[1])}")
    with naming(preds=predicted, refs=reference, pred=predicted, ref=reference, confidence="--confidence"):
        scores = make(*sides, replicates=replicates).to(place)
        update(scores, *sides)
        values = {key: float(value) for key, value in scores.compute().items()}
        found = scores.interval(confidence=confidence) if replicates else {}
    shares = {key: value for key, value in values.items() if key != "invalid"}  # which is a number of documents
    ends = {key: (float(each.low), float(each.high)) for key, each in found.items()}
    head = ["score", "value", *([f"{percent(confidence)} interval"] if ends else [])]
    found = Table.of(head, ([key, value, ends.get(key)] for key, value in values.items()))
    answer = {
        "files": {"predicted": predicted, "reference": reference},
        f"{unit}s": len(sides[0]),
        "scores": {
            key: {"value": value, **dict(zip(("low", "high"), ends.get(key, ()), strict=False))}
            for key, value in values.items()
        },
    }
    return publish(
        [found],
        answer,
        lambda size: draw_scores(shares, ends, confidence=confidence, size=size),
        shares.values(),
        **outputs,
    )


def _metric_of(schema: str, constraint: str) -> tuple[type, Any]:
    module, _, name = schema.rpartition(":")
    if not module or not name:
        raise BadInput(f"--schema: got {schema!r}, wanted MODULE:CLASS")
    try:
        cls = getattr(_imported(module), name)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's module does
        raise BadInput(f"--schema: {schema} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise BadInput(f"--schema: {schema} is no dataclass; write @dataclass above it")
    with naming():
        return cls, vars(cls).get("metric") or derive(cls, constraint=constraint)


def _imported(module: str) -> Any:
    if not module.endswith(".py"):
        return importlib.import_module(module)
    # Under a name of its own: a file may be called types.py.
    spec = importlib.util.spec_from_file_location(f"_schema_{Path(module).stem}", existing(module))
    assert spec is not None and spec.loader is not None  # there is a loader for .py
    loaded = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def _objects(path: Path, cls: type, lenient: bool) -> Iterator[Any]:
    """The object of each line; `lenient`: None for what is no JSON, or does not fit."""
    try:
        import cattrs
        from cattrs.v import format_exception
    except ImportError as error:
        raise BadInput(f"{path}: {error}; install it with: pip install 'tensormetrics[cli]'") from error

    def why(error: BaseException, kind: type | None) -> str:
        if isinstance(error, AttributeError):
            return "wanted an object"
        reason = format_exception(error, kind)
        return str(error) if isinstance(error, Misfit) or reason.startswith("unknown error") else reason

    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (bool, int, float, str):
        converter.register_structure_hook(kind, _plain_value)
    found: Any
    for line, text in full_lines(path):
        try:
            value = json_of(path, line, text)
            try:
                found = converter.structure(value, cls)
            except Exception as error:  # groups of errors, and whatever a constructor of the user raises
                reasons = "; ".join(cattrs.transform_error(error, path="document", format_exception=why))
                raise BadInput(f"{path}, line {line}: {reasons}") from error
        except BadInput:
            if not lenient:
                raise
            found = None
        yield found


class Misfit(ValueError):
    """A value that is not of its field's type."""


def _plain_value(value: Any, kind: type) -> Any:
    """Nothing is cut or turned into something else: 1.7 is no int, and 1 no str."""
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise Misfit(f"got {value!r}, wanted {kind.__name__}")


def _blocks(file: str, skip: str) -> list[list[tuple[int, str]]]:
    """Numbered lines between blank ones; lines that begin with `skip` do not count."""
    blocks: list[list[tuple[int, str]]] = [[]]
    for line, text in enumerate(open_text(file), 1):
        if not text.strip():
            blocks.append([])
        elif not text.startswith(skip):
            blocks[-1].append((line, text))
    return [block for block in blocks if block]
