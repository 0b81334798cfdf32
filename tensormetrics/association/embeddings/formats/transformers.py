"""Vectors of words from language models of the transformers library."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ....core.arguments import checks
from ...language_models import tokens
from ...language_models.contexts import unmarked
from ...language_models.tokens import Tokens


class Transformer:
    """Encoder of marked strings by the mean of a layer's vectors over the tokens that `pool` selects."""

    def __init__(
        self, model: Any, tokenizer: Any, pool: str = "word", batch_size: int = 64, max_length: int | None = None
    ) -> None:
        checks.check_choice("pool", pool, ("word", "all", "first", "last"))
        tokens.check_tokenizer(tokenizer)
        self.model, self.tokenizer, self.pool = model, tokenizer, pool
        self.batch_size = checks.check_int("batch_size", batch_size, 1)
        self.limit = tokens.token_limit(model, tokenizer, max_length)
        has_decoder = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
        self.net = model.get_encoder() if has_decoder else getattr(model, "base_model", model)

    def knows(self, word: str) -> bool:
        """Return whether a word has a token other than the unknown token."""
        ids = self.tokenizer(word, add_special_tokens=False)["input_ids"]
        return any(token != self.tokenizer.unk_token_id for token in ids)

    def input_embeddings(self) -> torch.nn.Module:
        """Return the model's table of input embeddings."""
        try:
            module = self.model.get_input_embeddings()
        except (AttributeError, NotImplementedError):
            module = None
        if not isinstance(module, torch.nn.Module):
            raise TypeError(
                f"layer: got 'input' for a {type(self.model).__name__}, which has no table of input embeddings; write "
                "layer=0"
            )
        return module

    def bags(self, strings: Sequence[str]) -> list[list[int]]:
        """Return the ids of the tokens to average for each string."""
        return [[row.ids[i] for i in positions] for row, positions in self.pooled_tokens(strings)]

    def pooled_tokens(self, strings: Sequence[str]) -> list[tuple[Tokens, list[int]]]:
        """Return the tokens of each string and the positions of the tokens to average."""
        pooled = []
        for string, row in zip(strings, tokens.tokenize(self.tokenizer, strings), strict=True):
            row = row if self.limit is None else row.window(self.limit)
            positions = [0 if self.pool == "first" else len(row.ids) - 1]
            if self.pool in ("word", "all"):
                is_pooled = row.is_word if self.pool == "word" else [not special for special in row.is_special]
                positions = [i for i, selected in enumerate(is_pooled) if selected]
            if not positions:
                raise ValueError(f"tokenizer: found no token for the word in {unmarked(string)[0]!r}")
            pooled.append((row, positions))
        return pooled

    def encode(self, strings: Sequence[str], layers: Sequence[int]) -> list[Tensor]:
        # ->  (len(strings), D) for each layer
        """Encode strings by one forward pass, in batches of similar lengths."""
        tokens.check_evaluating(self.model)
        pooled = self.pooled_tokens(strings)
        vectors: list[Tensor] = []
        for batch in tokens.batches_by_length(self.model, [len(row.ids) for row, _ in pooled], self.batch_size):
            states = self.hidden_states([pooled[i][0].ids for i in batch])
            pools = [pooled[i][1] for i in batch]
            rows = [_mean_of_tokens(self._layer(states, layer), pools) for layer in layers]
            vectors = vectors or [row.new_empty(len(strings), row.shape[1]) for row in rows]
            for output, part in zip(vectors, rows, strict=True):
                output[torch.tensor(batch, device=output.device)] = part
        return vectors

    def hidden_states(self, ids: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
        # ->  (B, T, D) each
        """Return the states before the first layer and after each layer."""
        rows, real = tokens.padded(ids, self.tokenizer, tokens.device_of(self.net))
        return self.net(input_ids=rows, attention_mask=real.long(), output_hidden_states=True).hidden_states

    def _layer(self, states: tuple[Tensor, ...], layer: int) -> Tensor:
        # ->  (B, T, D)
        if not -len(states) <= layer < len(states):
            raise ValueError(f"layer: got {layer}, wanted {-len(states)} to {len(states) - 1} of this model")
        if states[layer].shape[:2] != states[0].shape[:2]:
            raise ValueError(
                f"layer: got {layer} of a {type(self.model).__name__}, which has {states[layer].shape[1]} states for "
                f"{states[0].shape[1]} tokens there; wanted one for each, as in layer -1"
            )
        return states[layer]

    @torch.no_grad()
    def layer_numbers(self, layers: Sequence[Any]) -> list[int]:
        """Expand a list of layers, in which `...` denotes all layers between its neighbors."""
        if ... not in layers:
            return [_layer_number(layer) for layer in layers]
        count = len(self.hidden_states([self.tokenizer("a")["input_ids"]]))
        result: list[int] = []
        for i, layer in enumerate(layers):
            if layer is not ...:
                result.append(_layer_number(layer) % count)
            elif not 0 < i < len(layers) - 1 or ... in (layers[i - 1], layers[i + 1]):
                raise ValueError(f"layer: got {list(layers)}, wanted a number before and after ...")
            else:
                result += range(result[-1] + 1, _layer_number(layers[i + 1]) % count)
        return result


class LayerEncoders:
    """Encoders of several layers that share forward passes.

    When one layer encodes strings, the vectors of all other layers are stored until they are requested, or until a
    parameter changes.
    """

    def __init__(self, transformer: Transformer, layers: Sequence[int]) -> None:
        if not layers or len(set(layers)) < len(layers):
            raise ValueError(f"layer: got {list(layers)}, wanted distinct layers, at least one")
        self.transformer, self.layers = transformer, layers
        self.pending: list[dict[str, Tensor]] = [{} for _ in layers]  # string -> (D,)
        self.version: object = None

    def encode(self, index: int, strings: Sequence[str]) -> Tensor:
        # ->  (len(strings), D)
        if len(self.layers) == 1:
            return self.transformer.encode(strings, self.layers)[0]
        version = parameter_version(self.transformer.model)
        if version != self.version:
            self.pending, self.version = [{} for _ in self.layers], version
        vectors = self.pending[index]
        if missing := [string for string in strings if string not in vectors]:
            for pending, rows in zip(self.pending, self.transformer.encode(missing, self.layers), strict=True):
                pending.update(zip(missing, rows, strict=True))
        return torch.stack([vectors.pop(string) for string in strings])


def parameter_version(module: torch.nn.Module) -> object:
    """Return a value that changes when a parameter is written to or replaced."""
    parameters = list(module.parameters())
    return [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters]


def model_name(model: Any) -> str:
    """Return the name under which a model was loaded, or the name of its class."""
    return getattr(model, "name_or_path", None) or type(model).__name__


def _layer_number(layer: Any) -> int:
    if isinstance(layer, bool) or not isinstance(layer, int):
        raise TypeError(
            f"layer: got {layer!r}, wanted 'input', the number of a layer, such as -1 for the last, or a list of "
            "numbers"
        )
    return layer


def _mean_of_tokens(states: Tensor, positions: Sequence[Sequence[int]]) -> Tensor:
    # states: (B, T, D)  positions: of the tokens to average, for each row  ->  (B, D)
    width = max(map(len, positions))
    index = torch.tensor([[*row, *[row[0]] * (width - len(row))] for row in positions], device="cpu")
    rows = [[1 / len(row)] * len(row) + [0.0] * (width - len(row)) for row in positions]
    weights = torch.tensor(rows, dtype=torch.float64, device="cpu").to(states.device)
    index = index.to(states.device)
    picked = states.gather(1, index.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
    return (picked.double() * weights.unsqueeze(-1)).sum(1).to(states.dtype)
