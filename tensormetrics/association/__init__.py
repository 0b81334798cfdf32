"""Association and bias of embeddings between sets of words, sentences or images."""

# Subpackages, each built on those before it:
#   sets: sets of vectors as tensors
#   language_models: tokens of words, and probabilities of words and sentences
#   embeddings: models, words and queries
#   resampling: null distributions, permutation tests, bootstrap
#   metrics: one file per metric, or per group of related metrics
#   queries: many queries on many models
#   debias: debiasing methods
from . import extend as extend
from . import functional as functional
from . import trials  # noqa: F401  it registers the trials of the GPU kernels
from .debias.double_hard_debias import DoubleHardDebias
from .debias.half_sibling_regression import HalfSiblingRegression
from .debias.hard_debias import HardDebias, MulticlassHardDebias
from .debias.inlp import INLP
from .debias.leace import LEACE
from .debias.repulsion_attraction_neutralization import RepulsionAttractionNeutralization
from .embeddings.datasets import (
    fetch_debias_multiclass,
    fetch_debiaswe,
    fetch_eds,
    fetch_gn_glove,
    load_bingliu,
    load_weat,
    load_weat_w2v,
)
from .embeddings.model import WordEmbeddingModel
from .embeddings.query import Query
from .language_models.likelihoods import log_probabilities
from .language_models.pair_files import SentencePairs, SentenceTriples, read_sentence_pairs, read_sentence_triples
from .language_models.pair_scores import score_pairs
from .metrics.ceat import CEAT
from .metrics.direct_bias import DirectBias
from .metrics.ect import ECT
from .metrics.gweat import GWEAT
from .metrics.lpbs import LPBS
from .metrics.mac import MAC
from .metrics.ml_eat import MLEAT
from .metrics.pair_preference import PairPreference
from .metrics.residual_bias import ResidualBias
from .metrics.ripa import RIPA
from .metrics.rnd import RND
from .metrics.rnsb import RNSB
from .metrics.same import SAME
from .metrics.weat import SCWEAT, WEAT
from .queries.run_queries import run_queries

__all__ = ["WordEmbeddingModel", "Query", "run_queries"]
__all__ += ["CEAT", "DirectBias", "ECT", "GWEAT", "MAC", "MLEAT", "RIPA", "RND", "RNSB", "SAME", "SCWEAT", "WEAT"]
__all__ += ["LPBS", "PairPreference", "SentencePairs", "SentenceTriples"]
__all__ += ["log_probabilities", "score_pairs", "read_sentence_pairs", "read_sentence_triples"]
__all__ += ["DoubleHardDebias", "HalfSiblingRegression", "HardDebias", "INLP", "LEACE", "MulticlassHardDebias"]
__all__ += ["RepulsionAttractionNeutralization", "ResidualBias"]
__all__ += ["load_bingliu", "load_weat", "load_weat_w2v", "fetch_debias_multiclass", "fetch_debiaswe", "fetch_eds"]
__all__ += ["fetch_gn_glove"]


def __dir__() -> list[str]:
    return [*__all__, "extend", "functional", *(name for name in globals() if name.startswith("__"))]
