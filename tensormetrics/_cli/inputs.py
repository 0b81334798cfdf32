"""Files into tensors. Nothing is unpickled; whatever is wrong is one line that names the file and the place."""

import csv
import io
import json
import logging
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..retrieval.sources.arrow import TABLES, read_column
from ..retrieval.sources.files import found_files, open_rows
from ..retrieval.sources.source import RowSource
from .options import BadInput

INT64 = torch.iinfo(torch.int64)
KINDS = {int: "an integer of at most 64 bits", str: "a word"}  # of labels
NUMBERS = {getattr(torch, name) for name in ("bool", "float16", "bfloat16", "float32", "float64")} | {
    getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)
}


@contextmanager
def naming(hints: Mapping[str, str] | None = None, /, **names: str | None) -> Iterator[None]:
    """Errors and warnings of the library name its arguments; the user knows files and options: `naming(query=path)`.
    Its hints are of Python; those of the command take their place."""

    def named(message: str) -> str:
        for hint, own in (hints or {}).items():
            message = message.replace(hint, own)
        for argument, name in names.items():
            _, found, rest = message.partition(f"{argument}: ")
            if name and found:
                return f"{name}: {rest}"
            if name and re.match(rf"{argument}\b", message):
                return name + message.removeprefix(argument)
        return message

    try:
        with warnings.catch_warnings(record=True) as told, _logged() as logged:
            yield
    except (ValueError, TypeError, RuntimeError, ImportError, MemoryError, NotImplementedError) as error:
        raise BadInput(named(_first_line(error))) from error
    for warning in told:
        warnings.warn(named(str(warning.message)), warning.category, stacklevel=2)
    for message in logged:
        warnings.warn(named(message), stacklevel=2)


@contextmanager
def _logged() -> Iterator[list[str]]:
    """The warnings that the domains log, which are told as other warnings are."""
    log, messages = logging.getLogger("tensormetrics"), []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler, passed_on = Handler(logging.WARNING), log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield messages
    finally:
        log.removeHandler(handler)
        log.propagate = passed_on


def _first_line(error: Exception) -> str:
    """What happened; torch goes on for pages about where."""
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        wanted = re.search(r"allocate (\d+ bytes|[\d.]+ \w+)", str(error))
        return f"there is not enough memory{f' for {wanted[1]}' if wanted else ''}; ask for less"
    return next(iter(str(error).splitlines()), type(error).__name__)


def existing(file: str | Path) -> Path:
    path = Path(file)
    if path.is_dir():
        raise BadInput(f"{file}: this is a folder, wanted a file")
    if not path.is_file():
        raise BadInput(f"{file}: there is no such file")
    if not os.access(path, os.R_OK):
        raise BadInput(f"{file}: this file may not be read")
    if not path.stat().st_size:
        raise BadInput(f"{file}: the file is empty")
    return path


def open_text(file: str | Path) -> io.StringIO:
    """The text of a file in UTF-8, whatever ends its lines."""
    data = existing(file).read_bytes()
    try:
        return io.StringIO(data.decode("utf-8-sig"), newline=None)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{file}, line {line}: got the byte {data[error.start]:#04x}, wanted text in UTF-8") from error


def read_tensor(location: str) -> Tensor:
    """The array in a file, memory-mapped where the format allows it; `file:name` picks one of several."""
    path, name = _split(location)
    if path.suffix not in READERS:
        raise BadInput(f"{path}: got a file of type {path.suffix!r}, wanted one of {', '.join(READERS)}")
    if name is not None and path.suffix not in NAMED:
        raise BadInput(f"{location}: a {path.suffix} file holds one array; leave out ':{name}'")
    tensor = READERS[path.suffix](path, name)
    if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in NUMBERS:
        kind = f"{tensor.layout} tensor" if tensor.layout != torch.strided else f"{tensor.device} {tensor.dtype} tensor"
        raise BadInput(f"{location}: got a {kind}, wanted a dense one of real numbers")
    if not tensor.numel():
        raise BadInput(f"{location}: got an array of shape {tuple(tensor.shape)}, wanted at least one row")
    return tensor.detach()


def _split(location: str) -> tuple[Path, str | None]:
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


@contextmanager
def _unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # whatever the bytes lead a reader to
        if any(word in str(error) for word in ("pickle", "Object arrays", "Python objects", "weights_only")):
            reason = "this is no plain array of numbers, and Python objects are not unpickled"
        elif isinstance(error, LookupError):  # of the reader's own tables
            reason = f"this is no {path.suffix} file, or it is damaged"
        else:
            reason = f"cannot be read as {path.suffix}: {_first_line(error)}"
        raise BadInput(f"{path}: {reason}") from error


def _from_numpy(path: Path, array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf":
        raise BadInput(f"{path}: got an array of {array.dtype}, wanted numbers")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # a mapped file; nobody writes
        return torch.from_numpy(array)


def _begins(path: Path, mark: bytes) -> None:
    """numpy would take anything else for a pickle."""
    with open(path, "rb") as file:
        if file.read(len(mark)) != mark:
            raise BadInput(f"{path}: this is no {path.suffix} file")


def _npy(path: Path, name: None) -> Tensor:
    _begins(path, b"\x93NUMPY")
    with _unreadable(path):
        return _from_numpy(path, np.load(path, mmap_mode="r", allow_pickle=False))


def _npz(path: Path, name: str | None) -> Tensor:
    with _unreadable(path):
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise BadInput(f"{path}: this is a .npy file; rename it")
        with arrays:
            return _from_numpy(path, _pick(path, name, arrays))


def _pt(path: Path, name: str | None) -> Tensor:
    with _unreadable(path):
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        found = _pick(path, name, found) if isinstance(found, dict) else found
        if not isinstance(found, Tensor):
            raise BadInput(f"{path}: got a {type(found).__name__}, wanted an array")
        return found


def _safetensors(path: Path, name: str | None) -> Tensor:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise BadInput(f"{path}: {error}; install it with: pip install safetensors") from error
    with _unreadable(path), safe_open(path, "pt") as file:
        return file.get_tensor(_pick(path, name, {key: key for key in file.keys()}))


class Table(NamedTuple):
    """A .csv file of numbers, with names where it has them: a first row of words, then also a first column of words."""

    columns: list[str] | None
    rows: list[str] | None
    values: Tensor  # (rows, columns) float64


def read_table(path: Path) -> Table:
    rows = csv_rows(path)
    begin, head = next(rows, (0, []))
    header = bool(head) and not any(map(is_number, head))
    line, first = next(rows, (begin, head))
    if len(first) != len(head):
        raise BadInput(f"{path}, line {line}: got {len(first)} columns, wanted {len(head)} as above")
    # pandas writes its index, numbers or not, under an empty name
    named = header and len(head) > 1 and (not head[0] or not is_number(first[0]))
    try:
        skip, columns = begin if header else 0, range(1, len(head)) if named else None
        values = np.loadtxt(
            path,
            comments=None,
            delimiter=",",
            skiprows=skip,
            usecols=columns,
            ndmin=2,
            encoding="utf-8-sig",
            quotechar='"',
        )
    except ValueError as error:
        raise BadInput(_first_fault(path, header, named) or f"{path}: {error}") from error
    fault = _first_fault(path, header, named) if named or not np.isfinite(values).all() else None
    if fault:
        raise BadInput(fault)
    names = [row[0] for _, row in csv_rows(path)][1:] if named else None
    return Table(head[named:] if header else None, names, torch.from_numpy(values))


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every row that is not blank."""
    reader = csv.reader(open_text(path), strict=True)
    try:
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: {error}") from error


def _first_fault(path: Path, header: bool, named: bool) -> str | None:
    rows = csv_rows(path)
    head = next(rows)[1] if header else []
    width = len(head)
    for line, row in rows:
        width = width or len(row)
        if len(row) != width:
            return f"{path}, line {line}: got {len(row)} columns, wanted {width} as above"
        if named and head[0] and is_number(row[0]):
            return f"{path}, line {line}: got {row[0]!r}, wanted a name as above"
        for cell in row[named:]:
            if not is_number(cell) or not np.isfinite(float(cell)):
                split = next((mark for mark in ";\t" if width == 1 and mark in cell), None)
                hint = f"; columns are separated by ',', not {split!r}" if split else ""
                return f"{path}, line {line}: got {cell!r}, wanted a finite number{hint}"
    return None


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _csv(path: Path, name: None) -> Tensor:
    return read_table(path).values


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number, value) of every line that is not blank."""
    for line, text in enumerate(open_text(path), 1):
        if text.strip():
            try:
                yield line, json.loads(text.rstrip(), parse_constant=_refuse)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"{path}, line {line}: this is no JSON: {json_fault(error)}") from error


def json_fault(error: Exception) -> str:
    return f"{error.msg} at character {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def _refuse(constant: str) -> None:
    raise ValueError(f"got {constant}, wanted a finite number")


def _jsonl(path: Path, name: None) -> Tensor:
    rows: list[list[float]] = []
    for line, row in json_lines(path):
        if not isinstance(row, list) or not all(isinstance(x, int | float) and not isinstance(x, bool) for x in row):
            raise BadInput(f"{path}, line {line}: wanted a list of numbers, got {json.dumps(row)[:60]}")
        if rows and len(row) != len(rows[0]):
            raise BadInput(f"{path}, line {line}: got {len(row)} numbers, wanted {len(rows[0])} as above")
        try:
            rows.append([float(number) for number in row])
        except OverflowError as error:
            raise BadInput(f"{path}, line {line}: {error}") from error
    return torch.tensor(rows, dtype=torch.float64)


def read_rows(location: str, in_blocks: bool = False) -> Tensor | RowSource:
    """An array of a file as `read_tensor` gives it; what is to be read `in_blocks`, several files or a table of rows as
    a source."""
    with naming():
        files = found_files(location)
        if in_blocks or len(files) > 1 or Path(files[0][0]).suffix in TABLES:
            return open_rows(location)
    return read_tensor(location)


Words = list[int] | list[str]


class Column(NamedTuple):
    """(N,) int64 labels, and if they are words these, sorted, which they number."""

    numbers: Tensor
    names: list[str] | None

    def at(self, rows: Tensor) -> "Column":
        return Column(self.numbers[rows], self.names)

    def given(self) -> Tensor | list[str]:
        """As the file has them."""
        return self.numbers if self.names is None else [self.names[number] for number in self.numbers.tolist()]


def read_labels(location: str) -> Column:
    columns = read_columns(
        location, wanted="one label per row: (N,); levels of labels, (N, L), are an option of retrieval", most=1
    )
    return columns[0]


def read_columns(location: str, wanted: str = "labels: (N, L)", most: int | None = None) -> list[Column]:
    """A column of labels for each level. Several files follow each other."""
    with naming():
        files = found_files(location)
    if len(files) == 1:
        return _columns_of(location, *files[0], wanted, most)
    parts = [_columns_of(f"{file}:{name}" if name else file, file, name, wanted, most) for file, name in files]
    if len({tuple(column.names is None for column in columns) for columns in parts}) > 1:
        raise BadInput(f"{location}: got columns of different kinds, wanted the same in each file")
    return [_in_turn(columns) for columns in zip(*parts, strict=True)]


def _in_turn(columns: Sequence[Column]) -> Column:
    """One column after the other; words are numbered anew."""
    if columns[0].names is None:
        return Column(torch.cat([column.numbers for column in columns]), None)
    names = sorted({word for column in columns for word in column.names or ()})
    number = {word: n for n, word in enumerate(names)}
    tables = ((torch.tensor([number[word] for word in column.names or ()]), column.numbers) for column in columns)
    return Column(torch.cat([table[numbers] for table, numbers in tables]), names)


def _columns_of(location: str, file: str, name: str | None, wanted: str, most: int | None) -> list[Column]:
    if Path(file).suffix in TABLES:
        with naming():
            numbers, words = read_column(file, name)
        column = Column(torch.from_numpy(np.array(numbers, dtype=np.int64)), words)
        return [column if words is None else _in_turn([column])]
    path, _ = _split(location)
    if path.suffix in TEXT_LABELS:
        return [_numbered(path, words) for words in TEXT_LABELS[path.suffix](path, most)]
    labels = read_tensor(location)
    if labels.is_floating_point():
        raise BadInput(f"{location}: got {labels.dtype}, wanted integer labels")
    if labels.dtype == torch.uint64 and (labels.view(torch.int64) < 0).any():
        raise BadInput(f"{location}: got a label above {INT64.max}, wanted {KINDS[int]}")
    columns = labels[:, None] if labels.ndim == 1 else labels
    if columns.ndim != 2 or columns.shape[1] > (most or columns.shape[1]):
        raise BadInput(f"{location}: got an array of shape {tuple(labels.shape)}, wanted {wanted}")
    return [Column(column.long(), None) for column in columns.unbind(1)]


def _numbered(path: Path, words: Words) -> Column:
    if not words:
        raise BadInput(f"{path}: got no label, wanted one per line")
    if isinstance(words[0], int):
        return Column(torch.tensor(words), None)
    names, numbers = np.unique(np.array(words), return_inverse=True)
    return Column(torch.from_numpy(numbers), names.tolist())


def _labels_of_lines(path: Path, most: int | None) -> list[Words]:
    """Words, unless all are numbers."""
    return [_whole(path, [(line, text.strip()) for line, text in enumerate(open_text(path), 1) if text.strip()])]


def _labels_of_table(path: Path, most: int | None) -> list[Words]:
    rows = list(csv_rows(path))
    width = len(rows[0][1]) if rows else 1
    for line, row in rows:
        if len(row) > (most or len(row)):
            raise BadInput(f"{path}, line {line}: got {len(row)} columns, wanted one label")
        if len(row) != width:
            raise BadInput(f"{path}, line {line}: got {len(row)} columns, wanted {width} as above")
    columns = [[(line, row[i].strip()) for line, row in rows] for i in range(width)]
    numbers = [[is_number(cell) for _, cell in column] for column in columns]
    header = len(rows) > 1 and all(not first and all(rest) for first, *rest in numbers)
    return [_whole(path, column[header:]) for column in columns]


def _whole(path: Path, cells: list[tuple[int, str]]) -> Words:
    if not all(is_number(cell) for _, cell in cells):
        return [cell for _, cell in cells]
    labels = []
    for line, cell in cells:
        number = float(cell)
        if not number.is_integer() or not INT64.min <= number < INT64.max:
            raise BadInput(f"{path}, line {line}: got {cell[:60]!r}, wanted {' or '.join(KINDS.values())}")
        labels.append(int(cell) if cell.lstrip("+-").isdecimal() else int(number))
    return labels


def _labels_of_json(path: Path, most: int | None) -> list[Words]:
    labels: list[Any] = []
    for line, label in json_lines(path):
        kinds = {type(labels[0]): KINDS[type(labels[0])]} if labels else KINDS
        if type(label) not in kinds or (type(label) is int and not INT64.min <= label <= INT64.max):
            raise BadInput(f"{path}, line {line}: got {json.dumps(label)[:60]}, wanted {' or '.join(kinds.values())}")
        labels.append(label)
    return [labels]


Reader = Callable[[Path, Any], Tensor]
NAMED: dict[str, Reader] = {".npz": _npz, ".pt": _pt, ".pth": _pt, ".safetensors": _safetensors}  # of several arrays
READERS: dict[str, Reader] = {".npy": _npy, **NAMED, ".csv": _csv, ".jsonl": _jsonl}
TEXT_LABELS = {".txt": _labels_of_lines, ".csv": _labels_of_table, ".jsonl": _labels_of_json}
