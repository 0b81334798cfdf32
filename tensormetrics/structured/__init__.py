"""Scores of predicted structures: sets, sequences, spans, clusters, boxes and rankings.

`tensors` computes the weight of the best matching and normalizes it. `objects` derives a tree of nodes from a type and
scores Python objects by it; `dsl` has a constructor for each node. `evaluate` scores the JSON answers of a language
model field by field, by the annotations of `fields`. `suites` are ready-made scores of one structure each.
"""

from . import dsl as dsl
from . import extend as extend
from . import fields as fields
from . import functional as functional
from . import trials  # noqa: F401  it registers the trial of a GPU kernel
from .fields.evaluate import evaluate
from .fields.report import FieldReport
from .fields.schemas.json_writer import json_schema
from .fields.scores import FieldScores
from .objects.decorator import derive, metametric, metric_of
from .objects.family import Family, macro_average, micro_average
from .suites.amr import Smatch, read_penman, read_triples
from .suites.clusters import ClusterMatchScores
from .suites.conll import read_conll_coref
from .suites.coref import CorefScores
from .suites.entities.ner_report import ner_report
from .suites.entities.span_errors import span_errors
from .suites.entities.spans import SpanScores
from .suites.entities.tags import TagSpans, read_tags
from .suites.events import EventScores
from .suites.ranking import RankingScores
from .suites.relations import RelationScores
from .suites.structures import (
    AMR,
    Argument,
    Entity,
    EntitySet,
    Event,
    EventSet,
    Mention,
    Prop,
    Relation,
    RelationSet,
    Trigger,
)
from .tensors.boxes import BoxMatch
from .tensors.latent.latent import LatentMatch
from .tensors.set_match import MultisetMatch, SequenceMatch, SetMatch

__all__ = ["evaluate", "FieldReport", "FieldScores", "json_schema"]
__all__ += ["metametric", "metric_of", "derive", "Family", "macro_average", "micro_average"]
__all__ += ["BoxMatch", "LatentMatch", "MultisetMatch", "SequenceMatch", "SetMatch"]
__all__ += ["ClusterMatchScores", "CorefScores", "EventScores", "RankingScores", "RelationScores"]
__all__ += ["Smatch", "SpanScores", "TagSpans", "ner_report", "span_errors"]
__all__ += ["read_conll_coref", "read_penman", "read_tags", "read_triples"]
__all__ += ["AMR", "Argument", "Entity", "EntitySet", "Event", "EventSet"]
__all__ += ["Mention", "Prop", "Relation", "RelationSet", "Trigger"]


def __dir__() -> list[str]:
    return [*__all__, "extend", "functional", "dsl", "fields", *(name for name in globals() if name.startswith("__"))]
