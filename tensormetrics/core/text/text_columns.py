"""Text files of columns between blanks: fields stay bytes in one buffer, and no Python object is made for a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..native import native
from .files import text_of

CODE_BYTES = 8
LONGEST = 512  # bytes of a field
SERVES = "Run.read and Qrels.read"

# data: (bytes,) uint8, complete lines of `columns` fields  selected: S indices of fields, ascending
# ->  (S, lines, 2) int64, start and end of these fields; (2,) int64: the number of the first invalid line, from 1, and
# its number of fields, or 0, 0. Lines without fields are skipped.
split_columns = native.define(
    "split_columns(Tensor data, int columns, int[] selected) -> (Tensor, Tensor)",
    lambda data, columns, selected: (
        data.new_empty(len(selected), torch.library.get_ctx().new_dynamic_size(), 2, dtype=torch.int64),
        data.new_empty(2, dtype=torch.int64),
    ),
    native.Operator("text", SERVES, 10),
)
# data: (bytes,) uint8  spans: (n, 2) int64 contiguous, spans of fields  ->  (n,) float64, (n,) bool, True if no number
parse_numbers = native.define(
    "parse_numbers(Tensor data, Tensor spans) -> (Tensor, Tensor)",
    lambda data, spans: (
        data.new_empty(len(spans), dtype=torch.float64),
        data.new_empty(len(spans), dtype=torch.bool),
    ),
    native.Operator("text", SERVES, 10),
)
# data, spans: as above  ->  (n, width) int64: the bytes of each field, then 0
pack_fields = native.define(
    "pack_fields(Tensor data, Tensor spans, int width) -> Tensor",
    lambda data, spans, width: data.new_empty(len(spans), width, dtype=torch.int64),
    native.Operator("text", SERVES, 10),
)

# data: (bytes,) uint8, lines of a word, which may hold spaces, and `columns` numbers  ->  (n, 2) int64, start and end
# of each word; (n, columns) float32, rounded from float64 as numpy does; () bool: whether a line is invalid, and all
# results with it.
parse_word_vectors = native.define(
    "parse_word_vectors(Tensor data, int columns) -> (Tensor, Tensor, Tensor)",
    lambda data, columns: (
        data.new_empty(n := torch.library.get_ctx().new_dynamic_size(), 2, dtype=torch.int64),
        data.new_empty(n, columns, dtype=torch.float32),
        data.new_empty((), dtype=torch.bool),
    ),
    native.Operator("text", "read_word2vec and WordEmbeddingModel.from_word2vec", 10),
)


@dataclass(frozen=True)
class Fields:
    """Column of a file: `data`, the start and end of each field in it, and the length of the longest."""

    data: np.ndarray  # (bytes,) uint8
    spans: np.ndarray  # (n, 2), start and end of each field
    longest: int

    def __getitem__(self, row: int) -> str:
        start, end = self.spans[row]
        return bytes(self.data[start:end]).decode()

    def codes(self) -> np.ndarray:
        # ->  (n, W) uint64
        """Return the bytes of each field, padded by 0: two fields are equal if these are."""
        width = max(1, -(-self.longest // CODE_BYTES))
        codes = pack_fields(torch.from_numpy(self.data), torch.from_numpy(self.spans), width)
        return codes.numpy().view(np.uint64)

    def parse_numbers(self) -> tuple[np.ndarray, np.ndarray]:
        # ->  (n,) float64, the rows that hold no number
        values, wrong = parse_numbers(torch.from_numpy(self.data), torch.from_numpy(self.spans))
        return values.numpy(), wrong.nonzero().flatten().numpy()


def split_fields(data: np.ndarray, path: Path, names: Sequence[str]) -> list[Fields]:
    """Return the columns of a file's content that have a name other than "-".

    Each line has a field for each name, or is empty: ValueError names the first other line.
    """
    # data: (bytes,) uint8
    if data.view(np.int8).min(initial=1) <= 0:  # not ASCII
        data = np.frombuffer(bytearray(text_of(data.tobytes(), path).encode()), np.uint8)
    requested = [i for i, name in enumerate(names) if name != "-"]
    bounds, wrong = split_columns(torch.from_numpy(data), len(names), requested)
    line, fields = wrong.tolist()
    if line:
        raise ValueError(f"{path}, line {line}: got {fields} fields, wanted {len(names)}: {' '.join(names)}")
    positions = bounds.numpy()
    longest = (positions[..., 1] - positions[..., 0]).max(1, initial=0).tolist()
    if max(longest) > LONGEST:
        raise ValueError(f"{path}: got a field of {max(longest)} bytes, wanted at most {LONGEST}")
    return [Fields(data, *column) for column in zip(positions, longest, strict=True)]


@native.reference("split_columns")
def _split_columns(data: Tensor, columns: int, selected: list[int]) -> tuple[Tensor, Tensor]:
    text = np.concatenate([[np.uint8(32)], data.numpy(), [np.uint8(32)]])
    edges = np.flatnonzero((text[1:] <= 32) != (text[:-1] <= 32)).reshape(-1, 2)
    line = np.cumsum(text == ord("\n"))[edges[:, 0]]  # of each field
    fields = np.bincount(line)
    wrong = np.flatnonzero((fields > 0) & (fields != columns))
    if len(wrong):
        nothing = torch.empty(len(selected), 0, 2, dtype=torch.int64, device="cpu")
        return nothing, torch.tensor([wrong[0] + 1, fields[wrong[0]]], device="cpu")
    rows = torch.from_numpy(edges).reshape(-1, columns, 2)
    return rows[:, selected].transpose(0, 1).contiguous(), torch.zeros(2, dtype=torch.int64, device="cpu")


@native.reference("parse_numbers")
def _parse_numbers(data: Tensor, spans: Tensor) -> tuple[Tensor, Tensor]:
    raw = data.numpy().tobytes()
    values = [_number(raw[start:end]) for start, end in spans.tolist()]
    wrong = [value is None for value in values]
    return (
        torch.tensor([value or 0.0 for value in values], dtype=torch.float64, device="cpu"),
        torch.tensor(wrong, dtype=torch.bool, device="cpu"),
    )


@native.reference("pack_fields")
def _pack_fields(data: Tensor, spans: Tensor, width: int) -> Tensor:
    raw = data.numpy().tobytes()
    fields = np.array([raw[start:end] for start, end in spans.tolist()], f"S{CODE_BYTES * width}")
    return torch.from_numpy(fields.view(np.int64).reshape(len(spans), width))


@native.reference("parse_word_vectors")
def _parse_word_vectors(data: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    lines = data.numpy().tobytes().removesuffix(b"\n").split(b"\n")
    fields = [[] if line[:1].isspace() else line.rsplit(None, columns) for line in lines]
    rows = [[_number(field) for field in row[1:]] for row in fields]
    if any(len(row) != columns or None in row for row in rows):
        values = torch.empty(0, columns, dtype=torch.float32, device="cpu")
        return torch.empty(0, 2, dtype=torch.int64, device="cpu"), values, torch.tensor(True, device="cpu")
    starts = np.cumsum([0, *(len(line) + 1 for line in lines[:-1])])
    spans = np.stack([starts, starts + [len(text) for text, *_ in fields]], 1)
    values = torch.tensor(rows, dtype=torch.float64, device="cpu").float()
    return torch.from_numpy(spans), values, torch.tensor(False, device="cpu")


def _number(field: bytes) -> float | None:
    try:
        return None if b"_" in field else float(field)  # Python would read 1_0 as 10
    except ValueError:
        return None
