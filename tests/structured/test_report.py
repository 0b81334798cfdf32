"""Reports of fields: rows, intervals, comparisons, single documents, pages; and `FieldScores` as a metric."""

import copy
import html.parser
import json
import pickle
import random
from dataclasses import dataclass, field
from typing import Annotated

import pytest
import torch

from tensormetrics import compare
from tensormetrics.structured import FieldScores, evaluate, fields
from tensormetrics.uncertainty import correct_p_values

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "people": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "born": {"type": "integer"}}},
        },
        "tags": {"type": "array", "items": {"type": "string", "x-tensormetrics": {"compare": "similar"}}},
        "marks": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}
REFERENCE = {
    "title": "t",
    "people": [{"name": "Ada", "born": 1815}, {"name": "Kurt", "born": 1906}, {"name": "Emmy", "born": 1882}],
    "tags": ["a", "collar"],
    "marks": {"x": 1},
}
ANSWER = {
    "title": "t",
    "people": [{"name": "Kurt", "born": 1907}, {"name": "Ada", "born": 1815}, {"name": "X", "born": "1882"}],
    "tags": ["colour", "a"],
    "marks": {"x": 2, "y": 1},
    "<b>": 3,
}


@dataclass
class Item:
    sku: str
    price: Annotated[float, fields.near(abs=0.01)]


@dataclass
class Invoice:
    number: str
    total: float | None = None
    items: Annotated[list[Item], fields.by("sku")] = field(default_factory=list)


def invoices(count, errors, seed):
    """Return answers with errors, which depend on the seed, and references, which do not."""
    generator = random.Random(seed)
    refs, preds = [], []
    for n in range(count):
        items = [{"sku": f"s{k}", "price": float(k)} for k in range(1 + n % 3)]
        refs.append({"number": f"n{n}", "total": float(n), "items": items})
        pred = json.loads(json.dumps(refs[-1]))
        for key, value in (("number", "?"), ("total", None)):
            if generator.random() < errors:
                pred[key] = value
        for item in pred["items"]:
            if generator.random() < errors:
                item["price"] += 1
        preds.append(json.dumps(pred))
    return preds, refs


def test_report_paths_have_two_spellings_and_misspelled_paths_raise():
    report = evaluate([ANSWER], [REFERENCE], SCHEMA, replicates=0)
    assert report["people[*].born"] == report["people[].born"]
    assert list(report) == report.paths and len(report) == 6
    with pytest.raises(KeyError, match="perhaps 'people"):
        report["people.born"]


def test_table_has_a_row_for_each_field_that_occurs():
    report = evaluate(
        [ANSWER], [{**REFERENCE, "tags": []}], {**SCHEMA, "properties": SCHEMA["properties"]}, replicates=0
    )
    rows = report.table().rows
    assert rows == ("title", "people[]", "people[].name", "people[].born", "tags[]", "marks.*", "micro (leaves)")
    assert evaluate([{}], [{"title": "x"}], SCHEMA, replicates=0).table().rows == ("title", "micro (leaves)")
    assert len(evaluate([{}], [{}], SCHEMA, replicates=0).table(all=True)) == 7
    assert report.table()["people[]", "wrong"] is None and report["people[].born"].invalid == 1
    assert report.to_frame().loc["marks.*", "wrong"] == 1
    assert json.loads(report.to_json())["rows"] and "tabular" in report.to_latex()


def test_intervals_contain_the_score_and_are_those_of_the_metric():
    preds, refs = invoices(40, 0.3, 0)
    report = evaluate(preds, refs, Invoice, replicates=300, seed=5)
    metric = FieldScores(Invoice, replicates=300, seed=5)
    metric.update(preds[:25], refs[:25])
    metric.update(preds[25:], refs[25:])
    estimates = metric.interval()
    for path in report:
        f1, expected = report[path].f1, estimates[f"f1[{path}]"]
        assert f1.low < f1.value <= f1.high
        assert torch.allclose(torch.stack([*f1]), torch.stack([*expected]), rtol=1e-12, atol=0)
    assert str(report.totals["micro-f1"]) == str(estimates["micro-f1"])
    assert str(metric.report()) == str(report).rsplit("\nlowest", 1)[0]


def test_groups_widen_intervals():
    preds, refs = invoices(60, 0.3, 1)
    preds, refs = [[document for document in part for _ in range(5)] for part in (preds, refs)]
    single = evaluate(preds, refs, Invoice, replicates=300)["total"].f1
    grouped = evaluate(preds, refs, Invoice, replicates=300, groups=[n // 5 for n in range(300)])["total"].f1
    assert float(grouped.high - grouped.low) > 1.5 * float(single.high - single.low)


def test_comparison_by_field_corrects_the_fields_in_which_models_differ():
    refs = invoices(50, 0, 0)[1]
    better, worse = (invoices(50, errors, 0)[0] for errors in (0.1, 0.5))
    a, b = (evaluate(preds, refs, Invoice, replicates=400) for preds in (better, worse))
    comparisons = compare(a, b)
    leaves = ["f1[number]", "f1[total]", "f1[items[].price]"]  # all skus are right in both
    for name in leaves:
        assert comparisons[name].p_value <= comparisons[name].p_corrected <= 0.05 and comparisons[name].low > 0
    by_holm = compare(a, b, correction="holm")
    corrected = correct_p_values(torch.stack([comparisons[name].p_value for name in leaves]))
    assert torch.equal(corrected, torch.stack([by_holm[name].p_corrected for name in leaves]))
    assert comparisons["f1[items[].sku]"].p_corrected is None and comparisons["micro-f1"].p_corrected is None
    assert float(comparisons["f1[total]"].difference) > 0
    table = a.compare(b)
    assert set(table.rows[:3]) == {name[3:-1] for name in leaves} and table.rows[3] == "micro-precision"
    assert str(table["total", "difference"]) == str(comparisons["f1[total]"])
    with pytest.raises(ValueError, match="^match: got"):
        compare(a, evaluate(better, refs, Invoice, match=0.7, replicates=400))
    with pytest.raises(ValueError, match="items differ"):
        compare(a, evaluate(better, [{**ref, "number": "x"} for ref in refs], Invoice, replicates=400))


def test_reports_are_paired_by_id():
    preds, refs = invoices(30, 0.3, 3)
    others, order = invoices(30, 0.5, 4)[0], random.Random(0).sample(range(30), 30)
    ids = [f"d{n}" for n in range(30)]
    a, b = (evaluate(document, refs, Invoice, ids=ids, replicates=100) for document in (preds, others))
    shuffled = evaluate(
        [others[n] for n in order], [refs[n] for n in order], Invoice, ids=[ids[n] for n in order], replicates=100
    )
    assert str(compare(a, b)) == str(compare(a, shuffled))
    assert a.explain("d3").id == "d3" and a.worst(1)[0].id in ids


@pytest.mark.full
def test_null_hypotheses_are_rejected_at_the_nominal_rate():
    rejected = []
    for seed in range(60):
        reports = [evaluate(*invoices(25, 0.3, 1000 * k + seed), Invoice, replicates=99) for k in (1, 2)]
        p_values = [c.p_corrected for c in compare(*reports).values() if c.p_corrected is not None]
        rejected.append(any(float(p) <= 0.05 for p in p_values))
    assert sum(rejected) <= 8  # of 60 at .05: more with probability .004


def test_metric_survives_copies_merges_and_files():
    preds, refs = invoices(20, 0.4, 2)
    full, first, second = (FieldScores(Invoice, replicates=20) for _ in range(3))
    ids = list(range(20))
    full.update(preds, refs, ids=ids)
    first.update(preds[:7], refs[:7], ids=ids[:7])
    second.update(preds[7:], refs[7:], ids=ids[7:])
    first.merge_state(second)
    twins = [pickle.loads(pickle.dumps(full)), copy.deepcopy(full), first]
    loaded = FieldScores(Invoice, replicates=20)
    loaded.persistent(True)
    full.persistent(True)
    loaded.load_state_dict(full.state_dict())
    for twin in [*twins, loaded]:
        assert str(twin.interval()) == str(full.interval()) and str(twin.report()) == str(full.report())
    assert torch.equal(first.support, full.support)


def test_inferred_metrics_need_references_and_others_a_schema():
    metric = FieldScores.infer(['{"a": 1}', {"a": 2, "b": ["x"]}])
    metric.update(['{"a": 1, "c": 2}'], ['{"a": 1}'])
    assert metric.paths == ["a", "b[]", "(extra)"] and metric.compute()["f1[(extra)]"] == 0
    with pytest.raises(ValueError, match=r"a: got any value, wanted a type; write FieldScores.infer\(references\)"):
        FieldScores({"type": "object", "properties": {"a": {}}})
    with pytest.raises(TypeError, match="wanted a class or a JSON Schema, write json.loads"):
        FieldScores('{"type": "object"}')


def test_confusions_are_ordered_by_frequency():
    refs = [{"title": "red"}] * 5 + [{"title": "green"}] * 3
    preds = [{"title": "rot"}] * 3 + [{"title": "red"}] * 2 + [{"title": "red"}, {"title": 5}, {"title": "green"}]
    report = evaluate(preds, refs, SCHEMA, replicates=0)
    assert report.confusions("title", 1) == [("rot", "red", 3)]
    assert set(report.confusions("title")) == {("rot", "red", 3), ("red", "green", 1), (5, "green", 1)}
    with pytest.raises(ValueError, match="has no documents; write evaluate"):
        report.metric.report().confusions("title")


EXPLANATION = """\
d1   similarity 0.40   2 wrong, 3 missed, 5 invented   read: object
path         prediction  reference
people
  [1] = [0]                         0.50
    born     1907        1906       wrong
  [2]                               missed
    name                 "Emmy"     missed
    born                 1882       missed
  + [2]                             invented
    name     "X"                    invented
    born     "1882"                 invalid wanted int
tags
  [1] ~ [0]  "colour"    "collar"   near miss 0.67 (threshold 0.8): counted as missed and invented
marks
  x          2           1          wrong
  y          1                      invented
(extra)                             invented <b>
6 correct values folded"""


def test_explanations_show_compared_values():
    report = evaluate(
        [ANSWER, "I <cannot>."], [REFERENCE] * 2, SCHEMA, ids=["d1", "d2"], extra="invented", replicates=0
    )
    explanation = report.explain("d1")
    assert str(explanation) == EXPLANATION
    assert len(explanation.to_text(all=True).splitlines()) == len(explanation.rows) + 2
    assert explanation.rows == report.metric.explain(ANSWER, REFERENCE).rows
    unreadable = report.explain("d2")
    assert "unreadable: Expecting value" in str(unreadable) and "I <cannot>." in str(unreadable)
    assert {row.status for row in unreadable.rows} == {"", "missed"}
    with pytest.raises(KeyError, match="wanted the id of a document"):
        report.explain("d3")


def test_explanations_of_random_documents_show_the_errors_of_the_table():
    preds, refs = invoices(40, 0.4, 6)
    preds[3], preds[4] = "no", '{"number": 3, "items": "x"}'
    report = evaluate(preds, refs, Invoice, replicates=0)
    for document in report.documents:
        explanation = report.explain(document.id)
        statuses = [row.status for row in explanation.rows if row.name[0] not in "[+"]
        shown = sum(status not in ("", "correct") for status in statuses)
        assert shown >= sum(count for name, count in explanation.counts.items() if name != "correct")
        assert explanation.similarity == document.similarity


class Page(html.parser.HTMLParser):
    """Checks that a page is well formed and needs nothing else; collects its text."""

    def __init__(self):
        super().__init__()
        self.open, self.texts = [], []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "img", "iframe", "object", "b")
        for name, value in attributes:
            assert name not in ("src", "href", "srcset") and not name.startswith("on") and "url(" not in (value or "")
        if tag not in ("meta", "line", "circle"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("line", "circle"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_pages_need_no_other_file_and_escape_every_text(tmp_path):
    refs = [REFERENCE] * 12
    report = evaluate([ANSWER, "I <script>"] * 6, refs, SCHEMA, extra="invented", replicates=50)
    other = evaluate([REFERENCE] * 12, refs, SCHEMA, extra="invented", replicates=50)
    path = tmp_path / "report.html"
    report.to_html(path, other=other)
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == [] and "<b>" in "".join(page.texts) and "<script>" in "".join(page.texts)
    assert text.count("<details") > 2 and 'aria-label="' in text and "prefers-color-scheme: dark" in text
    explanation = evaluate([ANSWER], [REFERENCE], SCHEMA, replicates=0).explain(0)
    for part in (explanation.to_html(), explanation._repr_html_()):
        page = Page()
        page.feed(part)
        assert page.open == [] and "near miss" in part
