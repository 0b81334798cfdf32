"""Comparisons of a study's experiments: it fetches the samples, functions compare them."""

import warnings
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from .compare import PairwiseComparisonResult, pairwise_compare
from .errors import ConfigWarning, PosteriorWarning
from .folds import FoldComparison, compare_folds
from .listwise import ListwiseComparisonResult, listwise_compare
from .quantities import Quantity
from .study_config import AGGREGATED, split_name, unknown

Label = int | str | None


class Comparisons:
    """The comparisons of a `Study`. The class label is needed where a metric has one value per class."""

    def column(self, metric: str | Quantity, class_label: Label, experiment: str, method: str = "posterior") -> Tensor:
        """Samples (S,) of one value of a metric."""
        result = self.get_metric_samples(metric, experiment, method)
        return result.values[:, self.class_index(metric, class_label, [experiment])]

    def class_index(self, metric: str | Quantity, class_label: Label, experiments: Sequence[str]) -> int:
        """The number of the class, which these experiments have; 0 for a metric with one value for all classes."""
        found = self.find_metric(metric)
        if found.is_multiclass:
            if class_label not in (None, 0) and (found.name, class_label) not in self._ignored:
                self._ignored.add((found.name, class_label))  # said once, however many samples a report looks at
                warnings.warn(
                    f"metric {found.name!r} has one value for all classes; class_label {class_label!r} is ignored",
                    ConfigWarning,
                    stacklevel=3,
                )
            return 0
        index = 0
        for name in experiments:
            group = self[split_name(name)[0]]
            C, labels = group.num_classes, group.labels or ()
            if class_label in labels:
                index = labels.index(class_label)
            elif isinstance(class_label, int) and not isinstance(class_label, bool) and 0 <= class_label < C:
                index = class_label
            else:
                names = f"{', '.join(map(repr, labels))} or " if labels else ""
                raise ValueError(
                    f"class_label: got {class_label!r} for metric {found.name!r}, wanted {names}0 to {C - 1} for "
                    f"experiment {name!r}"
                )
        return index

    def titled(self, metric: str, class_label: Label, experiments: Sequence[str], title: str | None = None) -> str:
        """`title`, by default the metric's name, followed by the name of the class where there is one for each."""
        title = metric if title is None else title
        if self.find_metric(metric).is_multiclass:
            return title
        index = self.class_index(metric, class_label, experiments)
        labels = next((found for name in experiments if (found := self[split_name(name)[0]].labels)), None)
        return f"{title}, class {labels[index] if labels else index}"

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
        title, (paired,) = self.titled(metric, class_label, names), self._paired([names])
        return self._compare(metric, title, a - b, min_sig_diff, random_a - random_b, observed, *names, paired)

    def get_pairwise_random_comparison(
        self, metric: str, class_label: Label = None, *, experiment: str, min_sig_diff: float | None = None
    ) -> PairwiseComparisonResult:
        """The difference of an experiment and a guesser with the same prevalence."""
        name = "/".join(split_name(experiment))
        posterior, random = (self.column(metric, class_label, name, method) for method in ("posterior", "random"))
        title = self.titled(metric, class_label, [name])
        return self._compare(metric, title, posterior - random, min_sig_diff, None, None, name, "random")

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
        paired = self._paired(list(zip(left, right, strict=True)))
        return self._compare(
            metric,
            self.titled(metric, class_label, names),
            diff,
            min_sig_diff,
            random,
            observed[0],
            left,
            right,
            paired,
        )

    def get_listwise_comparison_result(
        self, metric: str, class_label: Label = None, *, groups: bool = False
    ) -> ListwiseComparisonResult:
        """Which experiment is first, second, ...; with `groups`, which aggregate. See `listwise_compare`."""
        names = [f"{group}/{AGGREGATED}" for group in self._groups] if groups else self.list_experiments()
        samples = {name: self.column(metric, class_label, name) for name in names}
        paired = any(self._paired(list(combinations(names, 2))))
        title = self.titled(metric, class_label, names)
        return listwise_compare(samples, title, self.find_metric(metric).higher_is_better, paired)

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

    def _paired(self, pairs: Sequence[Sequence[str]]) -> list[bool]:
        """Were the samples of two experiments drawn for the same items? Says so where they might have been."""
        found, alike = [], []
        for pair in pairs:
            if any(split_name(name)[1] == AGGREGATED for name in pair):
                found.append(False)
                continue
            first, second = (self[name] for name in pair)
            labelled = None not in (first.items, second.items)
            found.append(labelled and first.items.label == second.items.label)
            if not labelled and None not in (first.truth, second.truth) and first.truth == second.truth:
                alike.append(pair)
        if alike:
            a, b = alike[0]
            others = f" (so have {len(alike) - 1} other pairs)" if len(alike) > 1 else ""
            warnings.warn(
                f"{a!r} and {b!r} have the same y_true{others}, but are compared as if their items were different "
                "ones; write items='test' in add_experiment of both to compare them item by item, or items=False if "
                "their items do differ",
                PosteriorWarning,
                stacklevel=3,
            )
        return found

    def _compare(
        self,
        metric: str,
        title: str,
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
            diff, self.ci_probability, min_sig_diff, random, observed, left, right, title, **options
        )
