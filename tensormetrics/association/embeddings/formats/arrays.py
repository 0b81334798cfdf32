"""Tables of vectors in .npz and .safetensors files, and lists of words."""

import json
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from torch import Tensor

from ....core.text.files import Npz, file_suffix, open_safetensors, parsing, read_text
from ..vocabulary import from_array

TEXT = "US"  # kinds of arrays of str and of bytes


def npz_table(path: str | PathLike, words: Any, vectors: str | None) -> tuple[Tensor, Sequence[str]]:
    # -> (V, D), V words
    """Read the array `vectors` (default: the only 2-d array) and its words, from `words` or the only array of str."""
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
    """Read one tensor (default: the only one with two dimensions) and its words."""
    with open_safetensors(path) as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        name = _only(path, "tensor", tensor, {name: shape for name, shape in shapes.items() if len(shape) == 2})
        with parsing(path, "a .safetensors file"):
            table = file.get_tensor(name)
    return table, word_list(words)


def _only(path: str | PathLike, argument: str, name: str | None, shapes: dict[str, tuple[int, ...]]) -> str:
    """Return the requested name, or the only possible one."""
    if name in shapes or (name is None and len(shapes) == 1):
        return name or next(iter(shapes))
    names = ", ".join(f"{name!r} {shape}" for name, shape in list(shapes.items())[:20]) or "none"
    got = "got no name" if name is None else f"got {name!r}"
    raise ValueError(f"{argument}: {got}, wanted one of those in {path}: {names}")


def word_list(words: Any) -> Sequence[str]:
    """Read the words of the rows in order: a list, a text file with a word per line, or JSON (list or word -> row)."""
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
        content = json.loads(text)
    if isinstance(content, dict):
        if sorted(row for row in content.values() if type(row) is int) != list(range(len(content))):
            raise ValueError(f"{words}: wanted an object of words, whose values are the rows 0 to {len(content) - 1}")
        return sorted(content, key=content.__getitem__)
    if not isinstance(content, list):
        raise ValueError(f"{words}: got a {type(content).__name__}, wanted a list of words, or an object word: row")
    return content
