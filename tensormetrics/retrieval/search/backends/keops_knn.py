"""k nearest neighbors by KeOps, with the interface of `TorchKNN`."""

import torch
from torch import Tensor
from typing_extensions import Unpack

from ....core.arguments import checks
from ....core.arguments.checks import takes_arrays
from ....core.arguments.repr import ConstructorRepr
from ..backend import CandidateOptions, check_with_full_mask, max_ignored, nearest_eligible, unit_rows
from ..distance import DISTANCES, DistanceName


class KeOpsKNN(ConstructorRepr):
    """k nearest neighbors by a compiled reduction of KeOps: `knn(query, k, reference, ref_includes_query)`.

    Fast for few dimensions, below about 64. Compiles once per number of dimensions and k, so k is rounded up to 1, 2,
    5, 10, 20, 50, ... and the result truncated. Distances are compared in the input's dtype; equal ones among the
    returned are ordered by index. Charlier et al., JMLR 22(74), 2021.

    Args:
        distance: "l2", "sqeuclidean", "ip" (inner product, largest first) or "cosine" (1 - cosine similarity).

    >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.3]])
    >>> distances, indices = KeOpsKNN()(x, 1, x, True)  # doctest: +SKIP
    """

    def __init__(self, distance: DistanceName = "l2") -> None:
        checks.check_choice("distance", distance, DISTANCES)
        _lazy_tensor()
        self.distance = distance

    @takes_arrays
    @torch.no_grad()
    def __call__(
        self,
        query: Tensor,
        k: int,
        reference: Tensor,
        ref_includes_query: bool,
        **candidates: Unpack[CandidateOptions],
    ) -> tuple[Tensor, Tensor]:
        """Return distances and indices of the k nearest references, nearest first; see `TorchKNN`.

        Shapes: query: (Q, D); reference: (R, D); self_index: (Q,) int64; ignore: (Q, R) -> (Q, k) floating, (Q, k)
        int64.
        """
        query, k, reference, self_index, ignored = check_with_full_mask(
            query, k, reference, ref_includes_query, **candidates
        )
        dtype = torch.promote_types(torch.promote_types(query.dtype, reference.dtype), torch.float32)
        delta = torch.empty(len(query), 0, dtype=dtype, device=query.device)
        indices = torch.empty(len(query), 0, dtype=torch.int64, device=query.device)
        if len(query) and len(reference):
            # KeOps keeps indices in the dtype of the values.
            num_candidates = k + (self_index is not None) + max_ignored(ignored)
            exact = torch.float64 if len(reference) > 2**24 else dtype
            delta, indices = self._search(query.to(exact), reference.to(exact), _rounded(num_candidates))
        delta, indices = nearest_eligible(delta.to(dtype), indices, k, self_index, ignored)
        return DISTANCES[self.distance].from_canonical(delta), indices

    def _search(self, query: Tensor, reference: Tensor, k: int) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  reference: (R, D)  ->  (Q, k), (Q, k) int64, -1 where there are fewer references
        lazy, distance = _lazy_tensor(), DISTANCES[self.distance]
        if distance.unit:
            query, reference = unit_rows(query), unit_rows(reference)
        query, reference = lazy(query.contiguous()[:, None]), lazy(reference.contiguous()[None])
        values = ((query - reference) ** 2).sum(-1) if distance.euclidean else -(query | reference)
        delta, indices = values.Kmin_argKmin(k, dim=1)
        indices = torch.where(delta == torch.inf, -1, indices)
        return delta if distance.euclidean else distance.of_product(-delta), indices


def _rounded(k: int) -> int:
    """Round k up to 1, 2 or 5 times a power of ten."""
    power = 10 ** (len(str(k)) - 1)
    return next(step * power for step in (1, 2, 5, 10) if k <= step * power)


def _lazy_tensor() -> type:
    try:
        from pykeops.torch import LazyTensor
    except ModuleNotFoundError as error:
        raise ImportError("KeOpsKNN needs pykeops: pip install tensormetrics[keops]") from error
    return LazyTensor
