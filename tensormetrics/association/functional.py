"""Functions behind the classes of `tensormetrics.association`, and the types of tensors that they take."""

from .embeddings.lookup import preprocess_word
from .language_models.likelihoods import pseudo_log_likelihood, sentence_log_likelihood
from .metrics.ceat import ceat, random_effects
from .metrics.direct_bias import direct_bias
from .metrics.ect import ect
from .metrics.gweat import group_permutation_p_value, gweat
from .metrics.lpbs import lpbs
from .metrics.mac import mac
from .metrics.ml_eat import ml_eat
from .metrics.pair_preference import pair_preference
from .metrics.residual_bias import residual_bias
from .metrics.ripa import ripa
from .metrics.rnd import rnd
from .metrics.rnsb import rnsb
from .metrics.same import same
from .metrics.weat import mean_sc_weat, sc_weat, weat, weat_effect_size
from .queries.eat_map import plot_eat_map
from .resampling.bootstrap import bootstrap_interval
from .resampling.permutation import permutation_p_value, sign_flip_p_value
from .resampling.target_permutation import target_permutation_p_value
from .sets.word_sets import WordSet

__all__ = ["WordSet", "ceat", "direct_bias", "ect", "gweat", "lpbs", "mac", "ml_eat", "pair_preference"]
__all__ += ["residual_bias", "ripa", "rnd", "rnsb", "same"]
__all__ += ["sc_weat", "mean_sc_weat", "weat", "weat_effect_size", "random_effects"]
__all__ += ["bootstrap_interval", "permutation_p_value", "group_permutation_p_value", "sign_flip_p_value"]
__all__ += ["target_permutation_p_value"]
__all__ += ["pseudo_log_likelihood", "sentence_log_likelihood", "preprocess_word", "plot_eat_map"]
