"""Words that have several rows: they are exchanged, flipped and drawn with all their rows."""

import functools

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..._splitmix import random_bits_at


def check_words(name: str, words: Tensor | None, like: str, rows: Tensor) -> None:
    # words: (..., W) int64, the number of each row's word  rows: (..., W), those named `like`
    if words is None:
        return
    if not isinstance(words, Tensor):
        raise TypeError(f"{name}: got a {type(words).__name__}, wanted a tensor; write torch.as_tensor({name})")
    if words.is_floating_point() or words.is_complex() or words.dtype == torch.bool:
        raise TypeError(f"{name}: got {words.dtype}, wanted an integer dtype: the number of each row's word")
    if words.shape[-1:] != rows.shape[-1:]:
        raise ValueError(f"{name}: got shape {tuple(words.shape)}, wanted (..., {rows.shape[-1]}), one for each row")
    try:
        torch.broadcast_shapes(words.shape[:-1], rows.shape[:-1])
    except RuntimeError:
        got = f"{tuple(words.shape[:-1])} of {name}, {tuple(rows.shape[:-1])} of {like}"
        raise ValueError(f"leading dimensions do not broadcast: {got}") from None
    if words.device != rows.device:
        raise ValueError(f"devices differ: {like} on {rows.device}, {name} on {words.device}; use .to(device)")


def joint_mask(*masks: Tensor | None) -> Tensor | None:
    # masks: (..., P)  ->  (..., P), where a tuple has all of its words; of weights the smallest
    given = [mask for mask in masks if mask is not None]
    return functools.reduce(torch.minimum, given) if given else None


def joint_words(*words: Tensor | None) -> Tensor | None:
    # words: (..., P) int64, the number of each row's word  ->  (..., P), the number of each row's tuple of words
    given = [each for each in words if each is not None]
    if not given:
        return None
    size = given[0].shape[-1]
    if len(given) < len(words):  # each row of the other sets is a word, and so is each tuple
        return torch.arange(size, device=given[0].device)
    places = [word_places(torch.ones_like(each, dtype=torch.bool), each) for each in given]
    return functools.reduce(lambda joint, place: joint * size + place, places)


def mixed_words(*words: Tensor | None) -> Tensor | None:
    # as in `joint_words`, but the number of a tuple depends on those of its words alone: 64 bits, mixed
    if all(each is not None for each in words):
        return functools.reduce(random_bits_at, (each for each in words if each is not None))
    return joint_words(*words)


def word_places(present: Tensor, words: Tensor | None) -> Tensor:
    # present: (..., N) bool  words: (..., N) int64, None if every row is a word  ->  (..., N) int64
    """The place of each row's word among the present ones, in the order of their numbers; anything for absent rows."""
    if words is None:
        return (present.cumsum(-1) - 1).clamp(min=0)
    if not present.shape[-1]:
        return present.long()
    ordered, order = words.long().masked_fill(~present, torch.iinfo(torch.int64).max).sort(dim=-1, stable=True)
    place = pad((ordered.diff(dim=-1) != 0).cumsum(-1), (1, 0))
    return torch.empty_like(place).scatter(-1, order, place)


def count_words(places: Tensor, present: Tensor) -> Tensor:
    # places, present: (..., N) as in `word_places`  ->  (...) int64
    return pad((places + 1) * present, (1, 0)).amax(-1)


def joined_words(lead: torch.Size, *sides: tuple[Tensor | None, int, torch.device]) -> Tensor | None:
    # sides: words (..., W) or None, W, device  ->  (*lead, sum of W) int64
    """The words of several sets as those of one; equal numbers in two sets are two words. None if every row is one."""
    if all(words is None for words, _, _ in sides):
        return None
    numbers, start = [], 0
    for words, rows, device in sides:
        own = torch.arange(rows, device=device)
        if words is not None:
            own = word_places(torch.ones_like(words, dtype=torch.bool), words)
        numbers.append((start + own).expand(*lead, rows))
        start += rows
    return torch.cat(numbers, -1)


def numbers_by_place(words: Tensor, present: Tensor, places: Tensor, width: int) -> Tensor:
    # words, present, places: (..., N), as in `word_places`  ->  (..., width) int64
    """Return the number of the word at each place; of a number that stands there several times one for each."""
    words, present, places = torch.broadcast_tensors(words, present, places)
    least = torch.iinfo(torch.int64).min
    numbers = torch.full((*places.shape[:-1], width), least, device=words.device)
    present_words = words.long().masked_fill(~present, least)
    numbers = numbers.scatter_reduce(-1, places.clamp(max=max(width - 1, 0)), present_words, "amax")
    ordered, order = numbers.sort(dim=-1, stable=True)
    index = torch.arange(width, device=words.device)
    is_repeated = pad(ordered.diff(dim=-1) == 0, (1, 0)) if width else ordered.bool()
    occurrence = index - index.masked_fill(is_repeated, 0).cummax(-1).values
    return random_bits_at(numbers, torch.empty_like(order).scatter(-1, order, occurrence))


def word_means(units: Tensor, present: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    # units: (B, N) int64  present, places: (B, N)  ->  (B, W) int64, (B, W) bool
    """Return the mean over the rows of each word, and which are words. Waits for the device: it knows how many."""
    width = max(1, int(pad(count_words(places, present), (1, 0)).amax()))
    places, zeros = places.clamp(max=width - 1), units.new_zeros(len(units), width)
    sums = zeros.scatter_add(-1, places, units * present)
    rows = zeros.scatter_add(-1, places, present.long())
    return (sums.double() / rows.clamp(min=1)).round().long(), rows > 0


def row_shares(words: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor]:
    # words: (..., W) integer  present: (..., W) bool, None: all  ->  (..., W) float64, (..., W) int64
    """Return for each row one over the rows of its word, 0 for absent ones, and the place of its word."""
    if present is None:
        present = torch.ones_like(words, dtype=torch.bool)
    present, words = torch.broadcast_tensors(present, words)
    places = word_places(present, words)
    rows = torch.zeros_like(places).scatter_add(-1, places, present.long()).gather(-1, places)
    return present.double() / rows.clamp(min=1), places
