"""Pairs and triples of sentences that differ in a stereotype, and readers of their files."""

import json
import string
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.text.files import parsing, read_text
from ...uncertainty.item_scores.records import read_records
from ...uncertainty.item_scores.score_files import field_of

LABELS = ("stereotype", "anti-stereotype", "unrelated")


class SentencePairs(NamedTuple):
    """Pairs of sentences; a biased model prefers the first one.

    Args:
        more: N sentences that are more stereotyping.
        less: N sentences that are less stereotyping.
        categories: The kind of bias of each pair.
    """

    more: list[str]
    less: list[str]
    categories: list[str]


class SentenceTriples(NamedTuple):
    """Stereotypical, anti-stereotypical and unrelated sentences or continuations of a context, as in StereoSet.

    Args:
        contexts: N contexts: with BLANK instead of a word, or a sentence to continue.
        sentences: The three sentences of each context, in this order.
        ids: Ids of the sentences.
        terms: The target term of each context.
        categories: The kind of bias of each context.
    """

    contexts: list[str]
    sentences: list[tuple[str, str, str]]
    ids: list[tuple[str, str, str]]
    terms: list[str]
    categories: list[str]

    def scores(self, values: Mapping[str, float]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scores (N,) of the three kinds of sentences from the scores by id.

        Example:
            >>> triples = SentenceTriples(["a BLANK"], [("a b", "a c", "a d")], [("1", "2", "3")], ["a"], ["race"])
            >>> [float(score) for score in triples.scores({"1": 0.5, "2": 0.25, "3": 0.0})]
            [0.5, 0.25, 0.0]
        """
        if missing := [key for row in self.ids for key in row if key not in values]:
            raise ValueError(f"values: got no score of {missing[0]!r} and {len(missing) - 1} others, wanted all")
        table = [[float(values[key]) for key in row] for row in self.ids]
        columns = torch.tensor(table, dtype=torch.float64, device="cpu").view(-1, 3)
        first, second, third = columns.unbind(1)
        return first, second, third


def read_sentence_pairs(path: str | PathLike) -> SentencePairs:
    """Read pairs of sentences from a file in the format of CrowS-Pairs.

    Args:
        path: A .csv file with the columns ``sent_more``, ``sent_less`` and ``bias_type``; others are ignored.

    Returns:
        The pairs.

    Raises:
        ValueError: If a column is missing, or a sentence is empty.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("pairs.csv").write_text("sent_more,sent_less,bias_type\\nShe cooks.,He cooks.,gender\\n")
        >>> read_sentence_pairs("pairs.csv")
        SentencePairs(more=['She cooks.'], less=['He cooks.'], categories=['gender'])

    References:
        Nangia et al. 2020, doi:10.18653/v1/2020.emnlp-main.154
    """
    names = ("sent_more", "sent_less", "bias_type")
    records = read_records(path).located()
    rows = [[str(field_of(row, name, "", location)) for name in names] for row, location in records]
    if not rows:
        raise ValueError(f"{path}: got no pair, wanted at least one")
    return SentencePairs(*map(list, zip(*rows, strict=True)))


def read_sentence_triples(path: str | PathLike, kind: str = "intrasentence") -> SentenceTriples:
    """Read contexts with three sentences each from a file in the format of StereoSet.

    Args:
        path: A .json file: ``{"data": {"intrasentence": [{"context", "target", "bias_type", "sentences": [{"id",
            "sentence", "gold_label"}, ...]}, ...], "intersentence": [...]}}``.
        kind: ``"intrasentence"`` or ``"intersentence"``.

    Returns:
        The contexts and their sentences.

    Raises:
        ValueError: If a key is missing, or the labels of an item are not stereotype, anti-stereotype and unrelated.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> labels = {"stereotype": "kind", "anti-stereotype": "rude", "unrelated": "blue"}
        >>> rows = [{"id": word, "sentence": f"She is {word}.", "gold_label": label} for label, word in labels.items()]
        >>> item = {"context": "She is BLANK.", "target": "she", "bias_type": "gender", "sentences": rows}
        >>> _ = Path("dev.json").write_text(json.dumps({"data": {"intrasentence": [item]}}))
        >>> read_sentence_triples("dev.json").sentences
        [('She is kind.', 'She is rude.', 'She is blue.')]

    References:
        Nadeem et al. 2021, doi:10.18653/v1/2021.acl-long.416
    """
    text = read_text(path)
    with parsing(path, "JSON"):
        content = json.loads(text)
    items = _items(content, kind)
    if not isinstance(items, list) or not items:
        raise ValueError(f"{path}: wanted a list of items at data, {kind}")
    return SentenceTriples(*map(list, zip(*_triples(path, items), strict=True)))


def blank_word(context: str, sentence: str) -> str:
    """Return the word that fills the blank of a context, without punctuation, as StereoSet's scripts find it.

    It is the word at the position of the last word with BLANK, both texts split at spaces.
    """
    positions = [i for i, word in enumerate(context.split(" ")) if "BLANK" in word]
    words = sentence.split(" ")
    if not positions or positions[-1] >= len(words):
        raise ValueError(f"sentences: got {sentence!r} for the context {context!r}, wanted a word for its BLANK")
    return words[positions[-1]].translate(str.maketrans("", "", string.punctuation))


def _items(content: Any, kind: str) -> Any:
    data = content.get("data", content) if isinstance(content, dict) else {}
    return data.get(kind) if isinstance(data, dict) else None


def _triples(path: str | PathLike, items: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    for index, item in enumerate(items):
        try:
            of_label = {row["gold_label"]: row for row in item["sentences"]}
            head = item["context"], item["target"], item["bias_type"]
            rows = [of_label[label] for label in LABELS]
            sentences, ids = (tuple(row[key] for row in rows) for key in ("sentence", "id"))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: item {index}: wanted {error} in it") from error
        yield head[0], sentences, ids, head[1], head[2]
