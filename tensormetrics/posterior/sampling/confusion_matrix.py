"""Confusion matrices from labels and pairs, and back. Rows are the truth, columns the prediction."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from .dirichlet import LARGEST
from .errors import ConfMatIOError, ConfMatIOWarning


def validate_confusion_matrix(confusion_matrix: Any, *, allow_empty_rows: bool = False) -> Tensor:
    """Return the matrix as float64, after all checks: square, C >= 2, finite counts >= 0, no class without items.

    Shapes: confusion_matrix: (C, C) -> (C, C).

    ConfMatIOError: not such a matrix, or rows that add up to more than 1e37, which float32 cannot sample. A class that
    is never predicted, or a normalized matrix: ConfMatIOWarning. `allow_empty_rows` accepts classes without items.

    >>> validate_confusion_matrix([[2, 1], [0, 1]])
    tensor([[2., 1.],
            [0., 1.]], dtype=torch.float64)
    """
    try:
        array = confusion_matrix if isinstance(confusion_matrix, Tensor) else np.array(confusion_matrix)
        matrix = checks.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfMatIOError(f"confusion_matrix: wanted rows of numbers, all of one length; {error}") from None
    if matrix.is_complex():
        raise ConfMatIOError("confusion_matrix: got complex numbers, wanted counts")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise ConfMatIOError(f"confusion_matrix: got shape {tuple(matrix.shape)}, wanted (C, C) with C >= 2")
    matrix = matrix.double()
    if bad := torch.nonzero(~(matrix.isfinite() & (matrix >= 0))).tolist():
        i, j = bad[0]
        raise ConfMatIOError(f"confusion_matrix: got {float(matrix[i, j])} at [{i}, {j}], wanted finite counts >= 0")
    if large := torch.nonzero(matrix.sum(1) > LARGEST).flatten().tolist():
        i, largest = large[0], float(matrix[large[0]].max())
        raise ConfMatIOError(
            f"confusion_matrix: got {largest:g} in row {i}, wanted rows that add up to at most {LARGEST:g}"
        )
    if not allow_empty_rows:
        refuse_empty_rows(matrix)
    if empty := torch.nonzero(matrix.sum(0) == 0).flatten().tolist():
        warnings.warn(
            f"confusion_matrix: class {empty[0]} is never predicted, so its precision is undefined",
            ConfMatIOWarning,
            stacklevel=2,
        )
    sums = matrix.sum(1), matrix.sum(0), matrix.sum().view(1)
    if bool(matrix.frac().any()) and any(bool(((x - 1).abs() < 0.02)[x > 0].all()) for x in sums):
        warnings.warn(
            "confusion_matrix: got fractions that add up to 1, which count as one item, wanted counts of items; "
            "write the matrix before its normalization",
            ConfMatIOWarning,
            stacklevel=2,
        )
    return matrix


def refuse_empty_rows(matrix: Tensor) -> None:  # (C, C)
    if empty := torch.nonzero(matrix.sum(1) == 0).flatten().tolist():
        raise ConfMatIOError(
            f"confusion_matrix: row {empty[0]} is empty, so nothing is known of that class; "
            "leave the class out, or give a positive confusion_prior"
        )


def compute_confusion_matrix(
    y_true: Any,
    y_pred: Any,
    *,
    labels: Sequence | None = None,
    num_classes: int | None = None,
) -> Tensor:
    """Count the pairs of labels, which may be numbers or strings.

    Shapes: y_true: (N,); y_pred: (N,) -> (C, C) int64.

    The classes are `labels` in this order, or 0..num_classes-1, or all labels that occur, sorted.

    >>> compute_confusion_matrix(["cat", "dog", "dog"], ["cat", "cat", "dog"])  # rows are the truth
    tensor([[1, 0],
            [1, 1]])
    """
    cells, classes = label_cells(y_true, y_pred, labels=labels, num_classes=num_classes)
    C = len(classes)
    return torch.bincount(cells, minlength=C * C).view(C, C)


def label_cells(
    y_true: Any,  # (N,)
    y_pred: Any,  # (N,)
    *,
    labels: Sequence | None = None,
    num_classes: int | None = None,
) -> tuple[Tensor, np.ndarray]:  # (N,) int64, (C,)
    """Return the cell of the confusion matrix of each item, truth * C + prediction, and the C classes."""
    true, pred = _labels("y_true", y_true), _labels("y_pred", y_pred)
    try:
        return _cells_of_labels(true, pred, labels, num_classes)
    except TypeError:  # of a comparison
        kinds = sorted(
            {type(label).__name__ for values in (true, pred, labels or ()) for label in np.asarray(values).tolist()}
        )
        raise ValueError(f"y_true, y_pred, labels: got {' and '.join(kinds)}, wanted words or numbers alone") from None


def _cells_of_labels(
    true: np.ndarray, pred: np.ndarray, labels: Sequence | None, num_classes: int | None
) -> tuple[Tensor, np.ndarray]:
    if len(true) != len(pred):
        raise ValueError(f"lengths differ: y_true has {len(true)}, y_pred has {len(pred)}")
    if labels is not None and num_classes is not None:
        raise ValueError("labels, num_classes: got both, wanted one")
    if num_classes is not None:
        labels = np.arange(checks.check_int("num_classes", num_classes, 2))
    if labels is None:
        labels = np.union1d(true, pred)
        labels = labels[labels == labels]  # nan is no label
    labels = _labels("labels", labels)
    C, order = len(labels), np.argsort(labels, kind="stable")
    if len(np.unique(labels)) != C:
        raise ValueError(f"labels: got {labels.tolist()}, wanted distinct ones")
    indices = []
    for name, values in ("y_true", true), ("y_pred", pred):
        index = np.searchsorted(labels, values, sorter=order).clip(max=max(C - 1, 0)) if C else np.zeros(0, int)
        index = order[index] if C else index
        if len(unknown := values[labels[index] != values] if C else values):
            raise ValueError(f"{name}: got {unknown[0].item()!r}, which is none of the labels {labels.tolist()}")
        indices.append(index)
    return torch.from_numpy(indices[0] * C + indices[1]), labels


def checked_labels(labels: Any, num_classes: int) -> tuple[str, ...] | None:
    """Return the names of the classes as text, or None. ValueError unless there is one for each."""
    if labels is None:
        return None
    names = tuple(map(str, _labels("labels", labels).tolist()))
    if isinstance(labels, str) or len(names) != num_classes or len(set(names)) != num_classes:
        raise ValueError(f"labels: got {labels!r}, wanted {num_classes} distinct names")
    return names


def _labels(name: str, values: Any) -> np.ndarray:  # (N,)
    try:
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: got nested lists, wanted a one-dimensional list of labels") from None
    if array.ndim != 1:
        raise ValueError(f"{name}: got shape {array.shape}, wanted a one-dimensional list of labels")
    return array
