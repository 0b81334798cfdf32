"""Tables of vectors in .npz and .safetensors files, and lists of words."""

import json
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from torch import Tensor

from ...._files import Npz, file_suffix, open_safetensors, parsing, read_text
from ..vocabulary import from_array

TEXT = "US"  # kinds of arrays: of str, and of bytes


def npz_table(path: str | PathLike, words: Any, vectors: str | None) -> tuple[Tensor, Sequence[str]]:
    # -> (V, D), V words
    """The array `vectors` (default: the one with two dimensions) and its words: those given, or the array of str."""
    arrays = Npz(path)
    headers = arrays.headers.items()
    if words is None:
        if not any(h.dtype.kind in TEXT for _, h in headers) and any(h.dtype.hasobject for _, h in headers):
            advice = "write np.savez(path, vectors=..., words=np.array(words, dtype=str))"
            raise ValueError(f"{path}: got pickled objects; {advice}")
        words = arrays[_only(path, "words", None, {name: h.shape for name, h in headers if h.dtype.kind in TEXT})]
    table = _only(path, "vectors", vectors, {name: h.shape for name, h in headers if len(h.shape) == 2})
    return from_array(f"{path}: {table}", arrays[table], table), word_list(words)


def safetensors_table(path: str | PathLike, words: Any, tensor: str | None) -> tuple[Tensor, Sequence[str]]:
    # -> (V, D), V words
    """The tensor of that name (default: the only one with two dimensions) and its words; no other tensor is read."""
    with open_safetensors(path) as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        name = _only(path, "tensor", tensor, {name: shape for name, shape in shapes.items() if len(shape) == 2})
        with parsing(path, "a .safetensors file"):
            table = file.get_tensor(name)
    return table, word_list(words)


def _only(path: str | PathLike, argument: str, asked: str | None, there: dict[str, tuple[int, ...]]) -> str:
    """The name that was asked for, or the only one that can be meant."""
    if asked in there or (asked is None and len(there) == 1):
        return asked or next(iter(there))
    names = ", ".join(f"{name!r} {shape}" for name, shape in list(there.items())[:20]) or "none"
    got = "got no name" if asked is None else f"got {asked!r}"
    raise ValueError(f"{argument}: {got}, wanted one of those in {path}: {names}")


def word_list(words: Any) -> Sequence[str]:
    """The words of the rows in order: a list, a text file with one to a line, or JSON, of a list or word -> row."""
    if isinstance(words, np.ndarray):
        if words.dtype.kind != "S":
            return words.tolist()
        try:
            return np.char.decode(words, "utf-8").tolist()
        except UnicodeDecodeError as error:
            raise ValueError(f"words: got bytes, wanted str, or UTF-8 ({error})") from None
    if not isinstance(words, str | PathLike):
        return words
    text = read_text(words).replace("\r\n", "\n")
    if file_suffix(words) != ".json":
        return text.removesuffix("\n").split("\n")
    with parsing(words, "JSON"):
        read = json.loads(text)
    if isinstance(read, dict):
        if sorted(row for row in read.values() if type(row) is int) != list(range(len(read))):
            raise ValueError(f"{words}: wanted an object of words, whose values are the rows 0 to {len(read) - 1}")
        return sorted(read, key=read.__getitem__)
    if not isinstance(read, list):
        raise ValueError(f"{words}: got a {type(read).__name__}, wanted a list of words, or an object word: row")
    return read
