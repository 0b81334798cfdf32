"""Predicted structures against references: dataclasses, coreference, named entities, AMR."""

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import click

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
from ...structured.fields.schemas.records import is_record, is_tuple
from ...structured.objects.metric import StructuredMetric
from ...structured.suites.entities.tags import tag_code
from ..inputs import BadInput, existing, full_lines, json_of, naming, open_text
from ..names import CONSTRAINTS, TAGS
from ..option_types import Device, Option, Probability, Replicates, Rope, SecondModel
from ..output import find_device, publish
from .scores import Comparisons, Scores

NORMALIZERS = ("precision", "recall", "f1")


def structured(
    predicted: str,
    reference: str,
    *,
    schema: str,
    constraint: Annotated[str, Option(type=click.Choice(CONSTRAINTS))] = "<->",
    invalid: Literal["error", "empty"] = "error",
    **options: Any,
) -> int:
    """Compare PREDICTED and REFERENCE, .jsonl files of one document per line, by a metric derived from a class. `json`
    says which fields are wrong, and reads the answers of language models.

    \b
    tensormetrics structured predicted.jsonl reference.jsonl --schema my_schema.py:Document
    tensormetrics structured answers.jsonl reference.jsonl --schema my_schema.py:Document --invalid empty

    Args:
        schema (MODULE:CLASS): What a line is: a dataclass, a NamedTuple, a TypedDict or a class of attrs, msgspec or
            pydantic. The module may be a path to a .py file; it is run.
        constraint: How items of lists are matched, for a class without @metametric: one to one, or with items of the
            reference (->), of the prediction (<-) or of both (~) matched again and again.
        invalid: What lines of PREDICTED are that are null, no JSON, or of another form: an error, or documents without
            items, which are counted.
    """
    cls, metric = _metric_of(schema, constraint)
    how = "empty" if invalid == "empty" else "raise"
    averages = {"micro": micro_average(NORMALIZERS), "macro": macro_average(NORMALIZERS)}
    return _report(
        lambda file: list(_objects(existing(file), cls, invalid == "empty" and file != reference)),
        lambda file, preds, refs, **resampled: Family(metric, averages, on_invalid=how, **resampled),
        predicted=predicted,
        reference=reference,
        **options,
    )


def coref(predicted: str, reference: str, *, singletons: Literal["keep", "drop"] = "keep", **options: Any) -> int:
    """Coreference of PREDICTED and REFERENCE, files in the format of CoNLL-2011/2012: the last column holds brackets
    such as (0, 0) and (0)|(1, documents stand between "#begin document" and "#end document".

    \b
    tensormetrics coref predicted.conll reference.conll --replicates 1000

    Args:
        singletons: Clusters of one mention.
    """

    def read(file: str) -> list[tuple[str, Any]]:
        with naming(line=f"{file}, line"):
            return list(read_conll_coref(open_text(file)))

    def make(file: str, preds: list[tuple[str, Any]], refs: list[tuple[str, Any]], **resampled: Any) -> CorefScores:
        for number, ((pred, _), (ref, _)) in enumerate(zip(preds, refs, strict=True), 1):
            if pred != ref:
                raise BadInput(f"{file}: document {number} is {pred!r}, but in {reference} it is {ref!r}")
        return CorefScores(singletons=singletons, **resampled)

    def update(scores: CorefScores, *sides: list[tuple[str, Any]]) -> None:
        scores.update_clusters(*([clusters for _, clusters in side] for side in sides))

    return _report(read, make, update, predicted=predicted, reference=reference, **options)


def ner(
    predicted: str,
    reference: str,
    *,
    mode: Annotated[Any, Option(type=click.Choice(TAGS))] = "lenient",
    suffix: bool = False,
    **options: Any,
) -> int:
    """Named entities in PREDICTED and REFERENCE: a token per line, its tag (B-PER, I-PER, O, ...) in the last column, a
    blank line between sentences.

    \b
    tensormetrics ner predicted.bio reference.bio --mode iob2
    tensormetrics ner large.bio reference.bio --compare small.bio

    Args:
        mode: What tags that do not fit mean: lenient as conlleval, the others leave them out.
        suffix: Tags are PER-B and PER-I, the label first.
    """
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

    def make(file: str, preds: list[list[str]], refs: list[list[str]], **resampled: Any) -> SpanScores:
        for number, (pred, ref) in enumerate(zip(preds, refs, strict=True), 1):
            if len(pred) != len(ref):
                raise BadInput(
                    f"{file}: sentence {number} has {len(pred)} tokens, but in {reference} it has {len(ref)}"
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


def amr(predicted: str, reference: str, **options: Any) -> int:
    """Smatch of PREDICTED and REFERENCE, files of AMR graphs in PENMAN notation with a blank line between them.

    \b
    tensormetrics amr predicted.amr reference.amr --replicates 1000
    """

    def read(file: str) -> list[Any]:
        graphs = []
        for block in _blocks(file, "#"):
            with naming(text=f"{file}, line {block[0][0]}"):
                graphs.append(read_penman("".join(text for _, text in block)))
        return graphs

    return _report(
        read,
        lambda file, preds, refs, **resampled: Smatch(**resampled),
        unit="graph",
        predicted=predicted,
        reference=reference,
        **options,
    )


def _report(
    read: Callable[[str], list[Any]],
    make: Callable[..., Any],
    update: Callable[..., None] = lambda scores, *sides: scores.update(*sides),
    unit: str = "document",
    *,
    predicted: str,
    reference: str,
    compare: SecondModel | None = None,
    rope: Rope | None = None,
    replicates: Replicates = 0,
    confidence: Probability = 0.95,
    device: Device | None = None,
    **outputs: Any,
) -> int:
    """Score what `read` returns of the files by the metric that `make` returns, and publish the scores.

    Args:
        compare: The PREDICTED of a second model: also its scores, and the differences from them, item by item.
        replicates: Intervals from N reweightings of the documents (sentences, graphs); 0: none, with --compare 1000.
    """
    place = find_device(device)
    files = [predicted, reference, *filter(None, [compare])]
    documents: dict[str, list[Any]] = {}
    for file in dict.fromkeys(files):
        documents[file] = read(file)
        if not documents[file]:
            raise BadInput(f"{file}: there is no {unit} in it")
    refs = documents[reference]
    metrics: dict[str, Any] = {}
    for file in dict.fromkeys(files[::2]):
        preds = documents[file]
        if len(preds) != len(refs):
            raise BadInput(f"{file}: number of {unit}s is {len(preds)}, but that of {reference} is {len(refs)}")
        with naming(preds=file, refs=reference, pred=file, ref=reference):
            metrics[file] = make(file, preds, refs, replicates=replicates).to(place)
            update(metrics[file], preds, refs)
    metric = metrics[predicted]
    with naming():
        values = {key: float(value) for key, value in metric.compute().items()}
        estimates = metric.interval(confidence=confidence) if replicates else {}
    scores = Scores(values, estimates, confidence)
    tables = [scores.table("score")]
    answer = {
        "files": {"predicted": predicted, "reference": reference, **({"compare": compare} if compare else {})},
        f"{unit}s": len(refs),
        "scores": scores.answer(),
    }
    if compare:
        pairs = {"": (metric, metrics[compare])}
        comparisons = Comparisons.of(pairs, (predicted, compare), confidence=confidence, rope=rope)
        tables.append(comparisons.table("score"))
        answer["comparison"] = comparisons.answer()
    shares = {
        key: value for key, value in values.items() if not key.startswith("invalid")
    }  # which is a number of documents
    return publish(tables, answer, scores._replace(values=shares).draw, shares.values(), **outputs)


def imported_class(schema: str) -> Any:
    """Return the class that MODULE:CLASS names."""
    module, _, name = schema.rpartition(":")
    if not module or not name:
        raise BadInput(f"--schema: got {schema!r}, wanted MODULE:CLASS")
    try:
        return getattr(_imported(module), name)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's module does
        raise BadInput(f"--schema: {schema} cannot be imported: {type(error).__name__}: {error}") from error


def _metric_of(schema: str, constraint: str) -> tuple[type, Any]:
    cls = imported_class(schema)
    if not is_record(cls) or is_tuple(cls):
        kinds = "a dataclass, a NamedTuple, a TypedDict or a class of attrs, msgspec or pydantic"
        raise BadInput(f"--schema: got {schema}, which is {cls!r:.60}, wanted {kinds}")
    own = vars(cls).get("metric")  # of @metametric, which writes it where no field is called so
    with naming():
        return cls, own if isinstance(own, StructuredMetric) else derive(cls, constraint=constraint)


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
    except ImportError as error:
        raise BadInput(f"{path}: {error}; install it with: pip install 'tensormetrics[cli]'") from error
    converter = _converter()
    found: Any
    for line, text in full_lines(path):
        try:
            value = json_of(path, line, text)
            try:
                found = converter.structure(value, cls)
            except Exception as error:  # groups of errors, and whatever a constructor of the user raises
                reasons = "; ".join(cattrs.transform_error(error, path="document", format_exception=_reason))
                raise BadInput(f"{path}, line {line}: {reasons}") from error
        except BadInput:
            if not lenient:
                raise
            found = None
        yield found


def _converter() -> Any:
    """Return what makes objects of a class from JSON; pydantic and msgspec make and check their own."""
    import cattrs
    from cattrs.cols import is_namedtuple, namedtuple_dict_structure_factory, namedtuple_structure_factory

    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (bool, int, float, str):
        converter.register_structure_hook(kind, _plain_value)

    def named_tuple(cls: Any) -> Callable[[Any, Any], Any]:
        by_name = namedtuple_dict_structure_factory(cls, converter, "from_converter", True)
        by_position = namedtuple_structure_factory(cls, converter)
        return lambda value, _: (by_position if isinstance(value, list) else by_name)(value, cls)

    def struct(value: Any, cls: Any) -> Any:
        import msgspec

        return msgspec.convert(value, cls)

    converter.register_structure_hook_factory(is_namedtuple, named_tuple)
    converter.register_structure_hook_func(lambda cls: hasattr(cls, "__struct_fields__"), struct)
    converter.register_structure_hook_func(
        lambda cls: hasattr(cls, "model_validate_json"),
        lambda value, cls: cls.model_validate_json(json.dumps(value), strict=True),
    )
    return converter


def _reason(error: BaseException, kind: type | None) -> str:
    from cattrs.v import format_exception

    if isinstance(error, AttributeError):
        return "wanted an object"
    if callable(errors := getattr(error, "errors", None)):  # of pydantic
        return "; ".join(": ".join([*map(str, each["loc"]), each["msg"]]) for each in errors())
    reason = format_exception(error, kind)
    is_own = isinstance(error, Misfit) or type(error).__module__.partition(".")[0] == "msgspec"
    return str(error) if is_own or reason.startswith("unknown error") else reason


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
