"""Tiny language models with random weights, and tokenizers made on the spot: nothing is downloaded."""

import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")

WORDS = (
    *("the", "a", "he", "she", "nurse", "doctor", "women", "woman", "man", "vote", "left", "was", "is", "saw", "in"),
    *("this", "good", "bad", "old", "young", "engineer", "and", "went", "home"),
)
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *WORDS, "##s", "##d", "Th", "##ough", "en", "##gin"]
BYTE_MERGES = "he sh she nu rs nurs doc to tor the wo me en in er".split()


def word_pieces() -> "transformers.PreTrainedTokenizerFast":
    """BERT's kind: words of lower case, and their endings."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece({p: i for i, p in enumerate(PIECES)}, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.Lowercase()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="[MASK]", **names)


def byte_pairs(specials: bool = False) -> "transformers.PreTrainedTokenizerFast":
    """GPT-2's kind: words begin with a space; with `specials` RoBERTa's, which has <s>, </s> and <mask>."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    names = ["<s>", "<pad>", "</s>", "<mask>"] if specials else ["<|endoftext|>"]
    pieces = [*names, *alphabet]
    merges = [("h", "e"), ("s", "he"), ("Ġ", "s"), ("Ġ", "he"), ("Ġ", "she"), ("n", "u"), ("r", "s"), ("Ġ", "nu")]
    pieces += ["".join(pair) for pair in merges]
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({p: i for i, p in enumerate(pieces)}, merges))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    if not specials:
        end = "<|endoftext|>"
        return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end, bos_token=end)
    inner.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    own = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, cls_token="<s>", sep_token="</s>", **own)


def sentence_pieces() -> "transformers.PreTrainedTokenizerFast":
    """T5's kind: pieces begin with ▁, and </s> comes last."""
    words = [*WORDS, "s", ".", ","]
    scored = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    scored += [(f"▁{word}", -2.0) for word in words] + [(c, -5.0) for c in "abcdefghijklmnopqrstuvwxyz.,▁"]
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram(scored, unk_id=2))
    inner.normalizer = tokenizers.normalizers.Lowercase()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


WIDTHS = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
MAKERS = {  # name -> (tokenizer, class of the model, class of its configuration, options)
    "bert": (word_pieces, "BertModel", "BertConfig", WIDTHS),
    "bert_mlm": (word_pieces, "BertForMaskedLM", "BertConfig", WIDTHS),
    "distilbert": (
        word_pieces,
        "DistilBertModel",
        "DistilBertConfig",
        {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16},
    ),
    "albert": (word_pieces, "AlbertModel", "AlbertConfig", {**WIDTHS, "embedding_size": 6}),
    "electra": (word_pieces, "ElectraModel", "ElectraConfig", {**WIDTHS, "embedding_size": 6}),
    "deberta": (word_pieces, "DebertaV2Model", "DebertaV2Config", WIDTHS),
    "roberta": (
        lambda: byte_pairs(True),
        "RobertaModel",
        "RobertaConfig",
        {**WIDTHS, "max_position_embeddings": 66, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    ),
    "roberta_mlm": (
        lambda: byte_pairs(True),
        "RobertaForMaskedLM",
        "RobertaConfig",
        {**WIDTHS, "max_position_embeddings": 66, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    ),
    "gpt2": (byte_pairs, "GPT2LMHeadModel", "GPT2Config", {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 64}),
    "llama": (
        byte_pairs,
        "LlamaForCausalLM",
        "LlamaConfig",
        {**WIDTHS, "num_key_value_heads": 1, "max_position_embeddings": 64},
    ),
    "xlnet": (word_pieces, "XLNetModel", "XLNetConfig", {"d_model": 8, "n_layer": 2, "n_head": 2, "d_inner": 16}),
    "bart": (
        lambda: byte_pairs(True),
        "BartModel",
        "BartConfig",
        {
            **{f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in [("layers", 2), ("ffn_dim", 16)]},
            **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 8},
            **{"max_position_embeddings": 64, "scale_embedding": True},
        },
    ),
    "t5": (
        sentence_pieces,
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2},
    ),
    "byt5": (
        lambda: transformers.ByT5Tokenizer(),
        "T5EncoderModel",
        "T5Config",
        {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2},
    ),
    "canine": (
        lambda: transformers.CanineTokenizer(),
        "CanineModel",
        "CanineConfig",
        {**WIDTHS, "num_hash_buckets": 200, "local_transformer_stride": 16, "hidden_size": 16},
    ),
}


def make(name: str, seed: int = 0, **options):
    """A model in evaluation mode and its tokenizer."""
    tokenizer, kind, config, own = MAKERS[name]
    tokenizer = tokenizer()
    if name not in ("canine", "byt5"):
        options = {"vocab_size": len(tokenizer), **options}
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, config)(**{"pad_token_id": tokenizer.pad_token_id or 0, **own, **options})
        return getattr(transformers, kind)(config).eval(), tokenizer
