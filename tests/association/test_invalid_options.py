"""Options that are wrong by themselves: the error names the option, what it got, and what is wanted."""

from functools import partial

import pytest
import torch
from raising import raises

from tensormetrics import association
from tensormetrics.association import CEAT, GWEAT, INLP, RIPA, RNSB, WEAT, DirectBias, ResidualBias, functional

X, SCORES, CONTEXTS = torch.zeros(2, 3), torch.zeros(26), torch.zeros(2, 3, 4)
GROUPS = torch.stack([X, X])
ONE, ZERO, INTERVAL = "an integer >= 1", "an integer >= 0", "a number between 0 and 1"
ALTERNATIVES = "one of 'two-sided', 'greater', 'less'"
NORMS = "one of 'norm', 'cos', 'cos_similarity'"
METHODS, VARIANCES = "one of 'auto', 'exact', 'approximate'", "one of 'sample', 'standard'"


Repulsion = association.RepulsionAttractionNeutralization
permutation = partial(functional.permutation_p_value, SCORES, SCORES)
sign_flip = partial(functional.sign_flip_p_value, SCORES)
ceat = partial(functional.ceat, *[CONTEXTS] * 4)
bootstrap = partial(functional.bootstrap_interval, functional.ect, X, X, X)
effect_size = partial(functional.weat_effect_size, X, X, X, X)
rnd = partial(functional.rnd, X, X, X)
same = partial(functional.same, X, GROUPS)
direct_bias = partial(functional.direct_bias, X, GROUPS)
rnsb = partial(functional.rnsb, X, X, X)
residual_bias = partial(functional.residual_bias, torch.zeros(6, 2), torch.arange(6))

OPTIONS = [
    *((test, "alternative", "right-sided", ALTERNATIVES) for test in (permutation, sign_flip)),
    *((test, "method", "brute", METHODS) for test in (permutation, sign_flip)),
    *((test, "replicates", 0, ONE) for test in (permutation, sign_flip, bootstrap)),
    (bootstrap, "confidence", 1, INTERVAL),
    *((make, "variance", "none", VARIANCES) for make in (ceat, CEAT)),
    *((make, "samples", 0, ONE) for make in (ceat, CEAT)),
    *((make, "correction", 2, "0 or 1") for make in (ceat, CEAT, WEAT)),
    *((effect_size, "correction", value, "0 or 1") for value in (2, True, None)),
    (ceat, "alternative", "up", ALTERNATIVES),
    (CEAT, "seed", -1, ZERO),
    *((kind, "alternative", "up", ALTERNATIVES) for kind in (CEAT, RIPA)),
    (RIPA, "method", "sampled", METHODS),
    (RIPA, "permutations", 0, ONE),
    (RIPA, "seed", -1, ZERO),
    (GWEAT, "method", "exact", "one of 'auto', 'approximate'"),
    (WEAT, "replicates", -1, ZERO),
    (WEAT, "confidence", 1, INTERVAL),
    (WEAT, "seed", "x", ZERO),
    (rnd, "distance", "manhattan", NORMS),
    (same, "weighting", "none", "one of 'length', 'unit'"),
    *((make, "direction", "up", "one of 'pca', 'mean_difference'") for make in (direct_bias, DirectBias)),
    *((make, "strictness", 0, "a number > 0") for make in (direct_bias, DirectBias)),
    (DirectBias, "n_components", 0, ONE),
    *((make, "C", 0, "a number > 0") for make in (rnsb, RNSB, INLP, ResidualBias)),
    (RNSB, "random_state", -1, ZERO),
    (RNSB, "n_iterations", 0, ONE),
    (residual_bias, "folds", 1, "an integer >= 2"),
    (ResidualBias, "neighbors", 0, ONE),
    (INLP, "n_iterations", 0, ONE),
    (association.DoubleHardDebias, "scope", "some", "one of 'all', 'biased'"),
    (Repulsion, "weights", (1, 2), "three numbers: repulsion, attraction, neutralization"),
    (Repulsion, "learning_rate", 0, "a number > 0"),
    (Repulsion, "epochs", 0, ONE),
    (association.fetch_gn_glove, "n_retries", -1, ZERO),
]


@pytest.mark.parametrize(("make", "name", "value", "wanted"), OPTIONS)
def test_invalid_option_raises_value_error(make, name, value, wanted):
    with raises(ValueError, f"{name}: got {value!r}, wanted {wanted}"):
        make(**{name: value})


def test_estimator_that_is_no_class_raises_type_error():
    with raises(TypeError, "estimator: got 3, wanted a class with the methods fit and predict_proba"):
        RNSB(estimator=3)
