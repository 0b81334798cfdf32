"""Files into tensors. Nothing is unpickled; whatever is wrong is one line that names the file and the place."""

import csv
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor


class BadInput(click.ClickException):
    """Ends the command with status 2 and one line."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"tensormetrics: {self.message}", file=file, err=True)


@contextmanager
def naming(**files: str | None) -> Iterator[None]:
    """Errors of the library name arguments; the user knows files. `naming(query=path)` tells them apart."""
    try:
        yield
    except (ValueError, TypeError, NotImplementedError) as error:
        message = str(error)
        for argument, file in files.items():
            if file and message.startswith((f"{argument}:", f"{argument} ")):
                message = file + message.removeprefix(argument)
                break
        raise BadInput(message.replace("\n", " ")) from error


def read_tensor(location: str) -> Tensor:
    """The array in a file, memory-mapped where the format allows it; `file:name` picks one of several."""
    path, name = _split(location)
    if path.suffix not in READERS:
        raise BadInput(f"{path}: got a file of type {path.suffix!r}, wanted one of {', '.join(READERS)}")
    tensor = READERS[path.suffix](path, name)
    if not tensor.numel():
        raise BadInput(f"{location}: got an array of shape {tuple(tensor.shape)}, wanted at least one row")
    return tensor


def read_labels(location: str) -> tuple[Tensor, list[str] | None]:
    """(N,) int64 labels, and the classes they number if they are words, sorted: one per line or per cell of a csv."""
    path, _ = _split(location)
    if path.suffix in (".txt", ".csv", ".jsonl"):
        labels = [label for line, label in _text_labels(path)]
        if not labels:
            raise BadInput(f"{path}: got no label, wanted one per line")
        array = np.array(labels)
        if array.dtype.kind in "iu":
            return torch.from_numpy(array.astype(np.int64)), None
        classes, numbers = np.unique(array.astype(str), return_inverse=True)
        return torch.from_numpy(numbers.astype(np.int64)), classes.tolist()
    labels = read_tensor(location)
    if labels.is_floating_point() or labels.is_complex():
        raise BadInput(f"{location}: got {labels.dtype}, wanted integer labels")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise BadInput(f"{location}: got an array of shape {tuple(labels.shape)}, wanted one label per row: (N,)")
    return labels.long(), None


def _split(location: str) -> tuple[Path, str | None]:
    path, colon, name = location.rpartition(":")
    if colon and not Path(location).exists():
        return existing(path), name
    return existing(location), None


def existing(path: str) -> Path:
    if not Path(path).is_file():
        raise BadInput(f"{path}: there is no such file")
    if not Path(path).stat().st_size:
        raise BadInput(f"{path}: the file is empty")
    return Path(path)


def _pick(path: Path, name: str | None, arrays: Any) -> Any:
    names = list(arrays)
    if name is None and len(names) == 1:
        (name,) = names
    if name not in names:
        got = "no name" if name is None else f"the name {name!r}"
        raise BadInput(f"{path}: got {got} for a file of {', '.join(names)}; write {path}:{names[0] if names else ''}")
    return arrays[name]


def _single(path: Path, name: str | None) -> None:
    if name is not None:
        raise BadInput(f"{path}:{name}: a {path.suffix} file holds one array; leave out ':{name}'")


def _numbers(path: Path, array: Any) -> Tensor:
    if not isinstance(array, np.ndarray | Tensor):
        raise BadInput(f"{path}: got a {type(array).__name__}, wanted an array")
    if isinstance(array, np.ndarray) and array.dtype.kind not in "biuf":
        raise BadInput(f"{path}: got an array of {array.dtype}, wanted numbers")
    if isinstance(array, Tensor):
        return array.detach()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # a mapped file; nobody writes
        return torch.from_numpy(array)


def _npy(path: Path, name: str | None) -> Tensor:
    _single(path, name)
    with _unreadable(path):
        return _numbers(path, np.load(path, mmap_mode="r", allow_pickle=False))


def _npz(path: Path, name: str | None) -> Tensor:
    with _unreadable(path):
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise BadInput(f"{path}: this is a .npy file; rename it")
        with arrays:
            return _numbers(path, _pick(path, name, arrays))


def _pt(path: Path, name: str | None) -> Tensor:
    with _unreadable(path):
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    return _numbers(path, _pick(path, name, content) if isinstance(content, dict) else content)


def _safetensors(path: Path, name: str | None) -> Tensor:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise BadInput(f"{path}: {error}; install it with: pip install safetensors") from error
    try:
        with safe_open(path, "pt") as file:
            names = dict.fromkeys(file.keys())
            _pick(path, name, names)
            return file.get_tensor(name or next(iter(names)))
    except SafetensorError as error:
        raise BadInput(f"{path}: cannot be read as .safetensors: {error}") from error


@contextmanager
def _unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, EOFError, OSError, RuntimeError, UnpicklingError, zipfile.BadZipFile) as error:
        if any(word in str(error) for word in ("pickle", "Object arrays", "Python objects", "weights_only")):
            reason = "it holds Python objects, which are not unpickled; save a plain array of numbers"
        else:
            reason = f"cannot be read as {path.suffix}: {error}".replace("\n", " ")
        raise BadInput(f"{path}: {reason}") from error


def _csv(path: Path, name: str | None) -> Tensor:
    _single(path, name)
    with path.open(newline="") as file:
        header = not any(map(_is_number, next(csv.reader(file), [])))
    try:
        return torch.from_numpy(np.loadtxt(path, delimiter=",", ndmin=2, skiprows=int(header), encoding="utf-8"))
    except ValueError as error:
        raise BadInput(_first_fault(path, header) or f"{path}: {error}") from error


def _first_fault(path: Path, header: bool) -> str | None:
    width = None
    with path.open(newline="") as file:
        for line, row in enumerate(csv.reader(file), 1):
            if not row or (header and line == 1):
                continue
            if width is not None and len(row) != width:
                return f"{path}, line {line}: got {len(row)} columns, wanted {width} as above"
            if words := [cell for cell in row if not _is_number(cell)]:
                return f"{path}, line {line}: got {words[0]!r}, wanted a number"
            width = len(row)
    return None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number, value) of every line that is not blank."""
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, 1):
            if text.strip():
                try:
                    yield line, json.loads(text)
                except ValueError as error:
                    raise BadInput(f"{path}, line {line}: this is no JSON: {error}") from error


def _jsonl(path: Path, name: str | None) -> Tensor:
    _single(path, name)
    rows: list[list[float]] = []
    for line, row in json_lines(path):
        if not isinstance(row, list) or not all(isinstance(x, int | float) and not isinstance(x, bool) for x in row):
            raise BadInput(f"{path}, line {line}: wanted a list of numbers, got {json.dumps(row)[:60]}")
        if rows and len(row) != len(rows[0]):
            raise BadInput(f"{path}, line {line}: got {len(row)} numbers, wanted {len(rows[0])} as above")
        rows.append(row)
    return torch.tensor(rows)


def _text_labels(path: Path) -> Iterator[tuple[int, Any]]:
    if path.suffix == ".jsonl":
        for line, label in json_lines(path):
            if isinstance(label, bool) or not isinstance(label, int | str):
                raise BadInput(f"{path}, line {line}: wanted an integer or a word, got {json.dumps(label)[:60]}")
            yield line, label
        return
    with path.open(encoding="utf-8", newline="") as file:
        lines = [(line, row) for line, row in enumerate(csv.reader(file), 1) if row]
    for line, row in lines:
        if len(row) != 1:
            raise BadInput(f"{path}, line {line}: got {len(row)} columns, wanted one label")
    whole = all(row[0].strip().lstrip("-").isdigit() for _, row in lines)
    for line, row in lines:
        yield line, int(row[0]) if whole else row[0].strip()


READERS: dict[str, Callable[[Path, str | None], Tensor]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".pt": _pt,
    ".pth": _pt,
    ".safetensors": _safetensors,
    ".csv": _csv,
    ".jsonl": _jsonl,
}
