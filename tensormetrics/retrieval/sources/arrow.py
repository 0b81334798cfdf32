"""Rows in columns of Parquet and Arrow files, local or at an address that pyarrow opens."""

import fnmatch
import importlib
import os
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.text.files import check_regular, map_arrow, parsing
from .source import EmbeddingSource

BYTES = 2**23  # of rows decoded at once


def is_address(file: str) -> bool:
    return "://" in file


def import_arrow(module: str = "") -> Any:
    """Import pyarrow or one of its modules."""
    try:
        return importlib.import_module(f"pyarrow{module}")
    except ImportError as error:
        raise ImportError(f"{error}; install it with: pip install tensormetrics[parquet]") from error


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Convert errors of pyarrow, including missing files, to a ValueError that names the file."""
    import_arrow()
    try:
        with parsing(file, "a Parquet or Arrow file"):
            yield
    except OSError as error:
        raise ValueError(f"{file}: {error}") from error


def open_filesystem(file: str) -> tuple[Any, str]:
    """Return the file system of a file, and the path in it."""
    fs = import_arrow(".fs")
    if is_address(file):
        return fs.FileSystem.from_uri(file)
    check_regular(file, "a Parquet or Arrow file")
    return fs.LocalFileSystem(), os.path.abspath(file)


def matching_addresses(pattern: str) -> list[str]:
    """List the files of an address, in the order of their names; its last component may be a pattern."""
    folder, _, names = pattern.rpartition("/")
    if not any(mark in names for mark in "*?["):
        return [pattern]
    fs = import_arrow(".fs")
    with naming(pattern):
        system, path = fs.FileSystem.from_uri(folder)
        infos = system.get_file_info(fs.FileSelector(path))
    files = [info.base_name for info in infos if info.type == fs.FileType.File]
    return [f"{folder}/{name}" for name in sorted(files) if fnmatch.fnmatchcase(name, names)]


class TableRows(EmbeddingSource):
    """Base class of rows in a column of a file, in row groups that are decoded batch by batch."""

    gap = 4096  # groups are decoded from their first row
    schema: Any

    def __init__(self, file: str, name: str | None) -> None:
        self.file = file
        with naming(file):
            self.system, self.path = open_filesystem(file)
            self.groups = self.open_groups()
            self.column = self.choose(name)
            field = self.schema.field(self.column).type
        self.starts = [0, *accumulate(self.groups)]
        self._batches: Iterator[tuple[int, Any]] = iter(())
        self._held: tuple[int, Tensor] = 0, torch.empty(0, dtype=torch.float32, device="cpu")
        value = value_type(field)
        try:
            dtype = torch.from_numpy(np.empty(0, value.to_pandas_dtype())).dtype if value is not None else None
        except (TypeError, NotImplementedError):
            dtype = None
        if dtype is None:
            raise ValueError(f"{file}:{self.column}: got a column of {field}, wanted a list of D numbers in each row")
        super().__init__((self.starts[-1], getattr(field, "list_size", 0)), dtype)
        if not self.shape[1] and len(self):
            lengths = (len(row) for _, rows in self._decoded(0, 64) for row in rows.drop_null())
            self.shape = (len(self), next(lengths, 0))

    @abstractmethod
    def open_groups(self) -> list[int]:
        """Return the number of rows of each group; sets `schema`."""

    @abstractmethod
    def group(self, index: int, rows: int) -> Iterator[Any]:
        """Yield the column of a group in batches of at most `rows` rows."""

    def choose(self, name: str | None) -> str:
        lists = [field.name for field in self.schema if value_type(field.type) is not None]
        return select_name(self.file, name, self.schema.names, lists)

    def _decoded(self, group: int, rows: int) -> Iterator[tuple[int, Any]]:
        for index in range(group, len(self.groups)):
            first = self.starts[index]
            with naming(self.file):
                for column in self.group(index, rows):
                    yield first, column
                    first += len(column)

    def read(self, start: int, stop: int) -> Tensor:
        parts = [torch.empty(0, self.shape[1], dtype=self.dtype, device="cpu")]
        while start < stop:
            first, batch = self._held
            if not first <= start < first + len(batch):
                self._advance(start)
                first, batch = self._held
            parts.append(batch[start - first : stop - first])
            start += len(parts[-1])
        return torch.cat(parts)

    def _advance(self, row: int) -> None:
        """Decode the batch with this row; a later batch of the same group is reached sequentially."""
        first, batch = self._held
        group, after = bisect_right(self.starts, row) - 1, first + len(batch)
        held_group = bisect_right(self.starts, first) - 1
        if not len(batch) or row < after or (row > after and group != held_group):
            self._batches = self._decoded(group, max(BYTES // self.row_bytes, 1))
        for first, column in self._batches:
            if row < first + len(column):
                self._held = first, self._matrix(column, first)
                return
        raise ValueError(f"{self.file}: it ends before row {row}")

    def _matrix(self, column: Any, first: int) -> Tensor:
        values = column.flatten()
        if column.null_count or values.null_count:
            raise ValueError(f"{self.file}:{self.column}: got nothing in some of the rows from {first} on")
        if len(values) != len(column) * self.shape[1] or (column.value_lengths().to_numpy() != self.shape[1]).any():
            raise ValueError(
                f"{self.file}:{self.column}: got lists of other lengths in the rows from {first} on, wanted "
                f"{self.shape[1]} numbers in each"
            )
        return torch.from_numpy(np.array(values.to_numpy(zero_copy_only=False)).reshape(-1, self.shape[1]))

    def fingerprint(self) -> str:
        info = self.system.get_file_info(self.path)
        description = f"{os.path.basename(self.path)} of {info.size} bytes, written at {info.mtime_ns} ns"
        return f"{description}, column {self.column}, {tuple(self.shape)} rows of {self.dtype}"

    def __str__(self) -> str:
        return self.file


class ParquetRows(TableRows):
    def open_groups(self) -> list[int]:
        self.table = import_arrow(".parquet").ParquetFile(self.system.open_input_file(self.path), pre_buffer=False)
        self.schema = self.table.schema_arrow
        return [self.table.metadata.row_group(n).num_rows for n in range(self.table.num_row_groups)]

    def group(self, index: int, rows: int) -> Iterator[Any]:
        for batch in self.table.iter_batches(rows, row_groups=[index], columns=[self.column]):
            yield batch.column(0)


class ArrowRows(TableRows):
    def open_groups(self) -> list[int]:
        file = self.system.open_input_file(self.path) if is_address(self.file) else map_arrow(self.path)
        self.table = import_arrow(".ipc").open_file(file)
        self.schema = self.table.schema
        return [self.table.get_batch(n).num_rows for n in range(self.table.num_record_batches)]

    def group(self, index: int, rows: int) -> Iterator[Any]:
        column = self.table.get_batch(index).column(self.column)
        for start in range(0, len(column), rows):
            yield column.slice(start, rows)


TABLES: dict[str, type[TableRows]] = {".parquet": ParquetRows, ".arrow": ArrowRows, ".feather": ArrowRows}


def read_column(file: str, name: str | None) -> tuple[np.ndarray, list[str] | None]:
    # ->  (N,)
    """Read a column of integers, such as labels, or of strings, as codes and the list of distinct strings."""
    with naming(file):
        schema, read = _open_table(file)
        scalars = [field.name for field in schema if value_type(field.type) is None]
        name = select_name(file, name, schema.names, scalars)
        column, types = read(columns=[name]).column(name), import_arrow(".types")
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        raise ValueError(f"{file}:{name}: got nothing in {column.null_count} of its rows, wanted a label in each")
    if types.is_integer(column.type):
        try:
            return column.cast(import_arrow().int64()).to_numpy(), None
        except import_arrow().ArrowInvalid as error:
            raise ValueError(f"{file}:{name}: {error}; wanted integers that int64 can hold") from error
    if not (types.is_string(column.type) or types.is_large_string(column.type)):
        raise ValueError(f"{file}:{name}: got a column of {column.type}, wanted integers or words")
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def _open_table(file: str) -> tuple[Any, Any]:
    """Return the schema of a file, and a function that reads columns of it."""
    system, path = open_filesystem(file)
    if file.endswith(".parquet"):
        table = import_arrow(".parquet").ParquetFile(system.open_input_file(path))
        return table.schema_arrow, table.read
    reader = import_arrow(".ipc").open_file(system.open_input_file(path))
    return reader.schema, lambda columns: reader.read_all().select(columns)


def value_type(kind: Any) -> Any:
    """Return the type of the elements of a list column; None for other columns, such as categories."""
    return None if import_arrow(".types").is_dictionary(kind) else getattr(kind, "value_type", None)


def select_name(file: str, name: str | None, names: list[str], candidates: list[str]) -> str:
    """Return the requested name, or the only candidate; raise a ValueError if it is missing or ambiguous."""
    if not names:
        raise ValueError(f"{file}: it holds nothing, wanted rows or labels")
    if name is None and len(candidates) == 1:
        return candidates[0]
    if name is None or name not in names:
        got = "no name" if name is None else f"the name {name!r}"
        raise ValueError(f"{file}: got {got} for a file of {', '.join(names)}; write {file}:{(candidates or names)[0]}")
    return name
