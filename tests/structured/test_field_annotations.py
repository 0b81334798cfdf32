"""The three notations of the annotations of a field: objects, keys of a JSON Schema, text of the command line."""

import json
import re

import pytest

from tensormetrics.structured.comparators import (
    annotation_of_text,
    annotations_of_keywords,
    by,
    casefold,
    exact,
    from_func,
    ignore,
    keywords_of_annotations,
    match,
    near,
    normalized,
    ordered,
    parsed,
    similar,
    weight,
    within,
)

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


def test_keywords_of_a_function_raise():
    with pytest.raises(ValueError, match="^a: got .*, which JSON cannot express; wanted a comparator by name$"):
        keywords_of_annotations([from_func(max)], "a")


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
