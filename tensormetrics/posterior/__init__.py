"""How sure can we be of a metric: posteriors of classification metrics, given a confusion matrix."""

from .dirichlet import dirichlet_prior as dirichlet_prior
from .dirichlet import sample_dirichlet as sample_dirichlet
from .dirichlet import sample_log_gamma as sample_log_gamma
from .module import ConfusionPosterior as ConfusionPosterior
from .summary import Estimate as Estimate
from .summary import as_scalars as as_scalars
from .summary import hdi as hdi
from .sums import ConfusionSums as ConfusionSums
from .sums import sample_sums as sample_sums
from .sums import sums_from_matrices as sums_from_matrices
