"""Files of rows, .npy, .safetensors, Parquet and Arrow, single or concatenated."""

import glob
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.text.files import map_array, open_safetensors, parsing, read_numbers
from .arrow import TABLES, is_address, matching_addresses, select_name
from .source import EmbeddingSource, JoinedSource

KINDS = (".npy", ".safetensors", *TABLES)


def open_embeddings(*addresses: str | os.PathLike) -> EmbeddingSource:
    """Open the rows of one or more files, concatenated, to be read in blocks.

    Formats are .npy of real numbers, .safetensors, .parquet, .arrow and .feather. Parquet and Arrow files require
    pyarrow (`pip install tensormetrics[parquet]`), which also opens addresses such as
    "s3://bucket/embeddings-*.parquet:column". Files must not change while they are read.

    Args:
        *addresses: Paths, or patterns, "embeddings-*.parquet", of files in the order of their names; with the name of
            one of several arrays or columns: "table.parquet:column", a column of lists of D numbers.

    Returns:
        The rows (N, D), in place of a tensor of references.

    Raises:
        ValueError: If a file does not exist, holds no rows of numbers, or differs in D or dtype.

        rows = open_embeddings("embeddings-*.npy")
        AccuracyCalculator(("precision_at_1",), k=10).get_accuracy(query, query_labels, rows, labels)

    >>> import numpy as np
    >>> for part in range(2):
    ...     np.save(f"embeddings-{part}.npy", np.eye(3, dtype=np.float32) + part)
    >>> open_embeddings("embeddings-*.npy").shape  # can be passed as references
    (6, 3)
    """
    if not addresses:
        raise ValueError("addresses: got none, wanted files of rows")
    sources = [open_file(file, name) for file, name in list_files(*addresses)]
    return sources[0] if len(sources) == 1 else JoinedSource(sources)


def list_files(*addresses: str | os.PathLike) -> list[tuple[str, str | None]]:
    """Return files with the name of the array or column to read; raise a ValueError if no file matches."""
    result = []
    for address in (os.fspath(address) for address in addresses):
        path, colon, name = address.rpartition(":")
        named = colon and "/" not in name and not os.path.exists(address)
        path, name = (path, name) if named else (address, "")
        if is_address(path):
            files = matching_addresses(path)
        elif os.path.exists(path) or not glob.has_magic(path):
            files = [path]
        else:
            files = sorted(glob.glob(path))
        if not files:
            raise ValueError(f"{address}: no file has such a name")
        result += [(file, name or None) for file in files]
    return result


def open_file(file: str, name: str | None) -> EmbeddingSource:
    kind = os.path.splitext(file)[1]
    if kind not in KINDS:
        raise ValueError(f"{file}: got a file of type {kind!r}, wanted one of {', '.join(KINDS)}")
    if is_address(file) and kind not in TABLES:
        raise ValueError(f"{file}: got an address, wanted a file of this machine, or one of {', '.join(TABLES)}")
    if not is_address(file) and (not os.path.exists(file) or os.path.isdir(file)):
        raise ValueError(f"{file}: there is no such file")
    if kind in TABLES:
        return TABLES[kind](file, name)
    if kind == ".safetensors":
        return SafetensorsRows(file, name)
    if name is not None:
        raise ValueError(f"{file}:{name}: a .npy file holds one array; leave out ':{name}'")
    return NpyRows(file)


class LocalRows(EmbeddingSource):
    """Base class of rows of a local file."""

    def __init__(self, file: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        if len(shape) != 2:
            raise ValueError(f"{file}: got an array of shape {tuple(shape)}, wanted one row per item: (N, D)")
        super().__init__((shape[0], shape[1]), dtype)
        self.file = file

    def fingerprint(self) -> str:
        stat = os.stat(self.file)
        description = f"{os.path.basename(self.file)} of {stat.st_size} bytes, written at {stat.st_mtime_ns} ns"
        return f"{description}, {super().fingerprint()}"

    def __str__(self) -> str:
        return self.file


class NpyRows(LocalRows):
    """Rows of a .npy file.

    Blocks of C-contiguous arrays are read, not mapped: a truncated file is then an error and does not end the process.
    """

    def __init__(self, file: str) -> None:
        self.array = map_array(file)
        kind = self.array.dtype
        if kind.kind not in "biuf" or (kind.kind == "f" and kind.itemsize > 8):
            raise ValueError(f"{file}: got an array of {kind}, wanted numbers of at most 64 bits")
        super().__init__(file, self.array.shape, torch.from_numpy(np.empty(0, kind.newbyteorder("="))).dtype)

    def read(self, start: int, stop: int) -> Tensor:
        array, count = self.array, (stop - start) * self.shape[1]
        if array.flags.c_contiguous:
            offset = array.offset + start * array.strides[0]
            block = read_numbers(self.file, array.dtype, count, offset)
            if len(block) < count:
                raise ValueError(f"{self.file}: it ends within row {start + len(block) // max(self.shape[1], 1)}")
            block = block.reshape(stop - start, self.shape[1])
        else:
            block = np.array(array[start:stop])
        return torch.from_numpy(block.astype(block.dtype.newbyteorder("="), copy=False))


class SafetensorsRows(LocalRows):
    """Rows of one tensor of a .safetensors file."""

    def __init__(self, file: str, name: str | None) -> None:
        file_slices = open_safetensors(file)
        names = list(file_slices.keys())
        self.slice: Any = file_slices.get_slice(select_name(file, name, names, names))
        shape = tuple(self.slice.get_shape())
        super().__init__(file, shape, self.slice[:0].dtype if shape else torch.float32)

    def read(self, start: int, stop: int) -> Tensor:
        with parsing(self.file, "a .safetensors file"):
            return self.slice[start:stop]
