"""Least-squares concept erasure (LEACE), from sums over batches of rows."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from ..metrics._linear_probe import check_rows
from . import base
from .base import GroupDebias

ROWS = 4096  # rows at a time, and per float32 sum of products
BLOCK = 128  # columns of the covariance matrix at a time
MIN_FLOAT32_ROWS = 4  # per dimension; fewer rows are multiplied in float64, which is fast enough


class LEACE(GroupDebias):
    """Least-squares concept erasure: the smallest affine change after which no linear classifier beats a constant.

    x becomes x - W^+ U U' W (x - mean), where W = S^(-1/2) whitens the rows, S is their covariance matrix, and the
    columns of U are an orthonormal basis of the whitened differences between the means of the classes. Afterwards the
    classes have equal means: the covariance of rows and labels is 0, which is equivalent to linear guardedness, and no
    other affine map with that property changes the rows less. Every row is changed by the same map, so a table computed
    on demand, another model of the same space, or a batch can be transformed.

    Fit it to many more rows than dimensions: with fewer rows the classes are separable by noise, and their difference
    is removed from these rows only. `ResidualBias` measures what a nonlinear classifier still recovers.

    Shape:
        - fit_tensors: vectors ``(..., N, D)``, labels ``(N,)`` or ``(..., N)``, integer
        - forward: ``(..., N, D)`` to ``(..., N, D)``, float64

    Example:
        >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
        >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
        >>> fair = LEACE().fit(model, groups=[["he", "him"], ["she", "her"]]).transform(model)
        >>> fair["he"] + fair["him"], fair["she"] + fair["her"]
        (array([3.5, 3.5], dtype=float32), array([3.5, 3.5], dtype=float32))

    References:
        Belrose et al. 2023, arXiv:2306.03819
    """

    fitted = ("mean", "proj_left", "proj_right")

    def fit_tensors(self, vectors: Tensor, labels: Tensor) -> "LEACE":
        # vectors: (..., N, D)  labels: (N,) or (..., N), the classes, any integers
        classes = base.class_indices(labels, vectors)
        return self.fit_batches([(vectors, classes)])

    @torch.no_grad()
    def fit_batches(self, batches: Iterable[tuple[Tensor, Tensor]]) -> "LEACE":
        """Fit the map to batches of rows; only sums are stored.

        Args:
            batches: Pairs of vectors ``(..., N, D)`` and labels ``(N,)`` or ``(..., N)``, which are integers >= 0; a
                generator over a DataLoader, for instance.

        Returns:
            The fitted method itself.

        Raises:
            ValueError: If there are no batches or fewer than two classes, a label is negative, a vector is not finite,
                or shapes differ.
        """
        moments: Moments | None = None
        for vectors, labels in batches:
            check_rows(vectors, labels)
            if labels.numel() and int(labels.min()) < 0:
                raise ValueError(f"labels: got {int(labels.min())}, wanted integers >= 0")
            if moments is None:
                moments = Moments(vectors)
            moments.add(vectors, labels)
        if moments is None:
            raise ValueError("batches: got none, wanted at least one pair of vectors and labels")
        if (classes := moments.num_classes()) < 2:
            raise ValueError(f"labels: got {classes} classes, wanted at least two")
        base.check_finite_rows(moments.sums, moments.products)
        self.words = {}
        self.mean, self.proj_left, self.proj_right = moments.projection()
        return self

    def forward(self, vectors: Tensor) -> Tensor:
        """Erase the concept.

        Shapes: vectors: (..., N, D) -> (..., N, D) float64.
        """
        vectors = self.read("vectors", vectors, "N")
        return vectors - (vectors - self.mean.unsqueeze(-2)) @ self.proj_right.mT @ self.proj_left.mT


class Moments:
    """Counts, sums and products of rows, relative to the mean of the first rows."""

    def __init__(self, vectors: Tensor) -> None:
        # vectors: (..., N, D), the first batch
        *batch_shape, _, dims = vectors.shape
        precise = vectors.dtype if vectors.dtype == torch.float64 else torch.float32
        # In the precision of the rows, so that differences from it are exact.
        self.shift = vectors[..., :ROWS, :].double().mean(-2, keepdim=True).nan_to_num(0).to(precise)
        self.counts = torch.zeros(*batch_shape, 0, dtype=torch.float64, device=vectors.device)
        self.sums = self.counts.new_zeros(*batch_shape, 0, dims)
        self.products = self.counts.new_zeros(*batch_shape, dims, dims)  # blocks below the diagonal are not read
        self.resolution = (
            dims * torch.finfo(torch.float64).eps
        )  # smaller variances, relative to the largest, are rounding errors

    def add(self, vectors: Tensor, labels: Tensor) -> None:
        # vectors: (..., N, D)  labels: (N,) or (..., N), >= 0
        if vectors.shape[:-2] != self.shift.shape[:-2] or vectors.shape[-1] != self.shift.shape[-1]:
            *batch_shape, _, dims = self.shift.shape
            expected = ", ".join(map(str, [*batch_shape, "N", dims]))
            raise ValueError(f"vectors: got shape {tuple(vectors.shape)}, wanted ({expected}) as in the first batch")
        if not vectors.shape[-2]:
            return
        classes = max(self.counts.shape[-1], int(labels.max()) + 1)
        new = classes - self.counts.shape[-1]
        self.counts, self.sums = pad(self.counts, (0, new)), pad(self.sums, (0, 0, 0, new))
        is_small = vectors.shape[-2] < MIN_FLOAT32_ROWS * vectors.shape[-1]
        dtype = torch.float64 if is_small or vectors.dtype == torch.float64 else torch.float32
        if dtype == torch.float32:  # its rounding errors average out over the rows
            self.resolution = max(self.resolution, torch.finfo(dtype).eps)
        for part, part_labels in zip(vectors.split(ROWS, -2), labels.split(ROWS, -1), strict=True):
            members = one_hot(part_labels.long(), classes).to(torch.float64)
            rows = part.to(dtype) - self.shift
            self.counts += members.sum(-2)
            self.sums += members.mT @ rows.double()
            for start in range(0, rows.shape[-1], BLOCK):
                block = rows[..., start : start + BLOCK].mT @ rows[..., start:]
                self.products[..., start : start + BLOCK, start:] += block

    def num_classes(self) -> int:
        return int((self.counts.sum_to_size(self.counts.shape[-1]) > 0).sum())

    def projection(self) -> tuple[Tensor, Tensor, Tensor]:
        # ->  mean (..., D), left (..., D, r), right (..., r, D), whose product is the oblique projection
        total = self.counts.sum(-1)
        mean = self.sums.sum(-2) / total.unsqueeze(-1)
        upper = self.products.triu()
        covariance = (upper + upper.triu(1).mT) / total[..., None, None] - mean.unsqueeze(-1) * mean.unsqueeze(-2)
        # The means of all classes except one span all differences; means of absent classes are 0.
        between = (self.sums / self.counts.clamp(min=1).unsqueeze(-1) - mean.unsqueeze(-2))[..., :-1, :]
        between = between.where(self.counts[..., :-1, None] > 0, 0)
        variances, axes = torch.linalg.eigh(covariance)
        varies = variances > variances[..., -1:] * self.resolution
        scales = torch.where(varies, variances, torch.inf).rsqrt()  # 0 for constant directions
        whitened = between @ axes * scales.unsqueeze(-2)
        left, singular, right = torch.linalg.svd(whitened, full_matrices=False)
        inverse = torch.where(singular > singular[..., :1] * self.resolution, singular, torch.inf).reciprocal()
        # The left columns are combinations of the class means, not rotated back from the whitened space, so that
        # differences of means are removed exactly whatever the error of the covariance matrix.
        proj_left = between.mT @ left * inverse.unsqueeze(-2)
        proj_right = right * scales.unsqueeze(-2) @ axes.mT
        return mean + self.shift.squeeze(-2).double(), proj_left, proj_right
