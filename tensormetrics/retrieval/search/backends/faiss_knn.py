"""k nearest neighbors by faiss, with the interface of `TorchKNN`."""

import functools
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ....core.arguments import checks
from ....core.arguments.checks import takes_arrays
from ....core.arguments.repr import ConstructorRepr
from ....core.text.files import open_atomic, open_stream, parsing
from ...inputs import as_embeddings
from ..backend import CandidateOptions, check_with_full_mask, max_ignored, nearest_eligible, unit_rows
from ..distance import DISTANCES, DistanceName
from ..knn import TorchKNN

_LARGEST_GPU_K = 2048  # of faiss's selection kernels


class FaissKNN(ConstructorRepr):
    """k nearest neighbors by faiss: `knn(query, k, reference, ref_includes_query)`, or `train` and `knn(query, k)`.

    faiss orders by float32 values; equal distances among the returned are ordered by index. CUDA tensors are searched
    on their GPU. If faiss cannot (no GPU support in the package, more than 2,048 neighbors, GPU out of memory), a
    warning gives the reason and `TorchKNN` searches on the same device. float64 is cast to float32 with a warning.
    Johnson, Douze and Jegou, 2021, DOI 10.1109/TBDATA.2019.2921572.

    Args:
        reset_before: build a new index from the references of a call; False: add them to the index, which must be
            empty.
        reset_after: delete the index after a call.
        index_init_fn: function of D that returns an index for `distance`, or a faiss factory string; default "Flat".
        gpus: numbers of the GPUs to use, each for a part of the queries; default the GPU of the tensors.
        distance: "l2", "sqeuclidean", "ip" (inner product, largest first) or "cosine" (1 - cosine similarity).

    >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.3]])
    >>> distances, indices = FaissKNN()(x, 1, x, True)
    >>> indices
    tensor([[1],
            [0],
            [3],
            [2]])
    """

    def __init__(
        self,
        reset_before: bool = True,
        reset_after: bool = True,
        index_init_fn: Callable[[int], Any] | str | None = None,
        gpus: Sequence[int] | None = None,
        *,
        distance: DistanceName = "l2",
    ) -> None:
        checks.check_choice("distance", distance, DISTANCES)
        if gpus is not None and not isinstance(gpus, list | tuple):
            raise TypeError(f"gpus: got {gpus!r}, wanted a list or tuple of GPU numbers")
        if gpus is not None and not gpus:
            raise ValueError(f"gpus: got {gpus!r}, wanted at least one GPU number; None is the GPU of the tensors")
        _faiss()
        self.reset_before = reset_before
        self.reset_after = reset_after
        self.index_init_fn = index_init_fn or "Flat"
        self.gpus = gpus
        self.distance = distance
        self.reset()

    def _sizes(self) -> dict[str, int]:
        return {} if self.index is None else {"references": self.index.ntotal}

    @property
    def index(self) -> Any:
        """Index of faiss, None before the first rows. With several GPUs each has one with the same rows."""
        return self._indexes[0] if self._indexes else None

    @takes_arrays
    @torch.no_grad()
    def __call__(
        self,
        query: Tensor,
        k: int,
        reference: Tensor | None = None,
        ref_includes_query: bool = False,
        **candidates: Unpack[CandidateOptions],
    ) -> tuple[Tensor, Tensor]:
        """Return distances and indices of the k nearest references, nearest first, as `TorchKNN` returns them.

        Shapes: query: (Q, D); reference: (R, D); self_index: (Q,) int64; ignore: (Q, R) -> (Q, k) float32, (Q, k)
        int64.

        Without `reference` the rows in the index are searched, regardless of `reset_before`.
        """
        rows = self._rows(query, reference)
        query, k, rows, self_index, ignored = check_with_full_mask(query, k, rows, ref_includes_query, **candidates)
        num_candidates = max(min(k + max_ignored(ignored), len(rows)) + (self_index is not None), 1)
        reason = self._unable(query.device, num_candidates)
        if not reason:
            try:
                if reference is not None:
                    self._build("reference", rows)
                distances, indices = self._search(query, num_candidates, self_index, ignored, k)
            except RuntimeError as error:
                if "out of memory" not in str(error):
                    raise
                reason = "faiss ran out of GPU memory"
        if reason and reference is None:
            raise RuntimeError(f"{reason}; pass the references, for TorchKNN to search them")
        if reason:
            warnings.warn(f"{reason}: TorchKNN searches instead", stacklevel=3)
            self.reset()  # its memory may be needed
            distances, indices = TorchKNN(self.distance)(query, k, rows, False, self_index=self_index, ignore=ignored)
        if self.reset_after:
            self.reset()
        return distances, indices

    @takes_arrays
    @torch.no_grad()
    def train(self, embeddings: Tensor) -> None:
        """Build a new index of these rows, and train it if its type requires that.

        Shapes: embeddings: (N, D).
        """
        self._build("embeddings", as_embeddings("embeddings", embeddings))

    @takes_arrays
    @torch.no_grad()
    def add(self, embeddings: Tensor) -> None:
        """Append rows to the index; the first ones train it.

        Shapes: embeddings: (N, D).
        """
        if self.index is None:
            return self.train(embeddings)
        rows = as_embeddings("embeddings", embeddings)
        checks.shape("embeddings", rows, "N", self.index.d)
        self._append("embeddings", rows)

    def save(self, path: str | PathLike) -> None:
        """Write the index to a file that `load` reads."""
        if self.index is None:
            raise ValueError("save: got no index to write; train() first")
        faiss = _faiss()
        index = faiss.index_gpu_to_cpu(self.index) if _gpu(self.index) else self.index
        with open_atomic(path) as file:
            faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))

    def load(self, path: str | PathLike) -> None:
        """Load an index written by `save`, or by faiss for the same distance. It moves to a GPU when first used."""
        faiss = _faiss()
        with open_stream(path) as file, parsing(path, "an index of faiss"):
            index = faiss.read_index(faiss.PyCallbackIOReader(file.read))
        self._indexes = [self._checked(index)]

    def reset(self) -> None:
        """Delete the index."""
        self._indexes = []

    def _rows(self, query: Tensor, reference: Tensor | None) -> Tensor:
        # query: (Q, D)  reference: (R, D)  ->  (R, D), the rows to search
        held = 0 if self.index is None else self.index.ntotal
        if reference is None and not held:
            raise ValueError(
                "reference: got None while the index holds no rows; pass references, or train() or load(), with "
                "FaissKNN(reset_after=False) for several searches"
            )
        if reference is not None and held and not self.reset_before:
            raise ValueError(
                f"reference: got {len(reference)} rows while the index holds {held}; search these with "
                "reference=None, or reset() first"
            )
        # Only the shape of the rows in the index is needed; this tensor has it without the memory.
        return query.new_empty((), dtype=torch.float32).expand(held, self.index.d) if reference is None else reference

    def _build(self, name: str, rows: Tensor) -> None:
        # rows: (N, D)
        make = self.index_init_fn
        if isinstance(make, str):
            index = _faiss().index_factory(rows.shape[1], make, self._metric())
        else:
            index = make(rows.shape[1])
        self._indexes = [self._checked(index)]
        self._append(name, rows)

    def _append(self, name: str, rows: Tensor) -> None:
        # rows: (N, D)
        rows = self._prepared(name, rows)
        self._move_to_gpus(rows.device)
        for index in self._indexes:
            part = rows.to(_device(index))
            with torch.cuda.device_of(part):
                if not index.is_trained:
                    index.train(part)
                index.add(part)

    def _search(
        self, query: Tensor, num_candidates: int, self_index: Tensor | None, ignored: Tensor | None, k: int
    ) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  self_index: (Q,)  ignored: (Q, R)  ->  (Q, k) float32, (Q, k) int64
        query = self._prepared("query", query)
        self._move_to_gpus(query.device)
        results = []
        for index, part in zip(self._indexes, query.tensor_split(len(self._indexes)), strict=True):
            part = part.to(_device(index))
            with torch.cuda.device_of(part):
                results.append(index.search(part, num_candidates))
        values, indices = (torch.cat([part.to(query.device) for part in parts]) for parts in zip(*results, strict=True))
        distance = DISTANCES[self.distance]
        # faiss returns squares, computed by a matrix product
        delta = values.clamp(min=0) if distance.euclidean else distance.of_product(values)
        delta, indices = nearest_eligible(delta, indices, k, self_index, ignored)
        return distance.from_canonical(delta), indices

    def _prepared(self, name: str, rows: Tensor) -> Tensor:
        # rows: (N, D)  ->  (N, D) float32, contiguous
        if rows.dtype == torch.float64:
            warnings.warn(f"{name}: got torch.float64, which faiss searches as float32", stacklevel=5)
        rows = rows.float().contiguous()
        return unit_rows(rows) if DISTANCES[self.distance].unit else rows

    def _move_to_gpus(self, device: torch.device) -> None:
        """Move an index from the host to the GPUs that search tensors on `device`."""
        if reason := self._unable(device, 1):
            raise RuntimeError(f"{reason}; move the tensors with .cpu(), or use TorchKNN")
        gpus = self.gpus or ([device.index] if device.type == "cuda" else [])
        if gpus and not _gpu(self.index):
            self._indexes = [_to_gpu(self.index, gpu) for gpu in gpus]

    def _unable(self, device: torch.device, k: int) -> str | None:
        """Return why faiss cannot find k neighbors of tensors on `device`, None if it can."""
        kind = "cuda" if self.gpus else device.type
        if kind == "cpu":
            return None
        if kind != "cuda" or not hasattr(_faiss(), "StandardGpuResources"):
            return f"the installed faiss does not support {kind}"
        return f"faiss finds at most {_LARGEST_GPU_K} neighbors on a GPU, not {k}" if k > _LARGEST_GPU_K else None

    def _metric(self) -> int:
        faiss = _faiss()
        return faiss.METRIC_L2 if DISTANCES[self.distance].euclidean else faiss.METRIC_INNER_PRODUCT

    def _checked(self, index: Any) -> Any:
        if index.metric_type != self._metric():
            raise ValueError(
                f"index: got one of faiss metric {index.metric_type}, wanted {self._metric()} for "
                f"distance={self.distance!r}; pass the distance that the index has"
            )
        return index


def _faiss() -> ModuleType:
    try:
        import faiss
        import faiss.contrib.torch_utils  # makes faiss accept tensors, without copies
    except ModuleNotFoundError as error:
        raise ImportError(
            "FaissKNN needs faiss: pip install faiss-cpu, or the official faiss-gpu (CUDA 12); "
            "tensormetrics[faiss] installs faiss-cpu"
        ) from error
    return faiss


@functools.cache
def _resources(gpu: int) -> Any:
    return _faiss().StandardGpuResources()


def _gpu(index: Any) -> bool:
    return hasattr(index, "getDevice")


def _device(index: Any) -> torch.device:
    return torch.device("cuda", index.getDevice()) if _gpu(index) else torch.device("cpu")


def _to_gpu(index: Any, gpu: int) -> Any:
    faiss = _faiss()
    with torch.cuda.device(gpu), faiss.contrib.torch_utils.using_stream(_resources(gpu)):
        return faiss.index_cpu_to_gpu(_resources(gpu), gpu, index)
