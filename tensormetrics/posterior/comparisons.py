"""Comparisons of a study's experiments: it fetches the samples, functions compare them."""

import warnings
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from .compare import PairwiseComparisonResult, pairwise_compare
from .errors import ConfigWarning
from .folds import FoldComparison, compare_folds
from .listwise import ListwiseComparisonResult, listwise_compare
from .quantities import Quantity
from .study_config import AGGREGATED, split_name, unknown

Label = int | None


class Comparisons:
    """The comparisons of a `Study`. The class label is needed where a metric has one value per class."""

    def column(self, metric: str | Quantity, class_label: Label, experiment: str, method: str = "posterior") -> Tensor:
        """Samples (S,) of one value of a metric."""
        result = self.get_metric_samples(metric, experiment, method)
        return result.values[:, self.class_index(metric, class_label, [experiment])]

    def class_index(self, metric: str | Quantity, class_label: Label, experiments: Sequence[str]) -> int:
        """`class_label`, if it is one for these experiments; 0 for a metric with one value for all classes."""
        found = self.find_metric(metric)
        if found.is_multiclass:
            if class_label not in (None, 0):
                warnings.warn(
                    f"metric {found.name!r} has one value for all classes; class_label {class_label!r} is ignored",
                    ConfigWarning,
                    stacklevel=3,
                )
            return 0
        for name in experiments:
            C = self[split_name(name)[0]].num_classes
            if isinstance(class_label, bool) or not isinstance(class_label, int) or not 0 <= class_label < C:
                raise ValueError(
                    f"class_label: got {class_label!r} for metric {found.name!r}, wanted 0 to {C - 1} for "
                    f"experiment {name!r}"
                )
        return class_label or 0

    def get_pairwise_comparison(
        self,
        metric: str,
        class_label: Label = None,
        *,
        experiment_a: str,
        experiment_b: str,
        min_sig_diff: float | None = None,
    ) -> PairwiseComparisonResult:
        """The difference a - b of a metric; see `pairwise_compare`. Either may be "group/aggregated"."""
        names = ["/".join(split_name(name)) for name in (experiment_a, experiment_b)]
        if names[0] == names[1]:
            raise ValueError(f"experiment_a, experiment_b: got {names[0]!r} twice, wanted two experiments")
        a, b = (self.column(metric, class_label, name) for name in names)
        random_a, random_b = (self.column(metric, class_label, name, "random") for name in names)
        observed = None
        if not any(name.endswith(f"/{AGGREGATED}") for name in names):
            first, second = (self.column(metric, class_label, name, "input") for name in names)
            observed = (first - second)[0]
        return self._compare(metric, a - b, min_sig_diff, random_a - random_b, observed, *names, self._paired(*names))

    def get_pairwise_random_comparison(
        self, metric: str, class_label: Label = None, *, experiment: str, min_sig_diff: float | None = None
    ) -> PairwiseComparisonResult:
        """The difference of an experiment and a guesser with the same prevalence."""
        name = "/".join(split_name(experiment))
        posterior, random = (self.column(metric, class_label, name, method) for method in ("posterior", "random"))
        return self._compare(metric, posterior - random, min_sig_diff, None, None, name, "random")

    def compare_all_pairs(
        self, metric: str, class_label: Label = None, *, min_sig_diff: float | None = None
    ) -> PairwiseComparisonResult:
        """All pairs of experiments at once, in the order of `list_experiments`; fields (P,)."""
        names = self.list_experiments()
        if len(names) < 2:
            raise ValueError(f"the study has {len(names)} experiments, a comparison wants at least 2")
        a, b = torch.tensor(list(combinations(range(len(names)), 2))).T
        values = {
            method: torch.stack([self.column(metric, class_label, name, method) for name in names], -1)
            for method in ("posterior", "random", "input")
        }
        diff, random, observed = (x[:, a.to(x.device)] - x[:, b.to(x.device)] for x in values.values())
        left, right = ([names[e] for e in side.tolist()] for side in (a, b))
        paired = [self._paired(*pair) for pair in zip(left, right, strict=True)]
        return self._compare(metric, diff, min_sig_diff, random, observed[0], left, right, paired)

    def get_listwise_comparison_result(
        self, metric: str, class_label: Label = None, *, groups: bool = False
    ) -> ListwiseComparisonResult:
        """Which experiment is first, second, ...; with `groups`, which aggregate. See `listwise_compare`."""
        names = [f"{group}/{AGGREGATED}" for group in self._groups] if groups else self.list_experiments()
        samples = {name: self.column(metric, class_label, name) for name in names}
        paired = any(self._paired(*pair) for pair in combinations(names, 2))
        return listwise_compare(samples, metric, self.find_metric(metric).higher_is_better, paired)

    get_listwise_comparsion_result = get_listwise_comparison_result  # as prob_conf_mat spells it

    def get_fold_comparison(
        self,
        metric: str,
        class_label: Label = None,
        *,
        group_a: str,
        group_b: str,
        rho: float | None = None,
        min_sig_diff: float = 0.0,
    ) -> FoldComparison:
        """The observed values of equally named experiments of two groups; see `compare_folds`."""
        for group in group_a, group_b:
            if group not in self._groups:
                raise unknown("group", group, self._groups)
        folds = [list(self._groups[group].experiments) for group in (group_a, group_b)]
        if sorted(folds[0]) != sorted(folds[1]) or len(folds[0]) < 2:
            raise ValueError(
                f"group_a, group_b: got experiments {sorted(folds[0])} and {sorted(folds[1])}, wanted the same two or "
                "more names in both"
            )
        a, b = (
            torch.cat([self.column(metric, class_label, f"{group}/{fold}", "input") for fold in folds[0]])
            for group in (group_a, group_b)
        )
        return compare_folds(a, b, rho, min_sig_diff, self.ci_probability)

    def list_experiments(self) -> list[str]:
        """Names "group/experiment" in the order of insertion."""
        return [f"{group}/{name}" for group, found in self._groups.items() for name in found.experiments]

    def _paired(self, *names: str) -> bool:
        """Were the samples of these experiments drawn for the same items?"""
        if any(split_name(name)[1] == AGGREGATED for name in names):
            return False
        first, second = (self[name].items for name in names)
        return None not in (first, second) and first.label == second.label

    def _compare(
        self,
        metric: str,
        diff: Tensor,
        min_sig_diff: float | None,
        random: Tensor | None,
        observed: Tensor | None,
        left: str | list[str],
        right: str | list[str],
        paired: bool | list[bool] = False,
    ) -> PairwiseComparisonResult:
        options = {"higher_is_better": self.find_metric(metric).higher_is_better, "paired": paired}
        return pairwise_compare(
            diff, self.ci_probability, min_sig_diff, random, observed, left, right, metric, **options
        )
