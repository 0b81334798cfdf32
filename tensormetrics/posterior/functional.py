"""Functions behind the classes of `tensormetrics.posterior`, and the types of tensors that they take."""

from ..uncertainty.statistics.heterogeneity import estimate_i2, interpret_i2
from .metrics.sample_metrics import sample_metrics
from .plots.distributions import plot_distributions
from .sampling.confusion_matrix import compute_confusion_matrix, validate_confusion_matrix
from .sampling.confusion_sums import ConfusionSums, sample_confusion_matrices, sample_sums, sums_from_matrices
from .sampling.dirichlet import dirichlet_prior, sample_dirichlet, sample_log_gamma
from .sampling.paired import PairedItems, sample_paired_matrices

__all__ = ["ConfusionSums", "PairedItems", "compute_confusion_matrix", "validate_confusion_matrix"]
__all__ += ["sums_from_matrices"]
__all__ += ["dirichlet_prior", "sample_dirichlet", "sample_log_gamma", "sample_confusion_matrices"]
__all__ += ["sample_paired_matrices", "sample_sums"]
__all__ += ["sample_metrics", "estimate_i2", "interpret_i2", "plot_distributions"]
