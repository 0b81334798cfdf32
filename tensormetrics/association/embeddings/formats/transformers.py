"""Vectors of words from language models of the transformers library."""

from typing import Any

import torch
from torch import Tensor

from .... import _checks

OPEN, CLOSE = "\ue000", "\ue001"  # characters for private use, which no text holds
MARK = f"{OPEN}{{}}{CLOSE}"  # how a word is written in a template, so that its tokens can be found


class Transformer:
    """Encodes marked strings: the mean of a layer's vectors over the tokens that `pool` names."""

    def __init__(self, model: Any, tokenizer: Any, layer: int | str, pool: str) -> None:
        _checks.one_of("pool", pool, ("word", "all", "first", "last"))
        if layer != "input" and (isinstance(layer, bool) or not isinstance(layer, int)):
            raise TypeError(f"layer: got {layer!r}, wanted 'input' or the number of a layer, such as -1 for the last")
        if layer == "input" and pool in ("first", "last"):
            raise ValueError(f"pool: got {pool!r} with layer='input', where that token is the same in every string")
        if not getattr(tokenizer, "is_fast", False):
            raise TypeError(
                f"tokenizer: got a {type(tokenizer).__name__}, wanted a fast one, which tells where a token stands; "
                "write AutoTokenizer.from_pretrained(name, use_fast=True)"
            )
        self.model, self.tokenizer, self.pool = model, tokenizer, pool
        self.layer = None if layer == "input" else int(layer)

    def knows(self, word: str) -> bool:
        """A word is lost if it has no token, or none but the one for what is unknown."""
        tokens = self.tokenizer(word, add_special_tokens=False)["input_ids"]
        return any(token != self.tokenizer.unk_token_id for token in tokens)

    def encode(self, strings: list[str]) -> Tensor:
        # -> (len(strings), D)
        if self.layer is not None and self.model.training:
            raise ValueError("model: got one in training mode, whose dropout changes vectors; call model.eval()")
        texts, spans = zip(*map(_spans, strings), strict=True)
        read = self.tokenizer(list(texts), return_offsets_mapping=True, return_special_tokens_mask=True)
        lengths = [len(tokens) for tokens in read["input_ids"]]
        shape = len(texts), max(lengths)
        padding = self.tokenizer.pad_token_id
        ids = torch.full(shape, 0 if padding is None else padding, device="cpu")
        real = torch.zeros(shape, dtype=torch.bool, device="cpu")
        weights = torch.zeros(shape, dtype=torch.float64, device="cpu")
        for i, length in enumerate(lengths):
            ids[i, :length] = torch.tensor(read["input_ids"][i], device="cpu")
            real[i, :length] = True
            chosen = self._chosen(read["offset_mapping"][i], read["special_tokens_mask"][i], spans[i])
            if not any(chosen):
                raise ValueError(f"tokenizer: found no token for the word in {texts[i]!r}")
            weights[i, :length] = torch.tensor(chosen, dtype=torch.float64, device="cpu") / sum(chosen)
        states = self._states(ids, real)
        return torch.einsum("btd,bt->bd", states.double(), weights.to(states.device)).to(states.dtype)

    def _chosen(self, offsets: list, special: list[int], spans: list[tuple[int, int]]) -> list[bool]:
        if self.pool in ("first", "last"):
            place = 0 if self.pool == "first" else len(offsets) - 1
            return [i == place for i in range(len(offsets))]
        inside = [not mark and end > start for (start, end), mark in zip(offsets, special, strict=True)]
        if self.pool == "all":
            return inside
        return [
            kept and any(start < end_of and begin < end for begin, end_of in spans)
            for (start, end), kept in zip(offsets, inside, strict=True)
        ]

    def _states(self, ids: Tensor, real: Tensor) -> Tensor:
        # ids, real: (B, T)  ->  (B, T, D)
        table = self.model.get_input_embeddings()
        ids, real = ids.to(table.weight.device), real.to(table.weight.device)
        if self.layer is None:
            return table(ids)
        layers = self.model(input_ids=ids, attention_mask=real.long(), output_hidden_states=True).hidden_states
        if not -len(layers) <= self.layer < len(layers):
            raise ValueError(f"layer: got {self.layer}, wanted {-len(layers)} to {len(layers) - 1} of this model")
        return layers[self.layer]


def _spans(string: str) -> tuple[str, list[tuple[int, int]]]:
    """A string without its marks, and where the word stands in it."""
    text, spans = "", []
    for part in string.split(OPEN):
        word, found, rest = part.partition(CLOSE)
        if found:
            spans.append((len(text), len(text) + len(word)))
        text += word + rest
    return text, spans
