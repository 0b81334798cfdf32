"""Claim: pairs of sentences are scored by a masked language model in a third of the time of a loop that masks a token
at a time, as the scripts of CrowS-Pairs do, with the same scores to 1e-5; and all layers of a model cost at most 1.2
times one layer.

Scores are asserted to be equal before anything is timed. Rivals take turns in one process, on parts of the data; times
are sums over the parts. The models are small and have random weights: batches gain less for large models on a CPU.
"""

import difflib
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from _common import Table, arguments

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizer

from tensormetrics.association import SentencePairs, WordEmbeddingModel, score_pairs

NEEDS = ("transformers",)
PAIRS, VOCABULARY_SIZE, PARTS = 1508, 1000, 4
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_vocabulary(count: int) -> list[str]:
    """Return strings of letters that the tokenizer does not split."""
    letters = "bcdfghklmn"
    return ["".join(letters[int(digit)] for digit in f"{i:04d}") for i in range(count)]


def pairs_of(count: int) -> SentencePairs:
    """Return pairs of sentences of 8 to 16 tokens that differ in one or two tokens."""
    vocabulary, generator = make_vocabulary(VOCABULARY_SIZE), torch.Generator().manual_seed(0)
    more, less = [], []
    for _ in range(count):
        length, changed = (int(torch.randint(*ends, (), generator=generator)) for ends in ((8, 17), (1, 3)))
        sentence = [vocabulary[i] for i in torch.randint(VOCABULARY_SIZE, (length,), generator=generator).tolist()]
        other = list(sentence)
        for position in torch.randperm(length, generator=generator)[:changed].tolist():
            other[position] = vocabulary[int(torch.randint(VOCABULARY_SIZE, (), generator=generator))]
        more.append(" ".join(sentence))
        less.append(" ".join(other))
    return SentencePairs(more, less, ["none"] * count)


def model_of(kind: type, layers: int) -> tuple[Any, BertTokenizer]:
    torch.manual_seed(0)
    vocabulary = [*SPECIAL, *make_vocabulary(VOCABULARY_SIZE)]
    sizes = {"hidden_size": 128, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 512}
    model = kind(BertConfig(vocab_size=len(vocabulary), **sizes)).eval()
    return model, BertTokenizer(vocab={token: i for i, token in enumerate(vocabulary)})


@torch.no_grad()
def by_tokens(model: Any, tokenizer: Any, pairs: SentencePairs) -> torch.Tensor:
    """Mask the shared tokens of a pair one at a time, each in a forward pass (Nangia et al. 2020)."""
    scores = []
    for pair in zip(pairs.more, pairs.less, strict=True):
        ids = [tokenizer(sentence, return_tensors="pt")["input_ids"] for sentence in pair]
        matcher = difflib.SequenceMatcher(None, *(tokens[0].tolist() for tokens in ids))
        spans = [code[1:] for code in matcher.get_opcodes() if code[0] == "equal"]
        shared = [[i for a, b, c, d in spans for i in (range(a, b), range(c, d))[index]] for index in (0, 1)]
        pair_scores = []
        for tokens, positions in zip(ids, shared, strict=True):
            total = 0.0
            for position in positions[1:-1]:
                masked = tokens.clone()
                masked[0, position] = tokenizer.mask_token_id
                logits = model(masked).logits[0, position]
                total += logits.log_softmax(0)[tokens[0, position]].item()
            pair_scores.append(total)
        scores.append(pair_scores)
    return torch.tensor(scores, dtype=torch.float64).mT


def seconds(*calls: Callable[[], Any]) -> list[float]:
    times = []
    for call in calls:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def pairs_row(count: int) -> list[str]:
    model, tokenizer = model_of(BertForMaskedLM, 2)
    pairs = pairs_of(count)
    subset = SentencePairs(*(column[:50] for column in pairs))
    scores = torch.stack(score_pairs(model, tokenizer, subset))
    torch.testing.assert_close(scores, by_tokens(model, tokenizer, subset), rtol=1e-5, atol=1e-5)
    total = [0.0, 0.0]
    size = -(-count // PARTS)
    for start in range(0, count, size):
        part = SentencePairs(*(column[start : start + size] for column in pairs))
        times = seconds(lambda: score_pairs(model, tokenizer, part), lambda: by_tokens(model, tokenizer, part))  # noqa: B023
        total = [before + now for before, now in zip(total, times, strict=True)]
    return [f"{count:,} pairs", f"{total[0]:.2f} s", f"{total[1]:.2f} s", f"{total[1] / total[0]:.1f}"]


def layers_row(vocabulary: list[str], rounds: int) -> list[str]:
    model, tokenizer = model_of(BertModel, 12)
    templates = ["{}", " ".join([*vocabulary[:5], "{}"]), " ".join(["{}", *vocabulary[:9]])]

    def rows_of(layer: Any) -> list[torch.Tensor]:
        models = WordEmbeddingModel.from_transformers(model, tokenizer, layer=layer, templates=templates)
        models = models if isinstance(models, list) else [models]
        for layer_model in models:
            layer_model._table.add(vocabulary)
        return [layer_model.vectors for layer_model in models]

    torch.testing.assert_close(rows_of([0, ..., -1])[-1], rows_of(-1)[0])
    total = [0.0, 0.0]
    for _ in range(rounds):
        times = seconds(lambda: rows_of([0, ..., -1]), lambda: rows_of(-1))
        total = [before + now for before, now in zip(total, times, strict=True)]
    ratio = total[1] / total[0]
    return ["13 layers against 1", f"{total[0] / rounds:.2f} s", f"{total[1] / rounds:.2f} s", f"{ratio:.2f}"]


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    columns = ["", "ours", "a loop over tokens; one layer", "ratio"]
    table = Table(options, "Language models", columns, packages=("transformers",))
    table.add([pairs_row(60 if options.quick else PAIRS)])
    table.add([layers_row(make_vocabulary(50 if options.quick else 700), 1 if options.quick else 5)])
    table.finish()


if __name__ == "__main__":
    main()
