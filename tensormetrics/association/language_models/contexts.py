"""Words within texts: filled-in templates, and sentences that contain a word."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

OPEN, CLOSE = "\ue000", "\ue001"  # characters for private use, which no text contains
MARK = f"{OPEN}{{}}{CLOSE}"  # how a word is written in a template, so that its tokens can be found
ENDINGS = "s|es|ed|d|ing"  # regular English inflection

Span = tuple[int, int]
Context = str | tuple[str, str | Span]  # a sentence, or a sentence and the word's form or span in it


def unmarked(string: str) -> tuple[str, list[Span]]:
    """Return a string without its marks, and the spans that were marked."""
    text, spans = "", []
    for part in string.split(OPEN):
        word, mark, rest = part.partition(CLOSE)
        if mark:
            spans.append((len(text), len(text) + len(word)))
        text += word + rest
    return text, spans


def marked_contexts(contexts: Mapping[str, Sequence[Context]]) -> dict[str, list[str]]:
    """Mark each word in its sentences; see `word_spans`."""
    if not contexts:
        raise ValueError("contexts: got no word, wanted at least one")
    marked = {}
    for word, sentences in contexts.items():
        name = f"contexts[{word!r}]"
        if not isinstance(word, str) or isinstance(sentences, str) or not isinstance(sentences, Sequence):
            raise TypeError(f"{name}: got a {type(sentences).__name__}, wanted a list of sentences")
        if not sentences:
            raise ValueError(f"{name}: got no sentence, wanted at least one")
        marked[word] = [_marked(f"{name}[{i}]", word, context) for i, context in enumerate(sentences)]
    return marked


def word_spans(text: str, word: str) -> list[Span]:
    """Find a word in a text: unchanged, else in other case, else with a regular English ending ("nurses")."""
    word = re.escape(word)
    for pattern, flags in (word, 0), (word, re.IGNORECASE), (f"{word}(?:{ENDINGS})", re.IGNORECASE):
        if spans := [match.span() for match in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text, flags)]:
            return spans
    return []


def _marked(name: str, word: str, context: Any) -> str:
    text, occurrence = context if isinstance(context, tuple) and len(context) == 2 else (context, word)
    if not isinstance(text, str) or not isinstance(occurrence, str | tuple):
        raise TypeError(f"{name}: got a {type(context).__name__}, wanted a sentence or (sentence, 'form of the word')")
    if OPEN in text or CLOSE in text:
        raise ValueError(f"{name}: got one of the characters U+E000 and U+E001, which mark words here; leave it out")
    if isinstance(occurrence, tuple):
        if len(occurrence) != 2 or not all(isinstance(end, int) for end in occurrence):
            raise TypeError(f"{name}: got the span {occurrence}, wanted (start, end)")
        start, end = occurrence
        if not 0 <= start < end <= len(text):
            expected = f"one within the {len(text)} characters of the sentence"
            raise ValueError(f"{name}: got the span {occurrence}, wanted {expected}")
        spans = [(start, end)]
    elif isinstance(context, tuple):
        spans = [match.span() for match in re.finditer(re.escape(occurrence), text)] if occurrence else []
        spans = word_spans(text, occurrence) or spans
    else:
        spans = word_spans(text, word)
    if not spans:
        raise ValueError(
            f"{name}: found no {occurrence!r} in {text!r}; "
            f"write ({text!r}, 'its form there') or ({text!r}, (start, end))"
        )
    parts, end = [], 0
    for start, stop in spans:
        parts += [text[end:start], OPEN, text[start:stop], CLOSE]
        end = stop
    return "".join([*parts, text[end:]])
