"""Averages of normalized scores over documents, for `Family`."""

from collections.abc import Sequence
from typing import NamedTuple

from ..tensors.normalizers import Normalizer, parse_normalizers


class Reduction(NamedTuple):
    """Average of normalized scores; made by `micro_average` and `macro_average`."""

    average: str
    normalizers: tuple[Normalizer, ...]


def micro_average(normalizers: Sequence[str | Normalizer]) -> Reduction:
    """Make the reduction that sums overlaps over documents, then normalizes the sums.

    Args:
        normalizers: Names or normalizers, such as ``["precision", "f1"]``; others are a ValueError.

    Returns:
        The reduction, an argument of `Family`.

    Example:
        >>> from dataclasses import dataclass
        >>> @metametric(normalizer="f1")
        ... @dataclass
        ... class Bag:
        ...     items: list[str]
        >>> scores = Family(metric_of(Bag), micro_average(["f1"]))
        >>> scores.update([Bag(["a"]), Bag(["b"])], [Bag(["a", "c", "d"]), Bag(["b"])])
        >>> scores.compute()
        {'f1': tensor(0.6667, dtype=torch.float64)}
    """
    return Reduction("micro", parse_normalizers("normalizers", normalizers))


def macro_average(normalizers: Sequence[str | Normalizer]) -> Reduction:
    """Make the reduction that normalizes overlaps by document, then averages over documents where the score is defined.

    Args:
        normalizers: Names or normalizers, such as ``["precision", "f1"]``; others are a ValueError.

    Returns:
        The reduction, an argument of `Family`.

    Example:
        >>> from dataclasses import dataclass
        >>> @metametric(normalizer="f1")
        ... @dataclass
        ... class Bag:
        ...     items: list[str]
        >>> scores = Family(metric_of(Bag), macro_average(["f1"]))
        >>> scores.update([Bag(["a"]), Bag(["b"])], [Bag(["a", "c", "d"]), Bag(["b"])])
        >>> scores.compute()
        {'f1': tensor(0.7500, dtype=torch.float64)}
    """
    return Reduction("macro", parse_normalizers("normalizers", normalizers))
