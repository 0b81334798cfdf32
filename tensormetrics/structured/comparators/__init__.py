"""Annotations of fields: comparators of scalars, matching of lists, and weights of fields."""

from .annotations import KEYWORD as KEYWORD
from .annotations import annotation_of_text as annotation_of_text
from .annotations import annotations_of_keywords as annotations_of_keywords
from .annotations import by as by
from .annotations import ignore as ignore
from .annotations import keywords_of_annotations as keywords_of_annotations
from .annotations import match as match
from .annotations import ordered as ordered
from .annotations import weight as weight
from .base import Annotation as Annotation
from .base import Answers as Answers
from .base import Comparator as Comparator
from .functions import from_func as from_func
from .leaves import casefold as casefold
from .leaves import exact as exact
from .leaves import near as near
from .leaves import normalized as normalized
from .leaves import parsed as parsed
from .leaves import similar as similar
from .leaves import within as within
