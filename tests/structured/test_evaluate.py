"""`evaluate`: golden cases through every type of input, an independent oracle, arrays, ids, groups and options."""

import itertools
import json
import math
import random
from dataclasses import dataclass, make_dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Union
from uuid import UUID

import numpy as np
import pytest
import torch
from test_json_schema import MAKERS
from typing_extensions import NotRequired, TypedDict

from tensormetrics import compare
from tensormetrics.structured import FieldScores, evaluate, fields
from tensormetrics.structured.comparators.annotations import annotations_of_keywords, by, match
from tensormetrics.structured.fields.engine.slots import compile_schema
from tensormetrics.structured.fields.instances import instance_of
from tensormetrics.structured.types.class_tree import schema_of

CASES = json.loads((Path(__file__).parent / "extraction.json").read_text(encoding="utf-8"))["cases"]
SCORED = [case for case in CASES if "expected" in case]
FORMATS = {"date": date, "date-time": datetime, "uuid": UUID, "decimal": Decimal}
SCALARS = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
pydantic = pytest.importorskip("pydantic")


def check(report, expected):
    documents = expected["documents"]
    assert report._read == {how: documents["read"].get(how, 0) for how in report._read}
    rows = {row: cells for row, cells in report.table().to_frame().iterrows()} if expected["paths"] else {}
    assert set(rows) - {"micro (leaves)"} == set(expected["paths"])
    for path, counts in expected["paths"].items():
        field = report[path]
        for name in ("correct", "wrong", "missed", "invented", "support"):
            assert getattr(field, name) == counts[name], (path, name)
        for name in ("precision", "recall", "f1", "similarity"):
            assert same(getattr(field, name), counts.get(name)), (path, name)
    assert report.invalid == expected["invalid"]
    expected_totals = expected["totals"]
    for name, value in expected_totals.items():
        key = name.replace("_", "-") if name.startswith("macro") else f"micro-{name}"
        if key in report.totals:
            assert same(float(report.totals[key]), value), name
    for name in ("readable", "valid", "exact", "similarity"):
        assert same(float(report.totals[name]), documents[name]), name
    similarities = [value for value in documents["similarities"] if value is not None]
    assert [document.similarity for document in report.documents] == pytest.approx(similarities, abs=1e-9)


def same(value, expected):
    if expected is None:
        return math.isnan(value)
    return value == pytest.approx(expected, abs=1e-9)


def python_type(schema, document, names=None):
    """Return the Python type of a JSON Schema."""
    names = {} if names is None else names
    tp = builtin_type(schema, document, names)
    annotations = annotations_of_keywords(schema.get("x-tensormetrics", {}), "schema")
    for annotation in annotations:
        tp = Annotated[tp, annotation]
    return tp


def builtin_type(schema, document, names):
    if "$ref" in schema:
        target = schema["$ref"].split("/")[-1]
        if target not in names:
            names[target] = None
            names[target] = python_type(document["$defs"][target], document, names)
        return names[target] or target
    if "anyOf" in schema:
        return Union[tuple(python_type(case, document, names) for case in schema["anyOf"])]  # noqa: UP007
    if "enum" in schema or "const" in schema:
        return Literal[tuple(schema.get("enum", [schema.get("const")]))]
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return tuple[tuple(python_type(part, document, names) for part in schema["prefixItems"])]
        item = python_type(schema.get("items", {}), document, names)
        return set[item] if schema.get("uniqueItems") else list[item]
    if kind == "object":
        return record_type(schema, document, names)
    return FORMATS.get(schema.get("format")) or SCALARS.get(kind, Any)


def record_type(schema, document, names):
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict):
        return dict[str, python_type(rest, document, names)]
    required = schema.get("required", [])
    hints = {name: python_type(part, document, names) for name, part in schema["properties"].items()}
    if rest is False:
        fields = {name: (hint, ... if name in required else None) for name, hint in hints.items()}
        return pydantic.create_model("Closed", __config__={"extra": "forbid"}, **fields)
    if "children" in hints:  # recursive
        return make_dataclass("node", [("value", str, None), ("children", "list[node]", None)])
    return TypedDict("Record", {n: hint if n in required else NotRequired[hint] for n, hint in hints.items()})


@pytest.mark.parametrize("case", SCORED, ids=lambda case: case["id"])
def test_golden_cases_by_json_schema_by_classes_and_with_references_as_texts(case):
    references, schema = case["references"], case["schema"]
    inputs = [(references, schema), ([json.dumps(reference) for reference in references], schema)]
    for refs, tp in inputs + ([(references, python_type(schema, schema))] if schema else []):
        check(evaluate(case["predictions"], refs, tp, replicates=0, **case["options"]), case["expected"])


@pytest.mark.parametrize("case", [c for c in CASES if "error" in c], ids=lambda case: case["id"])
def test_evaluate_golden_invalid_inputs_raise(case):
    messages = {
        "reference": r"references\[0\].title: got 5, wanted str",
        "invalid document": r"predictions\[0\]: unread",
    }
    with pytest.raises(ValueError, match=messages[case["error"]]):
        evaluate(case["predictions"], case["references"], case["schema"], **case["options"])


# An oracle by exhaustive search, for small documents.


class Line(TypedDict, total=False):
    sku: str
    qty: int | None
    tags: list[str]


class Order(TypedDict, total=False):
    id: str
    total: float | None
    lines: list[Line]
    notes: list[str]
    meta: dict[str, int]


def random_order(generator, full):
    order = {}
    for key, make in (
        ("id", lambda: generator.choice("ab")),
        ("total", lambda: generator.choice([1, 2.0, 2.5, None])),
        ("notes", lambda: generator.choices("xyz", k=generator.randrange(4))),
        ("meta", lambda: {name: generator.randrange(2) for name in generator.sample("klm", generator.randrange(3))}),
        ("lines", lambda: [random_line(generator) for _ in range(generator.randrange(4))]),
    ):
        if full or generator.random() < 0.8:
            order[key] = make()
    return order


def random_line(generator):
    line = {"sku": generator.choice("pqr"), "qty": generator.choice([1, 2, None])}
    if generator.random() < 0.7:
        line["tags"] = generator.choices("uv", k=generator.randrange(3))
    return line


class Oracle:
    """Scores of one document by the definitions; `is_tied` if equally good matchings exist."""

    def __init__(self):
        self.counts = {}
        self.is_tied = False

    def add(self, path, kind, count=1):
        self.counts.setdefault(path, {"correct": 0, "wrong": 0, "missed": 0, "invented": 0})[kind] += count

    def scalar(self, path, pred, ref, counted):
        if pred is None and ref is None:
            return None
        kind = "missed" if pred is None else "invented" if ref is None else "correct" if pred == ref else "wrong"
        if counted:
            self.add(path, kind)
        return float(kind == "correct")

    def mean(self, parts):
        parts = [part for part in parts if part is not None]
        return sum(parts) / len(parts) if parts else None

    def items(self, path, preds, refs, compare, threshold, counted):
        preds, refs = preds or [], refs or []
        if not preds and not refs:
            return None
        weights = {}
        for i, j in itertools.product(range(len(preds)), range(len(refs))):
            similarity = compare(preds[i], refs[j], False)
            similarity = 1.0 if similarity is None else similarity
            if similarity > 0 and similarity >= threshold - 1e-9:
                weights[i, j] = similarity
        best, optimal = None, []
        smaller, larger = min(len(preds), len(refs)), max(len(preds), len(refs))
        for indices in itertools.permutations(range(larger), smaller):
            pairs = enumerate(indices) if len(preds) <= len(refs) else ((i, j) for j, i in enumerate(indices))
            pairs = frozenset(pair for pair in pairs if pair in weights)
            scale = 1 + 15 * smaller
            value = sum(round(weights[i, j] * 2**20) * scale - min(abs(i - j), 15) for i, j in pairs)
            if best is None or value > best:
                best, optimal = value, [pairs]
            elif value == best and pairs not in optimal:
                optimal.append(pairs)
        self.is_tied |= len(optimal) > 1
        matched = optimal[0]
        if counted:
            for kind, count in (
                ("correct", len(matched)),
                ("missed", len(refs) - len(matched)),
                ("invented", len(preds) - len(matched)),
            ):
                if count:
                    self.add(path, kind, count)
            for i, j in matched:
                compare(preds[i], refs[j], True)
            for i, pred in enumerate(preds):
                if i not in {i for i, _ in matched}:
                    compare(pred, None, True)
            for j, ref in enumerate(refs):
                if j not in {j for _, j in matched}:
                    compare(None, ref, True)
        return 2 * sum(weights[pair] for pair in matched) / (len(preds) + len(refs))

    def equal(self, pred, ref, counted):
        return float(pred == ref)

    def line(self, pred, ref, counted):
        pred, ref = pred or {}, ref or {}
        return self.mean(
            [
                self.scalar("lines[].sku", pred.get("sku"), ref.get("sku"), counted),
                self.scalar("lines[].qty", pred.get("qty"), ref.get("qty"), counted),
                self.items("lines[].tags[]", pred.get("tags"), ref.get("tags"), self.equal, 0, counted),
            ]
        )

    def meta(self, pred, ref):
        pred, ref = pred or {}, ref or {}
        scores = [self.scalar("meta.*", pred.get(key), ref.get(key), True) for key in {*pred, *ref}]
        return 2 * sum(scores) / (len(pred) + len(ref)) if scores else None

    def order(self, pred, ref):
        similarity = self.mean(
            [
                self.scalar("id", pred.get("id"), ref.get("id"), True),
                self.scalar("total", pred.get("total"), ref.get("total"), True),
                self.items("notes[]", pred.get("notes"), ref.get("notes"), self.equal, 0, True),
                self.meta(pred.get("meta"), ref.get("meta")),
                self.items("lines[]", pred.get("lines"), ref.get("lines"), self.line, 0.5, True),
            ]
        )
        return 1.0 if similarity is None else similarity


@pytest.mark.parametrize("seed", range(4))
def test_random_documents_agree_with_exhaustive_search(seed):
    generator = random.Random(seed)
    refs = [random_order(generator, False) for _ in range(150)]
    preds = [random_order(generator, False) for _ in range(150)]
    oracles = [Oracle() for _ in refs]
    similarities = [oracle.order(pred, ref) for oracle, pred, ref in zip(oracles, preds, refs, strict=True)]
    report = evaluate(preds, refs, Order, replicates=0)
    assert [document.similarity for document in report.documents] == pytest.approx(similarities, abs=1e-12)
    unique = [n for n, oracle in enumerate(oracles) if not oracle.is_tied or "lines" not in refs[n]]
    assert len(unique) > 50
    report = evaluate([preds[n] for n in unique], [refs[n] for n in unique], Order, replicates=0)
    for path in report.paths:
        for kind in ("correct", "wrong", "missed", "invented"):
            expected = sum(oracles[n].counts.get(path, {}).get(kind, 0) for n in unique)
            assert getattr(report[path], kind) == expected, (path, kind)


def test_support_depends_only_on_references():
    generator = random.Random(5)
    refs = [random_order(generator, False) for _ in range(60)]
    answers = [random_order(generator, False) for _ in range(60)]
    reports = [evaluate(preds, refs, Order, replicates=0) for preds in (answers, [None] * 60, refs, ["[]"] * 60)]
    for path in reports[0]:
        assert len({report[path].support for report in reports}) == 1
    assert reports[2].totals["similarity"] == 1 and reports[2].totals["exact"] == 1
    assert all(not report[path].f1 < 1 for report in reports[2:3] for path in report)


def test_ordered_lists_agree_with_exhaustive_search():
    generator = random.Random(2)
    schema = {"type": "array", "items": {"type": "string"}, "x-tensormetrics": {"ordered": True}}
    refs, preds = ([generator.choices("abc", k=generator.randrange(6)) for _ in range(200)] for _ in range(2))
    report = evaluate(preds, refs, schema, replicates=0)
    for pred, ref, document in zip(preds, refs, report.documents, strict=True):
        longest = max(
            k
            for k in range(min(len(pred), len(ref)) + 1)
            if {*itertools.combinations(pred, k)} & {*itertools.combinations(ref, k)}
        )
        size = len(pred) + len(ref)
        assert document.similarity == pytest.approx(2 * longest / size if size else 1.0)


def test_user_functions_are_called_once_per_relevant_pair():
    calls = []

    def similarity(pred, ref):
        calls.append((pred, ref))
        return 0.75 if pred[0] == ref[0] else 0.0

    schema = list[TypedDict("Item", {"k": int, "text": Annotated[str, fields.from_func(similarity, threshold=0.5)]})]
    refs = [[{"k": 1, "text": "ab"}, {"k": 2, "text": "cd"}, {"k": 3, "text": "ab"}]]
    preds = [[{"k": 1, "text": "ax"}, {"k": 2, "text": "cd"}, {"k": 9, "text": "zz"}]]
    report = evaluate(preds, refs, schema, replicates=0, match=0.6)
    # With another k a pair has at most .5, so that its texts are not compared.
    assert sorted(calls) == [("ax", "ab")]
    assert report["[].text"].correct == 2 and report["[].text"].missed == 1
    assert "calls of functions: 1" in str(report)


def test_functions_of_two_fields_do_not_share_results():
    by_path = {"a": fields.from_func(lambda pred, ref: 1.0), "b": fields.from_func(lambda pred, ref: 0.0)}
    report = evaluate([{"a": "x", "b": "x"}], [{"a": "y", "b": "y"}], fields=by_path, replicates=0)
    assert (report["a"].similarity, report["b"].similarity) == (1.0, 0.0)


def test_annotations_by_path_replace_those_of_the_schema():
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-tensormetrics": {"compare": "casefold"}}}}
    assert evaluate(["{}", '{"a": "X"}'], [{}, {"a": "x"}], schema, replicates=0)["a"].correct == 1
    assert evaluate(['{"a": "X"}'], [{"a": "x"}], schema, replicates=0, fields={"a": "exact"})["a"].wrong == 1
    with pytest.raises(ValueError, match="perhaps 'lines'"):
        evaluate([{}], [{}], Order, fields={"line": match(0.7)})
    with pytest.raises(ValueError, match="on a list"):
        evaluate([{}], [{}], Order, fields={"id": match(0.7)})
    with pytest.raises(ValueError, match=r"got by\('no'\), wanted the name of a scalar field"):
        evaluate([{}], [{}], Order, fields={"lines": by("no")})


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([], []), {}, "got no documents"),
        (([{}], [{}, {}]), {}, "got 1 documents, wanted 2"),
        (([{}], [{}]), {"extracts": "strict"}, "perhaps 'extract'"),
        (([{}], [{}]), {"extract": "all"}, "extract"),
        (([{}], [{}]), {"match": 2}, "match"),
        (([{"id": "a"}], [{"id": 3}], Order), {}, r"references\[0\].id: got 3, wanted str; .* swapped"),
        (([None], [{"lines": [{"sku": 3}]}], Order), {}, r"references\[0\].lines\[0\].sku: got 3, wanted str$"),
        (([{"a": 1.0}], [{"a": [1, math.nan]}]), {}, r"references\[0\].a\[1\]: got nan, .*; write null for a miss.*e$"),
        (([{"id": "a"}], ['{"id": NaN}'], Order), {}, r"references\[0\].id: got nan, wanted str; write null .* value$"),
        (([None], ["{"], Order), {}, r"references\[0\]: got '{', wanted JSON: truncated"),
        (([{}], [{}]), {"null_strings": "N/A"}, r"write \['N/A'\]"),
    ],
)
def test_evaluate_invalid_arguments_raise(arguments, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate(*arguments, **options)


@pytest.mark.parametrize("others", [[], [{"a": ["x"]}], [{"a": "x"}], [{"a": 1}, {"a": "x"}]], ids=str)
@pytest.mark.parametrize(
    ("value", "invented"),
    [(None, 0), ([], 0), ({}, 0), ({"c": [{}]}, 1), ({"c": None}, 0), ("Bob", 1), (3, 1), (["y"], 1), (math.nan, 1)],
)
def test_counts_of_a_document_follow_from_its_own_reference(value, invented, others):
    for reference in ({"a": None, "b": 1}, {"b": 1}):
        report = evaluate([{"a": value, "b": 1}, *others], [reference, *others], replicates=0)
        assert sum(report[path].invented for path in report.paths) == invented
        assert report.documents[0].similarity == 1 - invented / 2
        assert report.documents[0].is_valid or others or value != value
        statuses = {row.status for row in report.explain(0).rows}
        assert bool(statuses - {"", "correct"}) == (report.documents[0].num_errors > 0)


def test_field_that_is_null_in_all_references_accepts_anything():
    metric = FieldScores.infer([{"a": None}], replicates=0)
    metric.update([{"a": {"c": [1], "d": "x"}}, {"a": 1}], [{"a": {"d": "x", "c": [1.0]}}, {"a": True}])
    assert metric.compute()["f1[a]"] == 0.5 and metric.compute()["valid"] == 1
    assert metric.report().schema["properties"] == {"a": {}}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**5,
        '{"a":' * 10**5,
        '{"a": ' + "9" * 10**5 + "}",
        '{"a": "\\ud800\\u0000"}',
        json.dumps({str(n): n for n in range(10**4)}),
        '{"a": ' + "[" * 400 + "]" * 400 + "}",
    ],
    ids=["brackets", "objects", "digits", "surrogate", "keys", "nested"],
)
def test_hostile_answers_end(text):
    report = evaluate([text, '{"a": "x"}'], [{"a": "x"}, {"a": "x"}], replicates=0)
    assert report["a"].support == 2 and report["a"].correct == 1


def test_recursive_documents_of_hundreds_of_levels():
    node = {"type": "object", "properties": {"v": {"type": "integer"}, "c": {"$ref": "#/$defs/node"}}}
    schema = {"$defs": {"node": node}, "$ref": "#/$defs/node"}
    deep = {"v": 0}
    for n in range(1, 400):
        deep = {"v": n, "c": deep}
    report = evaluate([json.dumps(deep)], [deep], schema, replicates=0)
    assert report.paths == ["v"] and report["v"].correct == 400
    assert evaluate([json.dumps(deep)], [deep], replicates=0).totals["exact"] == 1  # types inferred


@pytest.mark.parametrize("kind", ["dataclass", "TypedDict", "NamedTuple", "attrs", "pydantic"])
def test_objects_of_a_class_from_json_equal_those_that_its_constructor_makes(kind):
    if kind == "attrs":
        pytest.importorskip("attrs")
    line = MAKERS[kind]("Line", {"sku": str, "price": float, "day": date | None})
    order = MAKERS[kind]("Order", {"lines": list[line], "span": tuple[int, int], "more": dict[str, int] | str})
    value = {"lines": [{"sku": "a", "price": 1, "day": "2024-03-01"}], "span": [1, 2], "more": {"x": 3}, "other": 1}
    built = instance_of(compile_schema(schema_of(order)).root.slot, value)
    first = line(sku="a", price=1, day=date(2024, 3, 1))
    assert built == order(lines=[first], span=(1, 2), more={"x": 3})


def nullable(schema):
    """Return a schema in which every field may be null; items of lists and free keys stay as they are."""
    if not isinstance(schema, dict):
        return schema
    changed = {key: nullable(part) for key, part in schema.items()}
    if "properties" in schema:
        changed["properties"] = {
            name: part if "$ref" in part or "anyOf" in part else {"anyOf": [nullable(part), {"type": "null"}]}
            for name, part in schema["properties"].items()
        }
        for part in changed["properties"].values():  # annotations stay at the field
            for case in part.get("anyOf", ()):
                if "x-tensormetrics" in case:
                    part["x-tensormetrics"] = case.pop("x-tensormetrics")
    return changed


def is_json(answer):
    try:
        return isinstance(json.loads(answer), dict)
    except (TypeError, ValueError):
        return False


RANDOM = [case for case in SCORED if case["id"] in ("g089", "gr01", "gr02", "gr05")]


def numbers_of(report):
    return report._counts.tolist(), [document.similarity for document in report.documents], report.totals["exact"]


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case["id"])
def test_nullable_field_has_equal_scores(case):
    baseline, changed = (
        evaluate(case["predictions"], case["references"], schema, replicates=0, **case["options"])
        for schema in (case["schema"], nullable(case["schema"]))
    )
    assert baseline.paths == changed.paths and numbers_of(baseline) == numbers_of(changed)


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case["id"])
def test_parsed_answers_are_scored_as_their_texts(case):
    pairs = zip(case["predictions"], case["references"], strict=True)
    texts, refs = zip(*(pair for pair in pairs if is_json(pair[0])), strict=True)
    reports = [
        evaluate(preds, refs, case["schema"], replicates=0, **case["options"])
        for preds in (texts, [json.loads(text) for text in texts])
    ]
    assert numbers_of(reports[0]) == numbers_of(reports[1])


def test_expressions_are_read_in_time_that_grows_with_their_size():
    leaf = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
    parts = {name: {"$ref": "#/$defs/expression"} for name in ("left", "right")}
    cases = [leaf] + [
        {"type": "object", "properties": {kind: {"type": "integer"}, **parts}, "required": ["left", "right"]}
        for kind in ("sum", "product", "power")
    ]
    schema = {"$defs": {"expression": {"anyOf": cases}}, "$ref": "#/$defs/expression"}
    tree = {"value": 1}
    for n in range(60):  # as every case at every level it would be read 3^60 times
        tree = {"left": tree, "right": {"value": n}, ("sum", "product", "power")[n % 3]: 1}
    report = evaluate([json.dumps(tree)], [tree], schema, replicates=0)
    assert report["value"].correct == 61 and report.totals["exact"] == 1


SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "flag": {"type": "boolean"},
        "words": {"type": "array", "items": {"type": "string"}},
    },
}
REFS = [{"a": n, "flag": True, "words": ["x"]} for n in range(3)]


def test_evaluate_numpy_values_equal_python_values():
    preds = [{"a": np.int64(n), "flag": np.bool_(True), "words": np.array(["x"])} for n in range(3)]
    assert evaluate(preds, REFS, SCHEMA, replicates=0).totals["exact"] == 1
    texts = np.array(['{"a": 0}', '{"a": 1}', "no"], dtype=object)
    assert evaluate(texts, REFS, SCHEMA, replicates=0)["a"].correct == 2


def test_parsed_answers_of_another_kind_are_unreadable_like_their_texts():
    parsed, text = (evaluate([answer], REFS[:1], SCHEMA, replicates=0) for answer in ([1], "[1]"))
    assert str(parsed["a"]) == str(text["a"]) and parsed["a"].missed == 1
    assert parsed.totals["readable"] == text.totals["readable"] == 0 and parsed.invalid == text.invalid == {}


@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
def test_ids_may_be_lists_arrays_and_tensors(make):
    report = evaluate(['{"a": 0}', '{"a": 5}', "no"], REFS, SCHEMA, ids=make([7, 8, 9]), replicates=0)
    assert [document.id for document in report.documents] == [7, 8, 9]
    assert report.explain(8).counts["wrong"] == 1


@pytest.mark.parametrize("names", [{"ids": [1, 2]}, {"groups": [1, 2, 3, 4]}])
def test_ids_and_groups_of_wrong_length_raise(names):
    with pytest.raises(ValueError, match=f"^{[*names][0]}: got {len([*names.values()][0])}, wanted 3, one for each"):
        evaluate(["{}"] * 3, REFS, SCHEMA, **names)


def test_explanations_after_skipped_documents_match_documents():
    report = evaluate(["no", '{"a": 1}', '{"a": 5}'], REFS, SCHEMA, on_invalid="skip", ids=[7, 8, 9], replicates=0)
    assert [document.id for document in report.documents] == [8, 9]
    rows = [report.explain(name).rows[0] for name in (8, 9)]
    assert [(row.prediction, row.reference) for row in rows] == [(1, 1), (5, 2)]
    assert "skipped: 1 unreadable" in str(report)


@pytest.mark.filterwarnings("ignore:one ")
def test_evaluate_number_keys_equal_json_keys():
    report = evaluate([{1: "x", "b": 2}], ['{"1": "x", "b": 2}'], replicates=20)
    assert report.totals["exact"].value == 1 and report["1"].correct == 1
    same = evaluate(['{"1": "x"}'], [{"1": "x", "b": 2}], replicates=20)
    assert float(compare(report, same)["exact"].difference) == 1


@pytest.mark.filterwarnings("ignore:one ")
def test_reports_do_not_change_with_their_metric():
    first, other = (FieldScores(SCHEMA, replicates=20) for _ in range(2))
    first.update(['{"a": 0}'], REFS[:1])
    other.update(['{"a": 4}'], REFS[:1])
    report, text = first.report(), str(first.report())
    first.update(['{"a": 9}'] * 2, REFS[1:])
    assert str(report) == text and report.metric.compute()["f1[a]"] == 1
    assert float(compare(report, other.report())["f1[a]"].difference) == 1


@dataclass
class WithDefault:
    a: int
    b: int = 3


def test_evaluate_fills_in_defaults_on_request():
    assert evaluate(['{"a": 1}'], ['{"a": 1, "b": 3}'], WithDefault, replicates=0)["b"].missed == 1
    assert evaluate(['{"a": 1}'], ['{"a": 1, "b": 3}'], WithDefault, defaults=True, replicates=0)["b"].correct == 1
    report = evaluate(["{}"], ['{"a": 1}'], WithDefault, defaults=True, replicates=0)
    assert report.totals["valid"] == 0 and report["b"].correct == 1


def test_documents_are_valid_if_the_function_does_not_raise():
    def validate(value):
        if value["a"] > 1:
            raise ValueError("too large")

    answers = ['{"a": 0}', '{"a": 5}', "no"]
    assert evaluate(answers, REFS, SCHEMA, validate=validate, replicates=0).totals["valid"] == pytest.approx(1 / 3)
    with pytest.raises(KeyError, match="'a'"):  # a mistake of the function is no invalid document
        evaluate(["{}"] * 3, REFS, SCHEMA, validate=validate, replicates=0)


@pytest.mark.filterwarnings("ignore:one ")
def test_evaluate_wide_documents_use_requested_replicates():
    wide = {f"k{n}": n for n in range(300)}
    assert evaluate([wide], [wide], replicates=50).metric.replicates == 50  # Holm's would need 6,019
    small = {f"k{n}": n for n in range(60)}
    assert evaluate([small], [small], replicates=50).metric.replicates == 20 * 61 - 1
