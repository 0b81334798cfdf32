"""How biased are these embeddings between word, sentence or image sets?"""

from .bootstrap import bootstrap_interval as bootstrap_interval
from .ceat import CombinedEffect as CombinedEffect
from .ceat import ceat as ceat
from .ceat import random_effects as random_effects
from .direct_bias import direct_bias as direct_bias
from .ect import ect as ect
from .example_metric import example_metric as example_metric
from .gweat import gweat as gweat
from .mac import mac as mac
from .permutation import permutation_p_value as permutation_p_value
from .permutation import sign_flip_p_value as sign_flip_p_value
from .ripa import ripa as ripa
from .rnd import rnd as rnd
from .rnsb import rnsb as rnsb
from .same import same as same
from .sc_weat import mean_sc_weat as mean_sc_weat
from .sc_weat import sc_weat as sc_weat
from .target_permutation import group_permutation_p_value as group_permutation_p_value
from .target_permutation import target_permutation_p_value as target_permutation_p_value
from .weat import weat as weat
from .weat import weat_effect_size as weat_effect_size
