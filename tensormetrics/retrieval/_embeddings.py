"""Embeddings with labels: checks shared by the domain, and the metric base that keeps them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _checks
from .._metric import Metric


def as_tensor(name: str, values: Any, device: torch.device) -> Tensor:
    """Tensors, numpy arrays and nested lists of numbers as a tensor on `device`. Lists of floats are float64."""
    if isinstance(values, Tensor):
        return values.to(device)
    try:
        array = np.array(values)  # a copy: torch cannot share read-only or reversed arrays
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if array.dtype.kind not in "biufc":
        raise ValueError(f"{name}: got an array of {array.dtype}, wanted numbers")
    return torch.from_numpy(array).to(device)


def as_embeddings(name: str, rows: Tensor) -> Tensor:
    # rows: (N, D)  ->  (N, D) floating
    _checks.shape(name, rows, "N", "D")
    if rows.is_complex():
        raise ValueError(f"{name}: got {rows.dtype}, wanted real numbers; write torch.view_as_real({name}).flatten(1)")
    if rows.is_floating_point():
        return rows
    return rows.to(torch.float32 if rows.element_size() <= 2 else torch.float64)


def as_labels(name: str, labels: Tensor) -> Tensor:
    # labels: (N,) or (N, 1)  ->  (N,) int64 or floating
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    _checks.shape(name, labels, "N")
    if labels.is_complex() or labels.dtype == torch.uint64:
        raise ValueError(f"{name}: got {labels.dtype}, wanted integers that int64 can hold, or real numbers")
    return labels if labels.is_floating_point() else labels.long()


def labelled(rows: Any, labels: Any, device: torch.device, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    # rows: (N, D)  labels: (N,) or (N, 1)  ->  (N, D) floating, (N,) int64 or floating
    rows = as_embeddings(names[0], as_tensor(names[0], rows, device))
    labels = as_labels(names[1], as_tensor(names[1], labels, device))
    _checks.same_length(**dict(zip(names, (rows, labels), strict=True)))
    return rows, labels


def check_finite(**tensors: Tensor) -> None:
    """Reads the values, and so waits for the device."""
    for name, tensor in tensors.items():
        bad = ~tensor.isfinite()
        bad = bad.any(1) if bad.ndim == 2 else bad
        if bad.any():
            raise ValueError(
                f"{name}: {int(bad.sum())} of {len(bad)} rows hold NaN or infinity, the first is row "
                f"{int(bad.nonzero()[0])}; wanted finite values"
            )


def budget(memory_budget: int | None, device: torch.device) -> int:
    """Bytes that temporaries may take: as told, else 256 MiB on a CPU and 1 GiB elsewhere."""
    return memory_budget or (2**28 if device.type == "cpu" else 2**30)


class EmbeddingMetric(Metric):
    """Keeps the embeddings and labels of every update, in order, for a `compute` that calls `kept`.

    Subclasses have the same states, so that in a MetricCollection they form one compute group and keep one copy.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_rows("embeddings")
        self.add_rows("labels")

    def update(self, embeddings: Tensor, labels: Tensor) -> None:
        # embeddings: (N, D)  labels: (N,) or (N, 1)
        """Append a batch. NaN and infinity are a ValueError: here on a CPU, in `compute` elsewhere (no waiting)."""
        device = embeddings.device if isinstance(embeddings, Tensor) else self.device
        embeddings, labels = labelled(embeddings, labels, device, ("embeddings", "labels"))
        if embeddings.device.type == "cpu":
            check_finite(embeddings=embeddings, labels=labels)
        before = self.labels
        self.append_rows("labels", labels)
        try:
            self.append_rows("embeddings", embeddings)
        except ValueError:
            self.labels = before  # as many as embeddings
            raise

    def kept(self) -> tuple[Tensor, Tensor]:
        # ->  (N, D), (N,)
        check_finite(embeddings=self.embeddings, labels=self.labels)
        return self.embeddings, self.labels
