"""Tiny language models with random weights, and tokenizers made on the spot: nothing is downloaded."""

import functools
import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")

VOCAB = (
    *("the", "a", "he", "she", "nurse", "doctor", "women", "woman", "man", "vote", "left", "was", "is", "saw", "in"),
    *("this", "good", "bad", "old", "young", "engineer", "and", "went", "home"),
)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *VOCAB, "##s", "##d", "Th", "##ough", "en", "##gin"]


def bert_tokenizer() -> "transformers.PreTrainedTokenizerFast":
    """Build a tokenizer like that of BERT: lower-case entries and their endings."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece({p: i for i, p in enumerate(TOKENS)}, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.Lowercase()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="[MASK]", **names)


def gpt2_tokenizer(specials: bool = False) -> "transformers.PreTrainedTokenizerFast":
    """Build a tokenizer like that of GPT-2, or with `specials` like that of RoBERTa, which has <s>, </s> and <mask>."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    names = ["<s>", "<pad>", "</s>", "<mask>"] if specials else ["<|endoftext|>"]
    tokens = [*names, *alphabet]
    merges = [("h", "e"), ("s", "he"), ("Ġ", "s"), ("Ġ", "he"), ("Ġ", "she"), ("n", "u"), ("r", "s"), ("Ġ", "nu")]
    tokens += ["".join(pair) for pair in merges]
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({p: i for i, p in enumerate(tokens)}, merges))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    if not specials:
        end = "<|endoftext|>"
        return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end, bos_token=end)
    inner.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    special_tokens = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, cls_token="<s>", sep_token="</s>", **special_tokens
    )


def t5_tokenizer() -> "transformers.PreTrainedTokenizerFast":
    """Build a tokenizer like that of T5: tokens begin with ▁, and </s> is last."""
    vocabulary = [*VOCAB, "s", ".", ","]
    scored = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    scored += [(f"▁{entry}", -2.0) for entry in vocabulary] + [(c, -5.0) for c in "abcdefghijklmnopqrstuvwxyz.,▁"]
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram(scored, unk_id=2))
    inner.normalizer = tokenizers.normalizers.Lowercase()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


WIDTHS = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
ROBERTA = {**WIDTHS, "max_position_embeddings": 66, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
T5 = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
roberta_tokenizer = functools.partial(gpt2_tokenizer, specials=True)
MAKERS = {  # name -> (tokenizer, class of the model, class of its configuration, options)
    "bert": (bert_tokenizer, "BertModel", "BertConfig", WIDTHS),
    "bert_mlm": (bert_tokenizer, "BertForMaskedLM", "BertConfig", WIDTHS),
    "distilbert": (
        bert_tokenizer,
        "DistilBertModel",
        "DistilBertConfig",
        {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16},
    ),
    "albert": (bert_tokenizer, "AlbertModel", "AlbertConfig", {**WIDTHS, "embedding_size": 6}),
    "electra": (bert_tokenizer, "ElectraModel", "ElectraConfig", {**WIDTHS, "embedding_size": 6}),
    "deberta": (bert_tokenizer, "DebertaV2Model", "DebertaV2Config", WIDTHS),
    "roberta": (roberta_tokenizer, "RobertaModel", "RobertaConfig", ROBERTA),
    "roberta_mlm": (roberta_tokenizer, "RobertaForMaskedLM", "RobertaConfig", ROBERTA),
    "gpt2": (
        gpt2_tokenizer,
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 64},
    ),
    "llama": (
        gpt2_tokenizer,
        "LlamaForCausalLM",
        "LlamaConfig",
        {**WIDTHS, "num_key_value_heads": 1, "max_position_embeddings": 64},
    ),
    "xlnet": (bert_tokenizer, "XLNetModel", "XLNetConfig", {"d_model": 8, "n_layer": 2, "n_head": 2, "d_inner": 16}),
    "bart": (
        roberta_tokenizer,
        "BartModel",
        "BartConfig",
        {
            **{f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in [("layers", 2), ("ffn_dim", 16)]},
            **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 8},
            **{"max_position_embeddings": 64, "scale_embedding": True},
        },
    ),
    "t5": (t5_tokenizer, "T5ForConditionalGeneration", "T5Config", T5),
    "byt5": (transformers.ByT5Tokenizer, "T5EncoderModel", "T5Config", T5),
    "canine": (
        transformers.CanineTokenizer,
        "CanineModel",
        "CanineConfig",
        {**WIDTHS, "num_hash_buckets": 200, "local_transformer_stride": 16, "hidden_size": 16},
    ),
}


def make(name: str, seed: int = 0, **options):
    """Make a model in evaluation mode and its tokenizer."""
    tokenizer, kind, config, config_options = MAKERS[name]
    tokenizer = tokenizer()
    if name not in ("canine", "byt5"):
        options = {"vocab_size": len(tokenizer), **options}
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, config)(
            **{"pad_token_id": tokenizer.pad_token_id or 0, **config_options, **options}
        )
        return getattr(transformers, kind)(config).eval(), tokenizer
