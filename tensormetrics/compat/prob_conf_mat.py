"""Names and arguments of prob_conf_mat 0.4.0, in one flat module; programs change their import lines only.

Metrics, averagings and aggregators that are written for that package derive from the classes here. Samples are tensors,
which NumPy's functions accept.
"""

import functools
import secrets
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.arguments import checks
from ..posterior.comparison import listwise, pairwise
from ..posterior.comparison.listwise import ListwiseComparisonResult as ListwiseComparisonResult
from ..posterior.comparison.pairwise import PairwiseComparisonResult as PairwiseComparisonResult
from ..posterior.metrics import parse, registry
from ..posterior.metrics.parse import AveragedMetric as AveragedMetric
from ..posterior.metrics.parse import get_metric as get_metric
from ..posterior.metrics.quantity import Quantity as MetricLike
from ..posterior.metrics.quantity import RootMetric as RootMetric
from ..posterior.metrics.quantity import compute_order
from ..posterior.metrics.registry import AGGREGATION_REGISTRY as AGGREGATION_REGISTRY
from ..posterior.metrics.registry import AVERAGING_REGISTRY as AVERAGING_REGISTRY
from ..posterior.metrics.registry import METRIC_REGISTRY as METRIC_REGISTRY
from ..posterior.metrics.registry import Averaging as Averaging
from ..posterior.metrics.registry import get_experiment_aggregator as get_experiment_aggregator
from ..posterior.sampling import rng as streams
from ..posterior.sampling.confusion_matrix import compute_confusion_matrix as compute_confusion_matrix
from ..posterior.sampling.confusion_matrix import validate_confusion_matrix as validate_confusion_matrix
from ..posterior.sampling.dirichlet import dirichlet_prior as dirichlet_prior
from ..posterior.sampling.dirichlet import sample_dirichlet
from ..posterior.sampling.errors import ConfigError as ConfigError
from ..posterior.sampling.errors import ConfigWarning as ConfigWarning
from ..posterior.sampling.errors import ConfMatIOError as ConfMatIOError
from ..posterior.sampling.errors import ConfMatIOWarning as ConfMatIOWarning
from ..posterior.sampling.matrix_files import load_csv as load_csv
from ..posterior.study import study
from ..posterior.study.experiment import Experiment as Experiment
from ..posterior.study.experiment import ExperimentAggregationResult as ExperimentAggregationResult
from ..posterior.study.experiment import ExperimentGroup as ExperimentGroup
from ..posterior.study.experiment import ExperimentGroupResult as ExperimentGroupResult
from ..posterior.study.experiment import ExperimentResult as ExperimentResult
from ..posterior.summaries import summary
from ..uncertainty.statistics import heterogeneity
from ..uncertainty.statistics.density import kde
from ..uncertainty.statistics.heterogeneity import HeterogeneityResult as HeterogeneityResult
from ..uncertainty.statistics.heterogeneity import heterogeneity_dl as heterogeneity_dl
from ..uncertainty.statistics.heterogeneity import heterogeneity_pm as heterogeneity_pm
from ..uncertainty.statistics.samples import hdi

Metric = registry.ConfusionMetric


def _pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


CLASSES: dict[str, type] = {  # its names of metrics, averagings and aggregators, by aliases that both have
    name: table[alias]
    for table, names in (
        (
            METRIC_REGISTRY,
            "DiagMass diag_mass Prevalence prevalence ModelBias model_bias TruePositiveRate tpr FalseNegativeRate fnr "
            "PositivePredictiveValue ppv FalseDiscoveryRate fdr FalsePositiveRate fpr TrueNegativeRate tnr "
            "FalseOmissionRate for NegativePredictiveValue npv Accuracy acc BalancedAccuracy ba "
            "MatthewsCorrelationCoefficient mcc CohensKappa kappa F1 f1 FBeta fbeta Informedness informedness "
            "Markedness markedness P4 p4 JaccardIndex jaccard PositiveLikelihoodRatio plr "
            "LogPositiveLikelihoodRatio log_plr NegativeLikelihoodRatio nlr LogNegativeLikelihoodRatio lnlr "
            "DiagnosticOddsRatio dor LogDiagnosticOddsRatio log_dor PrevalenceThreshold prev_thresh "
            "PrecisionGain precision_gain RecallGain recall_gain F1Gain f1_gain FBetaGain fbeta_gain "
            "MeanAbsoluteError mae MeanSquaredError mse RootMeanSquaredError rmse OffByOneAccuracy offby1 "
            "PolynomialWeightedKappa polynomial_weighted_kappa",
        ),
        (
            AVERAGING_REGISTRY,
            "MacroAverage macro WeightedAverage weighted SelectPositiveClass binary HarmonicMean harmonic "
            "GeometricMean geometric Minimum min Maximum max",
        ),
        (
            AGGREGATION_REGISTRY,
            "SingletonAggregator singleton BetaAggregator beta GammaAggregator gamma FEGaussianAggregator fe "
            "REGaussianAggregator re HistogramAggregator hist",
        ),
    )
    for name, alias in _pairs(names).items()
}


def __getattr__(name: str) -> Any:
    if name not in CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return CLASSES[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *CLASSES})


class SamplingMethod(str, Enum):
    """Names of sampling methods."""

    POSTERIOR = "posterior"
    PRIOR = "prior"
    RANDOM = "random"
    INPUT = "input"

    __str__ = str.__str__  # also in f-strings, which name the random streams


class RNG(streams.RNG):
    """A stream of random numbers that `seed` and `position` determine, with the methods of NumPy's generators."""

    def __init__(self, seed: int | None, position: tuple[int, ...] = (), **options: Any) -> None:
        seed = secrets.randbits(63) if seed is None else seed
        super().__init__(seed, **{"name": "/".join(map(str, position)), **options})
        self.children: list[RNG] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while a copy is being made
            raise AttributeError(name)
        return getattr(self.numpy(), name)

    def choice(self, *args: Any, **options: Any) -> Any:
        return self.numpy().choice(*args, **options)

    def spawn(self, n_children: int) -> list[streams.RNG]:
        """Return streams that differ from each other and from those of earlier calls."""
        children = super().spawn(len(self.children) + n_children)[len(self.children) :]
        new = [RNG(self.seed, name=child.name, device=child.device) for child in children]
        self.children += new
        return [*new]


class ExperimentAggregator(registry.ExperimentAggregator):
    """Base of methods that pool experiments; see `posterior.ExperimentAggregator`. Its `rng` is an `RNG` from here."""

    @property
    def rng(self) -> RNG:
        return self._rng

    @rng.setter
    def rng(self, rng: streams.RNG) -> None:
        self._rng = rng if isinstance(rng, RNG) else RNG(rng.seed, name=rng.name, device=rng.device)


class MetricCollection(parse.ConfusionMetricCollection):
    """Metrics in the order of insertion; see `ConfusionMetricCollection`."""

    def __init__(self, metrics: str | MetricLike | Iterable | None = ()) -> None:
        super().__init__(() if metrics is None else metrics)

    def add(self, metric: str | MetricLike | Iterable) -> None:  # type: ignore[override]
        super().add(metric)

    def get_insert_order(self) -> tuple[MetricLike, ...]:
        return tuple(self)

    def get_compute_order(self) -> "MetricCollection":
        return MetricCollection(compute_order(self))


PARTS = _pairs(  # beginnings of names of options, and the parts of a plot; of two that fit the first counts
    "edge edge area area median_line median hdi_lines interval hdi_line interval obs_point observed "
    "extrema_lines extrema extrema_line extrema base_line base experiment_name name experiment_info info "
    "proportions proportions rope_area rope neg_sig_diff_area negative pos_sig_diff_area positive "
    "min_sig_diff_lines rope_edges agg_median_line aggregate_line agg_median aggregate median median"
)
KEYWORDS = _pairs(  # ends of these names, and keywords of matplotlib
    "colour color alpha alpha format linestyle width linewidth marker marker size markersize height markersize "
    "marker_size markersize marker_line_width markeredgewidth marker_edge_colour markeredgecolor "
    "marker_face_colour markerfacecolor"
)
OF_PART = {("extrema", "linewidth"): "markeredgewidth", ("negative", "color"): "facecolor"}
PLOT_OPTIONS = {"background_colour": "background", "agg_offset": "gap"}


def plot_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a plot as `posterior.Study` takes them: `median_line_colour="red"` is a `style` of a part."""
    style: dict[str, dict[str, Any]] = {}
    hide, renamed = [], {}
    for name, value in options.items():
        is_shown = name.startswith("plot_")
        start = next((start for start in PARTS if name.removeprefix("plot_").startswith(start)), None)
        end = "" if start is None else name.removeprefix("plot_").removeprefix(start).removeprefix("_")
        if start is None or not (is_shown or end in KEYWORDS):
            renamed[PLOT_OPTIONS.get(name, name)] = value
        elif not is_shown and value is not None:
            part, keyword = PARTS[start], KEYWORDS[end]
            style.setdefault(part, {})[OF_PART.get((part, keyword), keyword)] = value
        elif is_shown and not value:
            hide += [PARTS[start]] + ["header"] * (PARTS[start] == "info")
    return {"style": style, "hide": hide, **renamed}


def with_plot_options(plot: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plot)
    def call(self: study.Study, metric: str, class_label: int | str | None = None, **options: Any) -> Any:
        return plot(self, metric, class_label, **plot_options(options))

    return call


class Study(study.Study):
    """Experiments and metrics, with reports, comparisons and plots; see `posterior.Study`."""

    plot_metric_summaries = with_plot_options(study.Study.plot_metric_summaries)
    plot_experiment_aggregation = with_plot_options(study.Study.plot_experiment_aggregation)
    plot_pairwise_comparison = with_plot_options(study.Study.plot_pairwise_comparison)
    plot_forest_plot = with_plot_options(study.Study.plot_forest_plot)

    @classmethod
    def from_dict(cls, config_dict: Mapping[str, Any], **kwargs: Any) -> study.Study:  # type: ignore[override]
        return super().from_dict(config_dict, **kwargs)

    get_listwise_comparsion_result = study.Study.get_listwise_comparison_result


class PosteriorSummary(summary.PosteriorSummary):
    """Summary of samples; see `posterior.summarize`."""

    @property
    def ci_probability(self) -> float:
        return self.confidence


def summarize_posterior(posterior_samples: Any, ci_probability: float) -> PosteriorSummary:
    """Summarize samples (S,); see `posterior.summarize`."""
    return PosteriorSummary(*summary.summarize(posterior_samples, ci_probability))


def hdi_estimator(samples: Any, prob: float) -> tuple[Tensor, Tensor]:
    """Compute the highest density interval of samples (S,); see `uncertainty.hdi`."""
    return hdi(samples, prob)


def histogram_mode_estimator(samples: Any) -> Tensor:
    """Compute the mode of samples (S,); see `posterior.summarize`."""
    return summary.summarize(samples).mode


class KDEResult(NamedTuple):
    """Density on a grid."""

    x_vals: Tensor  # (G,)
    y_vals: Tensor  # (G,)
    bounds: tuple[float, float]


def compute_kde(
    samples: Any,
    *,
    bw_adjust: float = 1.0,
    cut: float = 3.0,
    clip: tuple[float, float] | None = None,
    grid_samples: int = 200,
) -> KDEResult:
    """Compute the density of samples (S,); see `uncertainty.kde`."""
    x, y, _ = kde(samples, bw_adjust=bw_adjust, cut=cut, clip=clip, grid_samples=grid_samples)
    return KDEResult(x, y, (float(x[0]), float(x[-1])))


def dirichlet_sample(rng: streams.RNG, alphas: Any, num_samples: int) -> Tensor:
    """Draw Dirichlet(alphas) vectors; see `posterior.sample_dirichlet`."""
    return sample_dirichlet(alphas, num_samples, dtype=torch.float64, seed=rng.torch().initial_seed())


def estimate_i2(individual_samples: Any) -> HeterogeneityResult:
    """Estimate I2 of samples (S, M); see `posterior.estimate_i2`."""
    return heterogeneity.estimate_i2(individual_samples)


def interpret_i2(i2_score: float) -> str:
    """Return the interpretation of I2 as a text; see `posterior.interpret_i2`."""
    return heterogeneity.interpret_i2(i2_score)


def pairwise_compare(
    metric: MetricLike,
    diff_dist: Any,
    ci_probability: float,
    min_sig_diff: float | None = None,
    lhs_name: str = "left",
    rhs_name: str = "right",
    random_diff_dist: Any = None,
    observed_difference: float | None = None,
) -> PairwiseComparisonResult:
    """Summarize samples (S,) of a difference; see `PairwiseComparisonResult`."""
    return pairwise.pairwise_compare(
        checks.as_tensor(diff_dist),
        ci_probability,
        min_sig_diff,
        None if random_diff_dist is None else checks.as_tensor(random_diff_dist),
        observed_difference,
        lhs_name,
        rhs_name,
        metric.name,
        higher_is_better=metric.higher_is_better,
    )


def listwise_compare(experiment_scores_dict: Mapping[str, Any], metric: MetricLike) -> ListwiseComparisonResult:
    """Rank experiments by their samples (S,); see `ListwiseComparisonResult`."""
    samples = {name: checks.as_tensor(scores) for name, scores in experiment_scores_dict.items()}
    return listwise.listwise_compare(samples, metric.name, metric.higher_is_better)


def pred_cond_to_confusion_matrix(pred_cond: Any, *, pred_first: bool = True, num_classes: int | None = None) -> Tensor:
    """Invert `confusion_matrix_to_pred_cond`; C is the largest label + 1, at least 2, if `num_classes` is not given.

    Shapes: pred_cond: (N, 2) -> (C, C) int64.

    >>> pred_cond_to_confusion_matrix([[0, 0], [1, 0], [1, 1]])
    tensor([[1, 1],
            [0, 1]])
    """
    pairs = checks.as_tensor(pred_cond)
    checks.shape("pred_cond", pairs, "N", 2)
    checks.integral("pred_cond", pairs)
    if num_classes is None:
        num_classes = max(2, int(pairs.max()) + 1) if len(pairs) else 2
    first, second = pairs.cpu().unbind(-1)
    true, pred = (second, first) if pred_first else (first, second)
    return compute_confusion_matrix(true, pred, num_classes=num_classes)


def confusion_matrix_to_pred_cond(confusion_matrix: Any, *, pred_first: bool = True) -> Tensor:
    """Return a pair (prediction, condition) for each count, or (condition, prediction) with `pred_first=False`.

    Shapes: confusion_matrix: (C, C) -> (N, 2).

    >>> confusion_matrix_to_pred_cond([[2, 1], [0, 1]])
    tensor([[0, 0],
            [0, 0],
            [1, 0],
            [1, 1]])
    """
    matrix = validate_confusion_matrix(confusion_matrix, allow_empty_rows=True)
    counts = matrix.long()
    if (counts != matrix).any():
        raise ValueError("confusion_matrix: got fractional counts, which are no pairs; round them first")
    C = len(counts)
    cell = torch.repeat_interleave(torch.arange(C * C, device=counts.device), counts.flatten())
    pairs = torch.stack([cell // C, cell % C], -1)
    return pairs.flip(-1) if pred_first else pairs
