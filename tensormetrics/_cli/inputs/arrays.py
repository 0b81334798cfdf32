"""Readers of arrays. Nothing is unpickled; every error is one line that names the file and the position."""

import io
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.text.files import Npz, file_suffix, load_tensors, map_array, open_safetensors, parsing, read_text
from ...core.text.tables import is_number, read_cells, with_points
from ...retrieval.sources.arrow import TABLES
from ...retrieval.sources.files import list_files, open_embeddings
from ...retrieval.sources.source import EmbeddingSource
from ..option_types import BadInput
from .text import existing, json_lines

NUMBERS = {getattr(torch, name) for name in ("bool", "float16", "bfloat16", "float32", "float64")} | {
    getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def read_tensor(location: str) -> Tensor:
    """Read the array in a file, memory-mapped if the format allows it; `file:name` selects one of several."""
    path, name = split_location(location)
    kind = file_suffix(path)
    if kind not in READERS:
        raise BadInput(f"{path}: got a file of type {kind!r}, wanted one of {', '.join(READERS)}")
    if name is not None and kind not in NAMED:
        raise BadInput(f"{location}: a {kind} file holds one array; leave out ':{name}'")
    tensor = READERS[kind](path, name)
    if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in NUMBERS:
        kind = f"{tensor.layout} tensor" if tensor.layout != torch.strided else f"{tensor.device} {tensor.dtype} tensor"
        raise BadInput(f"{location}: got a {kind}, wanted a dense one of real numbers")
    if not tensor.numel():
        raise BadInput(f"{location}: got an array of shape {tuple(tensor.shape)}, wanted at least one row")
    return tensor.detach()


def split_location(location: str) -> tuple[Path, str | None]:
    path, colon, name = location.rpartition(":")
    if colon and not Path(location).exists():
        return existing(path), name
    return existing(location), None


def _pick(path: Path, name: str | None, arrays: Any) -> Any:
    names = list(arrays)
    if not names:
        raise BadInput(f"{path}: it holds no array")
    if name is None and len(names) == 1:
        (name,) = names
    if name not in names:
        got = "no name" if name is None else f"the name {name!r}"
        raise BadInput(f"{path}: got {got} for a file of {', '.join(map(str, names))}; write {path}:{names[0]}")
    return arrays[name]


def _from_numpy(path: Path, array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf":
        raise BadInput(f"{path}: got an array of {array.dtype}, wanted numbers")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # a mapped file, only read
        return torch.from_numpy(array)


def _pt(path: Path, name: str | None) -> Tensor:
    content = load_tensors(path, is_mapped=True)
    content = _pick(path, name, content) if isinstance(content, dict) else content
    if not isinstance(content, Tensor):
        raise BadInput(f"{path}: got a {type(content).__name__}, wanted an array")
    return content


def _safetensors(path: Path, name: str | None) -> Tensor:
    with open_safetensors(path) as file:
        key = _pick(path, name, {key: key for key in file.keys()})
        with parsing(path, "a .safetensors file"):
            return file.get_tensor(key)


def _csv(path: Path, name: None) -> Tensor:
    # ->  (rows, columns) float64, without names of columns and, below a header, of rows
    text = read_text(path)
    delimiter, table = read_cells(text, path)
    rows = [*islice(table, 2)]
    (first, head), *_, (_, below) = [*rows, *rows] or [(1, ("",))] * 2
    has_header = not any(is_number(cell.replace(",", ".")) for cell in head)
    # pandas writes its index, numbers or not, under an empty name
    if len(rows) <= has_header:
        raise BadInput(f"{path}: got no numbers, wanted at least one row")
    has_names = has_header and len(head) > 1 and (not head[0] or not is_number(below[0]))
    if not has_names:
        with suppress(ValueError):
            skip = first if has_header else first - 1
            lines = io.StringIO(text, newline=None)
            values = np.loadtxt(lines, comments=None, delimiter=delimiter, skiprows=skip, ndmin=2, quotechar='"')
            if np.isfinite(values).all():
                return torch.from_numpy(values)
    rows += table
    for line, row in rows:
        if has_names and head[0] and row is not head and is_number(row[0]):
            raise BadInput(f"{path}, line {line}: got {row[0]!r}, wanted a name as above")
    width = len(head) - has_names
    cells = [cell for _, row in rows[has_header:] for cell in row[has_names:]]

    def place(index: int) -> str:
        return f"{path}, line {rows[has_header + index // width][0]}"

    cells = with_points(cells, delimiter, place)
    numbers: list[float] = []
    with suppress(ValueError):
        numbers.extend(map(float, cells))  # up to one that is none
    is_finite = np.isfinite(numbers)
    bad = len(numbers) if is_finite.all() else int(is_finite.argmin())
    if bad < len(cells) or "_" in "".join(cells):
        bad = min(bad, next((i for i, cell in enumerate(cells) if "_" in cell), bad))
        raise BadInput(f"{place(bad)}: got {cells[bad]!r}, wanted a finite number")
    return torch.tensor(numbers, dtype=torch.float64).view(-1, width)


def _jsonl(path: Path, name: None) -> Tensor:
    rows: list[list[float]] = []
    for line, row in json_lines(path):
        if not isinstance(row, list) or not all(isinstance(x, int | float) and not isinstance(x, bool) for x in row):
            raise BadInput(f"{path}, line {line}: wanted a list of numbers, got {json.dumps(row)[:60]}")
        if rows and len(row) != len(rows[0]):
            raise BadInput(f"{path}, line {line}: got {len(row)} numbers, wanted {len(rows[0])} as above")
        try:
            rows.append([float(value) for value in row])
        except OverflowError as error:
            raise BadInput(f"{path}, line {line}: {error}") from error
    return torch.tensor(rows, dtype=torch.float64)


def read_rows(location: str, in_blocks: bool = False) -> Tensor | EmbeddingSource:
    """Read embeddings: a tensor of one file of arrays, or a source for tables, several files and `in_blocks`."""
    files = list_files(location)
    is_source = in_blocks or len(files) > 1 or Path(files[0][0]).suffix in TABLES
    return open_embeddings(location) if is_source else read_tensor(location)


Reader = Callable[[Path, Any], Tensor]
NAMED: dict[str, Reader] = {  # of several arrays
    ".npz": lambda path, name: _from_numpy(path, _pick(path, name, Npz(path))),
    ".pt": _pt,
    ".pth": _pt,
    ".safetensors": _safetensors,
}
READERS: dict[str, Reader] = {
    ".npy": lambda path, name: _from_numpy(path, map_array(path)),
    **NAMED,
    ".csv": _csv,
    ".jsonl": _jsonl,
}
