"""Stored neighbors of an external index, with the interface of `TorchKNN`."""

import os

import numpy as np
import torch
from torch import Tensor

from ....core.arguments import checks
from ....core.arguments.checks import takes_arrays
from ....core.arguments.repr import ConstructorRepr
from ...inputs import check_self_index
from ...sources.files import open_embeddings
from ..backend import self_index_of_leading_queries
from ..distance import DISTANCES, DistanceName

CHUNK = 2**22  # indices that are checked at once

Lists = Tensor | np.ndarray | str | os.PathLike


class StoredKNN(ConstructorRepr):
    """Stored lists of nearest references that an index returned, such as a file of FAISS results.

    A list may hold the query itself, which is left out if a search declares that queries are references. A search has
    to pass all queries of the lists at once, in their order.

    Args:
        indices: ``(Q, K)`` integers, nearest first, -1 for none: a tensor, an array (memory-mapped, too) or a file
            that `open_embeddings` can open.
        distances: ``(Q, K)`` distances of these references, of the same types; by default distances are NaN.
        distance: Distance of the index, which an ``audit`` of `AccuracyCalculator` uses for its exact search.

    Raises:
        ValueError: If a list names a reference twice, or shapes differ.

    Example:
        >>> import numpy as np
        >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
        >>> np.save("lists.npy", [[0, 1, 4], [1, 0, 4], [2, 3, 4], [3, 2, 4], [4, 0, 1]])  # by an index
        >>> knn = StoredKNN("lists.npy")
        >>> calculator = AccuracyCalculator(include=("precision_at_1",), knn_func=knn, audit=5)
        >>> calculator.get_accuracy(x, labels)
        {'precision_at_1': 0.8}
        >>> calculator.audit_report()["recall"].value  # the last query has a nearer neighbor than its first
        tensor([0.8000], dtype=torch.float64)
    """

    def __init__(self, indices: Lists, distances: Lists | None = None, *, distance: DistanceName = "l2") -> None:
        checks.check_choice("distance", distance, DISTANCES)
        self.distance = distance
        self.indices = _read("indices", indices)
        checks.integral("indices", self.indices)
        self.distances = None if distances is None else _read("distances", distances)
        if self.distances is not None:
            checks.shape("distances", self.distances, *self.indices.shape)
        _refuse_repeated(self.indices)

    @takes_arrays
    @torch.no_grad()
    def __call__(
        self,
        query: Tensor,
        k: int,
        reference: Tensor,
        ref_includes_query: bool,
        *,
        self_index: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return stored distances and indices of the k nearest references; see `TorchKNN`.

        Shapes: query: (Q, D); reference: (R, D); self_index: (Q,) int64 -> (Q, k) floating, (Q, k) int64.
        """
        k = checks.check_int("k", k, 1)
        stored, width = self.indices.shape
        if len(query) != stored:
            raise ValueError(f"query: got {len(query)} rows, wanted the {stored} of the lists, all in one call")
        if k > width:
            raise ValueError(f"k: got {k}, wanted at most the {width} neighbors of a list; write k={width} or less")
        indices = self.indices.to(query.device, torch.int64).clamp(min=-1)
        distances = indices.new_full((), torch.nan, dtype=torch.float32).expand(indices.shape)
        if self.distances is not None:
            distances = self.distances.to(query.device)
        if stored and (highest := int(indices.max())) >= len(reference):
            raise ValueError(f"indices: got {highest}, wanted -1 to {len(reference) - 1}")
        if self_index is None and ref_includes_query:
            self_index = self_index_of_leading_queries(stored, len(reference), query.device)
        if self_index is None:
            return _as_floats(distances[:, :k]), indices[:, :k]
        is_self = indices == check_self_index(self_index, stored, len(reference))[:, None]
        is_self &= indices >= 0
        if k == width and bool(is_self.any()):
            raise ValueError(
                f"k: got {k}, and lists of {width} that hold the query itself, wanted at most {width - 1}; store one "
                "neighbor more"
            )
        order = is_self.byte().argsort(dim=1, stable=True)[:, :k]
        return _as_floats(distances.gather(1, order)), indices.gather(1, order)

    def _sizes(self) -> dict[str, int]:
        return {"queries": len(self.indices), "k": self.indices.shape[1]}


def _read(name: str, lists: Lists) -> Tensor:
    # ->  (Q, K)
    if isinstance(lists, str | os.PathLike):
        source = open_embeddings(lists)
        return source.read(0, len(source))
    lists = checks.array_as_tensor(lists)
    checks.shape(name, lists, "Q", "K")
    return lists


def _as_floats(distances: Tensor) -> Tensor:
    return distances if distances.is_floating_point() else distances.double()


def _refuse_repeated(indices: Tensor) -> None:
    rows = max(CHUNK // max(indices.shape[1], 1), 1)
    for start in range(0, len(indices), rows):
        ordered = indices[start : start + rows].sort(1).values
        is_repeated = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(1)
        if is_repeated.any():
            raise ValueError(f"indices: list {start + int(is_repeated.nonzero()[0])} holds a reference twice")
