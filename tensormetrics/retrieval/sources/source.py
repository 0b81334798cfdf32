"""Sources of rows: embeddings that are read in blocks."""

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor


class EmbeddingSource(ABC):
    """Rows (N, D) that are read in blocks, so that they may be far larger than the memory.

    `open_embeddings` opens files. A user-defined subclass sets `shape` and `dtype` and implements `read`; it is called
    by one thread at a time, in order if possible:

    >>> class Generated(EmbeddingSource):
    ...     def __init__(self):
    ...         super().__init__((10**9, 2), torch.float32)
    ...
    ...     def read(self, start, stop):
    ...         return torch.arange(start, stop)[:, None].float().expand(-1, 2)
    >>> Generated().read(5, 7)
    tensor([[5., 5.],
            [6., 6.]])
    """

    gap = 16  # number of rows up to which reading is cheaper than skipping

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self.shape, self.dtype = shape, dtype

    @abstractmethod
    def read(self, start: int, stop: int) -> Tensor:
        # ->  (stop - start, D)
        """Read the rows start, ..., stop - 1."""

    def fingerprint(self) -> str:
        """Return text that identifies the rows: shape, dtype and sampled content; name, size and time of files."""
        digest = hashlib.blake2b(digest_size=16)
        for row in range(0, len(self), max(len(self) // 64, 1)):
            digest.update(self.read(row, row + 1).contiguous().view(torch.uint8).numpy().tobytes())
        return f"{tuple(self.shape)} rows of {self.dtype} with content {digest.hexdigest()}"

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={tuple(self.shape)}, dtype={self.dtype})"

    @property
    def row_bytes(self) -> int:
        return max(self.shape[1] * self.dtype.itemsize, 1)

    def blocks(self, rows: int, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Tensor]]:
        # ->  first row, (n, D), n <= rows
        """Yield the blocks of the rows start, ..., stop - 1; the next block is read while the current one is used."""
        stop = len(self) if stop is None else stop
        ranges = [(first, min(first + rows, stop)) for first in range(start, stop, rows)]
        with ThreadPoolExecutor(1, "rows") as reader:
            pending = [reader.submit(self.read, *bounds) for bounds in ranges[:1]]
            for i, (first, _) in enumerate(ranges):
                block = pending.pop().result()
                pending += [reader.submit(self.read, *bounds) for bounds in ranges[i + 1 : i + 2]]
                yield first, block

    def take(self, rows: Tensor) -> Tensor:
        """Read a subset of the rows; gaps between nearby rows are read too.

        Shapes: rows: (n,) int64 ascending, at least one -> (n, D).
        """
        edge = (rows.diff() > self.gap).nonzero()[:, 0] + 1
        runs = rows.tensor_split(edge.cpu())
        return torch.cat([self.read(int(run[0]), int(run[-1]) + 1)[run - run[0]] for run in runs])


class ArrayRows(EmbeddingSource):
    """Rows of an array, such as a memory-mapped one."""

    def __init__(self, array: np.ndarray) -> None:
        kind = torch.from_numpy(np.empty(0, array.dtype.newbyteorder("="))).dtype
        super().__init__((array.shape[0], array.shape[1]), kind)
        self.array = array

    def read(self, start: int, stop: int) -> Tensor:
        block = np.array(self.array[start:stop])
        return torch.from_numpy(block.astype(block.dtype.newbyteorder("="), copy=False))


class JoinedSource(EmbeddingSource):
    """Concatenation of several sources."""

    def __init__(self, sources: Sequence[EmbeddingSource]) -> None:
        # A table without rows does not define the length of its lists.
        sources = [source for source in sources if len(source)] or sources[:1]
        first = sources[0]
        for source in sources:
            if source.shape[1] != first.shape[1] or source.dtype != first.dtype:
                raise ValueError(
                    f"{source}: got rows of {source.shape[1]} {source.dtype} after rows of {first.shape[1]} "
                    f"{first.dtype} in {first}, wanted one kind"
                )
        self.sources, self.gap = sources, max(source.gap for source in sources)
        self.starts = [0, *accumulate(map(len, sources))]
        super().__init__((self.starts[-1], first.shape[1]), first.dtype)

    def read(self, start: int, stop: int) -> Tensor:
        parts = [torch.empty(0, self.shape[1], dtype=self.dtype, device="cpu")]
        i = bisect_right(self.starts, start) - 1
        while start < stop:
            end = min(stop, self.starts[i + 1])
            if start < end:
                parts.append(self.sources[i].read(start - self.starts[i], end - self.starts[i]))
            start, i = end, i + 1
        return torch.cat(parts) if len(parts) != 2 else parts[1]

    def fingerprint(self) -> str:
        return "; ".join(source.fingerprint() for source in self.sources)
