"""Comparators of leaves against plain loops and values worked by hand; three notations of annotations of fields."""

import itertools
import json
import math
import random
import re
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest

from tensormetrics.structured.comparators.annotations import (
    annotation_of_text,
    annotations_of_keywords,
    by,
    ignore,
    keywords_of_annotations,
    match,
    ordered,
    weight,
)
from tensormetrics.structured.comparators.base import Answers, code_table, typed
from tensormetrics.structured.fields import casefold, exact, from_func, near, normalized, parsed, similar, within

UTC, CET = timezone.utc, timezone(timedelta(hours=1))


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for n, x in enumerate(a, 1):
        row, before = [n], row
        for m, y in enumerate(b, 1):
            row.append(min(before[m] + 1, row[-1] + 1, before[m - 1] + (x != y)))
    return row[-1]


def ratio(a, b):
    return 1 - levenshtein(a, b) / max(len(a), len(b)) if a or b else 1.0


def all_pairs(comparator, preds, refs, **options):
    i, j = (part.ravel() for part in np.indices((len(preds), len(refs))))
    table = code_table()
    pred_codes, ref_codes = (np.array([table[typed(comparator.key(x))] for x in part]) for part in (preds, refs))
    return comparator.pair_similarities(table, pred_codes[i], ref_codes[j], **options).reshape(len(preds), len(refs))


@pytest.mark.parametrize(
    ("comparator", "pred", "ref", "similarity"),
    [
        (exact(), 1, 1.0, 1),
        (exact(), True, 1, 0),
        (exact(), "e\u0301", "\u00e9", 1),
        (exact(), "a", "A", 0),
        (casefold(), "STRASSE", "stra\u00dfe", 1),
        (casefold(), "E\u0301", "\u00e9", 1),
        (casefold(), "a ", "a", 0),
        (casefold(), 3, 3, 1),
        (normalized(), "  \uff21.b,c!", "a b C", 1),
        (normalized(), "ab", "a b", 0),
        (normalized(), "A.C.M.E., Ltd.", "a c m e ltd", 1),
        (normalized(), "a\nb", "a b", 0),
        (normalized(), "...", "", 1),
        (similar(), "", "", 1),
        (similar(), "", "a", 0),
        (similar(), "colour", "collar", 1 - 2 / 6),
        (similar(), "\ud800ab", "\ud801ab", 1 - 1 / 3),
        (similar(), "\U0001f600", "\U0001f601a", 0),
        (similar(), "e\u0301", "\u00e9a", 1 / 2),
        (similar(), "12", 12, 0),
        (similar(method="tokens"), "Lovelace Ada", "Ada  Lovelace", 1),
        (similar(method="tokens"), "b a", "a c", 1 - 1 / 3),
        (near(), 1, 1.0, 1),
        (near(abs=0.1), 0.3, 0.2, 1),
        (near(abs=0.1), 0.3001, 0.2, 0),
        (near(rel=0.01), 101, 100, 1),
        (near(rel=0.01), 100, 101.005, 1),
        (near(rel=0.01), 101.005, 100, 0),
        (near(rel=0.5, abs=3), -4, -1, 1),
        (near(abs=1), Decimal("1.5"), Decimal("2.25"), 1),
        (near(abs=1e300), 10**400, 10**400 + 1, 0),
        (near(rel=1.0), 10**400, 1, 0),
        (near(abs=1), True, 1, 0),
        (near(abs=1), "1", 1, 0),
        (within(days=1), date(2024, 2, 29), date(2024, 3, 1), 1),
        (within(days=1), date(2024, 2, 28), date(2024, 3, 1), 0),
        (within(), date(2024, 3, 1), date(2024, 3, 1), 1),
        (within(days=1), date(2024, 3, 1), datetime(2024, 3, 1), 0),
        (within(seconds=0.5), datetime(2024, 3, 1), datetime(2024, 3, 1, 0, 0, 0, 500_000), 1),
        (within(seconds=0.5), datetime(2024, 3, 1), datetime(2024, 3, 1, 0, 0, 0, 500_001), 0),
        (within(days=1), datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 3, 1), 0),
        (within(seconds=0), datetime(2024, 3, 1, 1, tzinfo=CET), datetime(2024, 3, 1, tzinfo=UTC), 1),
        (parsed(["%d/%m/%Y"]), "01/03/2024", "2024-03-01", 1),
        (parsed(["%d/%m/%Y", "%m/%d/%Y"]), "03/04/2024", "2024-04-03", 1),
        (parsed(["%d/%m/%Y", "%m/%d/%Y"]), "03/14/2024", "2024-03-14", 1),
        (parsed(), "20240301", "2024-03-01", 1),
        (parsed(), "2024-03-01T00:00:00Z", "2024-03-01T01:00:00+01:00", 1),
        (parsed(), "2024-03-01T00:00:00Z", "2024-03-01", 0),
        (parsed(), "soon", "soon", 1),
        (parsed(), "soon", "2024-03-01", 0),
    ],
)
def test_comparator_pair_of_values_has_similarity_by_hand(comparator, pred, ref, similarity):
    assert comparator.similarity(pred, ref) == pytest.approx(similarity, abs=1e-12)


@pytest.mark.parametrize("method", ["levenshtein", "tokens"])
@pytest.mark.parametrize("cutoff", [0.0, 0.4, 0.5, 0.75, 0.8])
def test_similar_random_strings_agree_with_a_loop(method, cutoff):
    generator = random.Random(3)
    preds, refs = (["".join(generator.choices("ab ", k=n % 11)) for n in range(60)] for _ in range(2))
    values = all_pairs(similar(method=method), preds, refs, cutoff=cutoff)
    for (n, a), (m, b) in itertools.product(enumerate(preds), enumerate(refs)):
        if method == "tokens":
            a, b = (" ".join(sorted(text.split())) for text in (a, b))
        expected = ratio(a, b)
        assert values[n, m] == pytest.approx(expected) or (expected < cutoff - 1e-9 and values[n, m] == 0)


def test_similar_selected_pairs_equal_table_of_all_pairs():
    generator = random.Random(4)
    preds, refs = (["".join(generator.choices("abc", k=6)) for _ in range(80)] for _ in range(2))
    table = all_pairs(similar(), preds, refs)
    values = similar().similarities(preds * 2, refs * 2)
    assert values.tolist() == [*table.diagonal()] * 2


def test_similar_without_rapidfuzz_names_the_extra(monkeypatch):
    for name in ["rapidfuzz", *(name for name in sys.modules if name.startswith("rapidfuzz."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ImportError, match=re.escape("similar() needs rapidfuzz; write pip install 'tensormetrics[json]'")
    ):
        similar().similarity("ab", "ac")


def overlap(a, b):
    return len(set(a) & set(b)) / len(set(a) | set(b))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_from_func_is_called_once_for_each_distinct_pair(batched, symmetric):
    requested, sizes = [], []

    def function(pred, ref):
        pairs = list(zip(pred, ref, strict=True)) if batched else [(pred, ref)]
        requested.extend(pairs)
        sizes.append(len(pairs))
        values = [overlap(*pair) for pair in pairs]
        return np.array(values) if batched else values[0]

    comparator = from_func(function, batched=batched, symmetric=symmetric, batch_size=4)
    texts, answers = ["ab", "bc", "ab", "cd", "abc"], Answers()
    for _ in range(2):
        values = all_pairs(comparator, texts, texts, answers=answers)
        assert values.tolist() == [[overlap(a, b) for b in texts] for a in texts]
    distinct = 4 * 3 // 2 if symmetric else 4 * 3
    assert len(requested) == distinct == answers.num_calls
    assert len(set(map(frozenset, requested)) if symmetric else set(requested)) == distinct
    assert all(a != b for a, b in requested)
    assert max(sizes) == (4 if batched else 1)
    answers.clear()
    all_pairs(comparator, texts, texts, answers=answers)
    assert answers.num_calls == 2 * distinct


@pytest.mark.parametrize("batched", [False, True])
def test_from_func_failed_call_keeps_earlier_results(batched):
    requested, failures = [], iter([False, False, True])

    def function(pred, ref):
        pairs = list(zip(pred, ref, strict=True)) if batched else [(pred, ref)]
        if next(failures, False):
            raise ConnectionError("busy")
        requested.extend(pairs)
        return [0.5] * len(pairs) if batched else 0.5

    comparator, answers = from_func(function, batched=batched, batch_size=2), Answers()
    with pytest.raises(ConnectionError, match="busy"):
        all_pairs(comparator, "abc", "de", answers=answers)
    assert all_pairs(comparator, "abc", "de", answers=answers).tolist() == [[0.5, 0.5]] * 3
    assert sorted(requested) == sorted(itertools.product("abc", "de"))


@pytest.mark.parametrize("result", [math.nan, "0.5", None])
def test_from_func_no_number_raises_with_the_pair(result):
    answers = Answers()
    comparator = from_func(lambda preds, refs: [0.25, result], batched=True)
    with pytest.raises(ValueError, match=re.escape(f"from_func: got {result!r} for 'b' and 'z', wanted a number")):
        all_pairs(comparator, "ab", "z", answers=answers)
    assert list(answers.of(comparator.function).values()) == [0.25]


def test_from_func_results_are_clamped():
    assert from_func(lambda a, b: 7).similarity("a", "b") == 1.0
    assert from_func(lambda a, b: -math.inf).similarity("a", "b") == 0.0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: similar(1.5), "similar: threshold: got 1.5, wanted a number in [0, 1]"),
        (lambda: similar(method="jaro"), "similar: method: got 'jaro', wanted one of 'levenshtein', 'tokens'"),
        (lambda: near(-1), "near: rel: got -1, wanted a finite number >= 0"),
        (lambda: near(abs=math.inf), "near: abs: got inf, wanted a finite number >= 0"),
        (lambda: within(seconds=-1), "within: seconds: got -1, wanted a finite number >= 0"),
        (lambda: parsed(["dd/mm"]), "parsed: formats: got 'dd/mm', wanted a format such as '%d/%m/%Y'"),
        (lambda: from_func(max, threshold=2), "from_func: threshold: got 2, wanted a number in [0, 1]"),
        (lambda: from_func(max, batch_size=0), "from_func: batch_size: got 0, wanted an integer >= 1"),
        (lambda: weight("2"), "weight: got '2', wanted a finite number >= 0"),
        (lambda: match(-0.1), "match: got -0.1, wanted a number in [0, 1]"),
    ],
)
def test_annotation_bad_parameter_raises(make, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        make()


NOTATIONS = [
    (exact(), {"compare": "exact"}, "exact"),
    (casefold(), {"compare": "casefold"}, "casefold"),
    (normalized(), {"compare": "normalized"}, "normalized"),
    (similar(), {"compare": "similar"}, "similar"),
    (similar(0.9), {"compare": "similar", "threshold": 0.9}, "similar:0.9"),
    (
        similar(0.9, "tokens"),
        {"compare": "similar", "threshold": 0.9, "method": "tokens"},
        "similar:0.9,method=tokens",
    ),
    (near(rel=0.01), {"compare": "near", "rel": 0.01}, "near:rel=0.01"),
    (near(abs=2.0), {"compare": "near", "abs": 2}, "near:abs=2"),
    (within(days=2), {"compare": "dates", "days": 2}, "dates:2"),
    (within(seconds=60), {"compare": "dates", "seconds": 60}, "dates:seconds=60"),
    (
        parsed(["%d/%m/%Y", "%B %d, %Y"]),
        {"compare": "parsed", "formats": ["%d/%m/%Y", "%B %d, %Y"]},
        "parsed:%d/%m/%Y|%B %d, %Y",
    ),
    (parsed(), {"compare": "parsed"}, "parsed"),
    (weight(2), {"weight": 2}, "weight:2"),
    (ignore(), {"ignore": True}, "ignore"),
    (ordered(), {"ordered": True}, "ordered"),
    (match(0.7), {"match": 0.7}, "match:0.7"),
    (by("sku"), {"by": "sku"}, "by:sku"),
]


@pytest.mark.parametrize(("annotation", "keywords", "text"), NOTATIONS, ids=lambda value: str(value))
def test_notations_of_one_annotation_are_equal(annotation, keywords, text):
    assert annotations_of_keywords(json.loads(json.dumps(keywords)), "a") == [annotation]
    assert annotation_of_text(text) == annotation
    assert keywords_of_annotations([annotation], "a") == keywords


def test_keywords_of_several_annotations_round_trip():
    annotations = [similar(0.9), weight(0), ignore()]
    keywords = keywords_of_annotations(annotations, "a")
    assert keywords == {"compare": "similar", "threshold": 0.9, "weight": 0, "ignore": True}
    assert annotations_of_keywords(keywords, "a") == annotations
    assert annotations_of_keywords({"ignore": False, "ordered": False}, "a") == []


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ("similar", "a: got 'similar', wanted an object such as"),
        ({"compare": "simlar"}, "a.compare: got 'simlar', wanted one of exact, casefold, normalized, similar, near, "),
        ({"compare": ["near"]}, "a.compare: got ['near'], wanted one of exact"),
        ({"compare": "near", "threshold": 1}, "a: got 'threshold', wanted one of weight, ignore, ordered, match, by"),
        ({"wieght": 2}, "; perhaps 'weight'"),
        ({"ignore": 1}, "a.ignore: got 1, wanted true or false"),
        ({"compare": "similar", "threshold": 3}, "a.similar: threshold: got 3, wanted a number in [0, 1]"),
        ({"compare": "parsed", "formats": "%d"}, "a.parsed: formats: got the text '%d', wanted a list; write ['%d']"),
        ({"weight": True}, "a.weight: got True, wanted a finite number >= 0"),
        ({"by": 3}, "a.by: got 3, wanted the name of a key"),
    ],
)
def test_wrong_keywords_raise_with_the_path(keywords, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        annotations_of_keywords(keywords, "a")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("simlar:0.9", "--field: got 'simlar', wanted one of exact, "),
        ("near:relative=1", "--field: got 'relative', wanted one of rel, abs"),
        ("near:x", "--field: got 'x', wanted a number"),
        ("near:1,2,3", "--field: got 3 values in 'near:1,2,3', wanted at most 2"),
        ("ignore:1", "--field: got 1 values in 'ignore:1', wanted none"),
        ("by", "--field: got 'by', wanted a value; write by:KEY"),
        ("match:7", "--field: match: got 7.0, wanted a number in [0, 1]"),
        ("parsed:dd", "--field: parsed: formats: got 'dd', wanted a format such as"),
    ],
)
def test_wrong_option_text_raises_with_the_option(spec, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        annotation_of_text(spec, "--field")
