"""Scores of predicted structures: sets, sequences, spans, clusters, boxes and rankings.

Tensors: `overlap`, `sequence`, `graph` and `latent` find the weight of the best matching, `normalizers` make a score of
it, `reduction` sums documents; `coref`, `events`, `spans`, `boxes` and their like are metrics of one kind of structure.
Objects: `decorator`, `derive` and `dsl` make a tree of nodes from a type (`nodes`, and a file `node_...` for each other
kind), `metric` encodes objects by it once and scores them as tensors, `family` averages over a corpus.
"""

from . import dsl as dsl
from ._programme import Solved as Solved
from .amr import Smatch as Smatch
from .amr import read_penman as read_penman
from .amr import read_triples as read_triples
from .boxes import BoxMatch as BoxMatch
from .boxes import box_iou as box_iou
from .clusters import ClusterAccuracy as ClusterAccuracy
from .conll import read_conll_coref as read_conll_coref
from .constraints import Constraint as Constraint
from .coref import CorefScores as CorefScores
from .decorator import derive as derive
from .decorator import metametric as metametric
from .events import EventScores as EventScores
from .family import Family as Family
from .family import Suite as Suite
from .family import macro_average as macro_average
from .family import micro_average as micro_average
from .graph import graph_overlap as graph_overlap
from .graph import reachability as reachability
from .latent import LatentMatch as LatentMatch
from .latent import SolvedMapping as SolvedMapping
from .latent import latent_overlap as latent_overlap
from .matching import Hook as Hook
from .matching import Match as Match
from .matching import Matching as Matching
from .matching import Path as Path
from .metric import StructuredMetric as StructuredMetric
from .normalizers import FScore as FScore
from .normalizers import Jaccard as Jaccard
from .normalizers import Normalizer as Normalizer
from .normalizers import Precision as Precision
from .normalizers import Recall as Recall
from .normalizers import normalize as normalize
from .overlap import Overlap as Overlap
from .overlap import Pairs as Pairs
from .overlap import multiset_overlap as multiset_overlap
from .overlap import set_overlap as set_overlap
from .policy import Policy as Policy
from .ranking import RankingScores as RankingScores
from .reduction import CountMetric as CountMetric
from .reduction import OverlapMetric as OverlapMetric
from .relations import RelationScores as RelationScores
from .sequence import sequence_overlap as sequence_overlap
from .set_match import MultisetMatch as MultisetMatch
from .set_match import SequenceMatch as SequenceMatch
from .set_match import SetMatch as SetMatch
from .spans import SpanScores as SpanScores
from .structures import AMR as AMR
from .structures import Argument as Argument
from .structures import Entity as Entity
from .structures import EntitySet as EntitySet
from .structures import Event as Event
from .structures import EventSet as EventSet
from .structures import Membership as Membership
from .structures import Mention as Mention
from .structures import Prop as Prop
from .structures import Relation as Relation
from .structures import RelationSet as RelationSet
from .structures import Trigger as Trigger
from .tags import TagSpans as TagSpans
from .tags import read_tags as read_tags
from .variable import Variable as Variable

# Whatever is imported above: what `import *` brings and the reference shows.
__all__ = [name for name, value in vars().items() if getattr(value, "__module__", "").startswith(__name__)]
