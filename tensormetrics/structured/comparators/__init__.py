"""Annotations of fields: comparators of scalars, matching of lists, and weights of fields."""

from .annotations import (
    KEYWORD,
    annotation_of_text,
    annotations_of_keywords,
    by,
    ignore,
    keywords_of_annotations,
    match,
    ordered,
    weight,
)
from .base import Annotation, Answers, Comparator
from .functions import from_func
from .leaves import casefold, exact, near, normalized, parsed, similar, within

__all__ = [
    "KEYWORD",
    "Annotation",
    "Answers",
    "Comparator",
    "annotation_of_text",
    "annotations_of_keywords",
    "by",
    "casefold",
    "exact",
    "from_func",
    "ignore",
    "keywords_of_annotations",
    "match",
    "near",
    "normalized",
    "ordered",
    "parsed",
    "similar",
    "weight",
    "within",
]
