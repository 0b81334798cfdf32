"""Association and bias of embeddings between sets of words, sentences or images."""

from types import ModuleType as _ModuleType

# Subpackages, each built on those before it:
#   sets: sets of vectors as tensors
#   language_models: tokens of words, and probabilities of words and sentences
#   embeddings: models, words and queries
#   resampling: null distributions, permutation tests, bootstrap
#   metrics: one file per metric, or per group of related metrics
#   queries: many queries on many models
#   debias: debiasing methods
from . import trials  # noqa: F401  it registers the trials of the GPU kernels
from .debias.double_hard_debias import DoubleHardDebias as DoubleHardDebias
from .debias.half_sibling_regression import HalfSiblingRegression as HalfSiblingRegression
from .debias.hard_debias import HardDebias as HardDebias
from .debias.hard_debias import MulticlassHardDebias as MulticlassHardDebias
from .debias.inlp import INLP as INLP
from .debias.leace import LEACE as LEACE
from .debias.repulsion_attraction_neutralization import (
    RepulsionAttractionNeutralization as RepulsionAttractionNeutralization,
)
from .embeddings.datasets import fetch_debias_multiclass as fetch_debias_multiclass
from .embeddings.datasets import fetch_debiaswe as fetch_debiaswe
from .embeddings.datasets import fetch_eds as fetch_eds
from .embeddings.datasets import fetch_gn_glove as fetch_gn_glove
from .embeddings.datasets import load_bingliu as load_bingliu
from .embeddings.datasets import load_weat as load_weat
from .embeddings.datasets import load_weat_w2v as load_weat_w2v
from .embeddings.lookup import PreprocessorArgs as PreprocessorArgs
from .embeddings.lookup import preprocess_word as preprocess_word
from .embeddings.model import WordEmbeddingModel as WordEmbeddingModel
from .embeddings.query import IndexedQuery as IndexedQuery
from .embeddings.query import Query as Query
from .language_models.likelihoods import log_probabilities as log_probabilities
from .language_models.likelihoods import pseudo_log_likelihood as pseudo_log_likelihood
from .language_models.likelihoods import sentence_log_likelihood as sentence_log_likelihood
from .language_models.pair_files import SentencePairs as SentencePairs
from .language_models.pair_files import SentenceTriples as SentenceTriples
from .language_models.pair_files import read_sentence_pairs as read_sentence_pairs
from .language_models.pair_files import read_sentence_triples as read_sentence_triples
from .language_models.pair_scores import score_pairs as score_pairs
from .metrics.base import BaseMetric as BaseMetric
from .metrics.ceat import CEAT as CEAT
from .metrics.ceat import ceat as ceat
from .metrics.ceat import random_effects as random_effects
from .metrics.direct_bias import DirectBias as DirectBias
from .metrics.direct_bias import direct_bias as direct_bias
from .metrics.ect import ECT as ECT
from .metrics.ect import ect as ect
from .metrics.gweat import GWEAT as GWEAT
from .metrics.gweat import group_permutation_p_value as group_permutation_p_value
from .metrics.gweat import gweat as gweat
from .metrics.lpbs import LPBS as LPBS
from .metrics.lpbs import lpbs as lpbs
from .metrics.mac import MAC as MAC
from .metrics.mac import mac as mac
from .metrics.ml_eat import MLEAT as MLEAT
from .metrics.ml_eat import MLEATResult as MLEATResult
from .metrics.ml_eat import ml_eat as ml_eat
from .metrics.pair_preference import PairPreference as PairPreference
from .metrics.pair_preference import pair_preference as pair_preference
from .metrics.residual_bias import ResidualBias as ResidualBias
from .metrics.residual_bias import residual_bias as residual_bias
from .metrics.ripa import RIPA as RIPA
from .metrics.ripa import ripa as ripa
from .metrics.rnd import RND as RND
from .metrics.rnd import rnd as rnd
from .metrics.rnsb import RNSB as RNSB
from .metrics.rnsb import rnsb as rnsb
from .metrics.same import SAME as SAME
from .metrics.same import same as same
from .metrics.weat import SCWEAT as SCWEAT
from .metrics.weat import WEAT as WEAT
from .metrics.weat import mean_sc_weat as mean_sc_weat
from .metrics.weat import sc_weat as sc_weat
from .metrics.weat import weat as weat
from .metrics.weat import weat_effect_size as weat_effect_size
from .queries.eat_map import plot_eat_map as plot_eat_map
from .queries.run_queries import run_queries as run_queries
from .resampling.bootstrap import bootstrap_interval as bootstrap_interval
from .resampling.permutation import permutation_p_value as permutation_p_value
from .resampling.permutation import sign_flip_p_value as sign_flip_p_value
from .resampling.target_permutation import target_permutation_p_value as target_permutation_p_value
from .sets.word_sets import WordSet as WordSet

__all__ = sorted(name for name in globals() if name[0] != "_" and not isinstance(globals()[name], _ModuleType))


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
