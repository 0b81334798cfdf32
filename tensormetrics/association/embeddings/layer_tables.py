"""Tables of the layers of a language model."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypedDict

from ..language_models.contexts import MARK, Context, marked_contexts
from ..language_models.tokens import device_of
from .formats.transformers import LayerEncoders, Transformer
from .input_table import InputTable
from .vocabulary import EncodedTable

CHUNK = 2**12  # texts that are tokenized and ordered by length at a time


class TransformerOptions(TypedDict, total=False):
    """Options of `WordEmbeddingModel.from_transformers`."""

    templates: Sequence[str]
    contexts: Literal["all", "mean"] | Mapping[str, Sequence[Context]]
    pool: Literal["word", "all", "first", "last"]
    batch_size: int
    max_length: int | None
    name: str | None


def tables_of_transformer(
    transformer: Transformer, layer: Any, templates: Sequence[str], contexts: Any
) -> dict[int | str, EncodedTable]:
    """Return the table of each layer, under its number or "input"."""
    kwargs: dict[str, Any] = {"can_encode": transformer.knows, "mark": MARK}
    if isinstance(contexts, Mapping):
        if tuple(templates) != ("{}",):
            raise ValueError("templates, contexts: got templates and sentences of words, wanted one of them")
        sentences = marked_contexts(contexts)
        kwargs |= {"can_encode": sentences.__contains__, "sentences": sentences, "words": sentences}
        contexts = "all"
    if layer == "input":
        if transformer.pool in ("first", "last"):
            raise ValueError(
                f"pool: got {transformer.pool!r} with layer='input', where that token is the same in every string"
            )
        module = transformer.input_embeddings()
        device = next(module.parameters()).device
        return {layer: InputTable(transformer.bags, module, templates, contexts, 1, device, **kwargs)}
    layers = transformer.layer_numbers(layer if isinstance(layer, Sequence) and not isinstance(layer, str) else [layer])
    encoders = LayerEncoders(transformer, layers)
    device = device_of(transformer.model)
    return {
        layer_number: EncodedTable(partial(encoders.encode, i), templates, contexts, CHUNK, device, **kwargs)
        for i, layer_number in enumerate(layers)
    }
