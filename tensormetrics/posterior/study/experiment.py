"""A confusion matrix with its posterior."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..metrics.quantity import Quantity
from ..metrics.sample_metrics import sample_metrics
from ..sampling.confusion_matrix import checked_labels, refuse_empty_rows, validate_confusion_matrix
from ..sampling.confusion_sums import Method
from ..sampling.dirichlet import HIERARCHICAL_WITH_ITEMS, confusion_prior_of, dirichlet_prior
from ..sampling.errors import ConfigError
from ..sampling.paired import PairedItems


class Experiment:
    """A confusion matrix (rows are the truth) and the priors of its posterior.

    Args:
        name: Address of the draws, with the seed.
        confusion_matrix: Counts (C, C).
        prevalence_prior, confusion_prior: Counts added to the rows and cells, see `dirichlet_prior`.
        items: The items that the matrix counts: experiments on the same items share what is random in them.
        labels: Names of the classes.
        device: Device of the samples.

    Raises:
        ConfMatIOError: If the matrix is none; it is a ValueError.
        ConfigError: If a prior or a label does not fit; it is a ValueError.

    >>> experiment = Experiment("mlp", [[90, 10], [12, 88]])
    >>> (accuracy,) = experiment.samples("acc", "posterior", 1000, seed=0)
    >>> accuracy.shape
    torch.Size([1000, 1])
    """

    truth_digest: bytes | None = None  # to find experiments with the same y_true; None if it is irrelevant
    config: Mapping[str, Any]  # the arguments as `Study.save` writes them

    def __init__(
        self,
        name: str,
        confusion_matrix: Any,
        prevalence_prior: Any = "perks",
        confusion_prior: Any = "balanced",
        *,
        items: PairedItems | None = None,
        labels: Sequence[str] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.name = name
        self.items = None if items is None else items._replace(cells=items.cells.to(device))
        self.confusion_matrix = validate_confusion_matrix(confusion_matrix, allow_empty_rows=True).to(device)
        C = self.num_classes
        try:
            self.labels = checked_labels(labels, C)
            self.prevalence_prior = dirichlet_prior(prevalence_prior, (C,), argument="prevalence_prior")
            self.confusion_prior = confusion_prior_of(confusion_prior, C)
        except ValueError as error:
            raise ConfigError(f"experiment {name!r}: {error}") from None
        if isinstance(self.confusion_prior, Tensor):
            refuse_empty_rows(self.confusion_matrix.cpu() + self.confusion_prior)
        elif items is not None:
            raise ConfigError(f"experiment {name!r}: {HIERARCHICAL_WITH_ITEMS}")

    @property
    def num_classes(self) -> int:
        return len(self.confusion_matrix)

    @property
    def num_predictions(self) -> float:
        return float(self.confusion_matrix.sum())

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, items={self.num_predictions:g}, classes={self.num_classes})"

    def samples(
        self, metrics: str | Quantity | Iterable[str | Quantity], method: Method, replicates: int, **options: Any
    ) -> list[Tensor]:
        """Draw samples (S, C) or (S, 1) of each metric, in order; `options` are those of `sample_metrics`."""
        priors = {"prevalence_prior": self.prevalence_prior, "confusion_prior": self.confusion_prior}
        options = {"method": method, "names": [self.name], "items": self.items, **priors, **options}
        return [values[:, 0] for values in sample_metrics(self.confusion_matrix, metrics, replicates, **options)]
