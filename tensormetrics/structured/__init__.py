"""Scores of predicted structures: sets, sequences, spans, clusters, boxes and rankings.

`tensors` computes the weight of the best matching and normalizes it. `objects` derives a tree of nodes from a type and
scores Python objects by it; `dsl` has a constructor for each node. `evaluate` scores the JSON answers of a language
model field by field, by the annotations of `fields`. `suites` are ready-made scores of one structure each.
"""

from types import ModuleType as _ModuleType

from . import dsl as dsl
from . import fields as fields
from . import trials  # noqa: F401  it registers the trial of a GPU kernel
from .fields.evaluate import evaluate as evaluate
from .fields.report import FieldReport as FieldReport
from .fields.schemas.json_writer import json_schema as json_schema
from .fields.scores import FieldScores as FieldScores
from .objects.decorator import derive as derive
from .objects.decorator import metametric as metametric
from .objects.decorator import metric_of as metric_of
from .objects.family import Family as Family
from .objects.matching import Hook as Hook
from .objects.matching import Match as Match
from .objects.matching import Matching as Matching
from .objects.matching import Path as Path
from .objects.metric import StructuredMetric as StructuredMetric
from .objects.reductions import macro_average as macro_average
from .objects.reductions import micro_average as micro_average
from .objects.variable import Variable as Variable
from .suites.amr import Smatch as Smatch
from .suites.amr import read_penman as read_penman
from .suites.amr import read_triples as read_triples
from .suites.clusters import ClusterMatchScores as ClusterMatchScores
from .suites.conll import read_conll_coref as read_conll_coref
from .suites.coref import CorefScores as CorefScores
from .suites.entities.ner_report import ner_report as ner_report
from .suites.entities.span_errors import SpanErrors as SpanErrors
from .suites.entities.span_errors import span_errors as span_errors
from .suites.entities.spans import SpanScores as SpanScores
from .suites.entities.tags import TagSpans as TagSpans
from .suites.entities.tags import read_tags as read_tags
from .suites.events import EventScores as EventScores
from .suites.ranking import RankingScores as RankingScores
from .suites.relations import RelationScores as RelationScores
from .suites.structures import AMR as AMR
from .suites.structures import Argument as Argument
from .suites.structures import Entity as Entity
from .suites.structures import EntitySet as EntitySet
from .suites.structures import Event as Event
from .suites.structures import EventSet as EventSet
from .suites.structures import Membership as Membership
from .suites.structures import Mention as Mention
from .suites.structures import Prop as Prop
from .suites.structures import Relation as Relation
from .suites.structures import RelationSet as RelationSet
from .suites.structures import Trigger as Trigger
from .tensors._integer_program import SolverResult as SolverResult
from .tensors.boxes import BoxMatch as BoxMatch
from .tensors.boxes import box_iou as box_iou
from .tensors.constraints import Constraint as Constraint
from .tensors.graph import graph_overlap as graph_overlap
from .tensors.graph import reachability as reachability
from .tensors.latent.latent import LatentMatch as LatentMatch
from .tensors.latent.latent import SolvedMapping as SolvedMapping
from .tensors.latent.latent import latent_overlap as latent_overlap
from .tensors.normalizers import FScore as FScore
from .tensors.normalizers import Jaccard as Jaccard
from .tensors.normalizers import Normalizer as Normalizer
from .tensors.normalizers import Precision as Precision
from .tensors.normalizers import Recall as Recall
from .tensors.normalizers import normalize as normalize
from .tensors.overlap import Overlap as Overlap
from .tensors.overlap import Pairs as Pairs
from .tensors.overlap import multiset_overlap as multiset_overlap
from .tensors.overlap import set_overlap as set_overlap
from .tensors.policy import Policy as Policy
from .tensors.reduction import CountMetric as CountMetric
from .tensors.reduction import OverlapMetric as OverlapMetric
from .tensors.sequence import sequence_overlap as sequence_overlap
from .tensors.set_match import MultisetMatch as MultisetMatch
from .tensors.set_match import SequenceMatch as SequenceMatch
from .tensors.set_match import SetMatch as SetMatch

__all__ = sorted(name for name in globals() if name[0] != "_" and not isinstance(globals()[name], _ModuleType))


def __dir__() -> list[str]:
    return [*__all__, "dsl", "fields", *(name for name in globals() if name.startswith("__"))]
