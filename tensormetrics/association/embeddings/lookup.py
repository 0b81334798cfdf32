"""Lookup of words in a vocabulary: preprocessing, search, and the check for sets that lost too many words."""

import logging
import numbers
import unicodedata
import warnings
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

from ...core.arguments import checks
from .query import Query

log = logging.getLogger("tensormetrics.association")

PreprocessorArgs = dict[str, bool | str | Callable | None]
Preprocess = Callable[[str], str]
Strategy = Literal["first", "all"]
UNCHANGED: list[PreprocessorArgs] = [{}]  # the default: words are looked up without preprocessing

CASES = {"lowercase": str.lower, "uppercase": str.upper, "titlecase": str.title}
ACCENTS = {
    "unicode": lambda character: not unicodedata.combining(character),
    "ascii": str.isascii,
}  # True for characters of the decomposed word that are kept
OPTIONS = (*CASES, "strip_accents", "preprocessor")


def preprocess_word(word: str, options: PreprocessorArgs = {}, vocab_prefix: str | None = None) -> str:  # noqa: B006
    """Convert a word to the case and accents of a vocabulary and prepend `vocab_prefix`.

    `options`: the first true one of `lowercase`, `uppercase`, `titlecase`; then `strip_accents`, which decomposes the
    word (NFKD) and drops combining marks (True or "unicode") or all non-ASCII characters ("ascii"). A callable
    `preprocessor` replaces all of these. An unknown option is a UserWarning, an unknown value a ValueError.

    >>> preprocess_word("Ñandú", {"lowercase": True, "strip_accents": True}, "/c/es/")
    '/c/es/nandu'
    """
    if not isinstance(word, str):
        raise TypeError(f"word: got a {type(word).__name__}, wanted a str")
    return (vocab_prefix or "") + preprocessing(options, "options")(word)


def preprocessing(options: PreprocessorArgs, argument: str) -> Preprocess:
    """Return the preprocessing function that `options` describe."""
    if not isinstance(options, dict):
        raise TypeError(f"{argument}: got a {type(options).__name__}, wanted a dict of options")
    for name, value in options.items():
        if name not in OPTIONS:
            warnings.warn(
                f"{argument}: the option {name!r} is unknown and ignored{checks.perhaps(name, OPTIONS)}",
                UserWarning,
                stacklevel=2,
            )
        elif name in CASES:
            checks.check_choice(f"{argument}[{name!r}]", value, (None, True, False))
        elif name == "strip_accents":
            checks.check_choice(f"{argument}['strip_accents']", value, (None, True, False, *ACCENTS))
    function = options.get("preprocessor")
    if function is not None:
        if not callable(function):
            raise TypeError(f"{argument}['preprocessor']: got a {type(function).__name__}, wanted a function of a word")
        return function
    cased = next((change for name, change in CASES.items() if options.get(name)), str)
    accents = options.get("strip_accents")
    if not accents:
        return cased
    stays = ACCENTS["ascii" if accents == "ascii" else "unicode"]
    return lambda word: "".join(filter(stays, unicodedata.normalize("NFKD", cased(word))))


def check_threshold(threshold: Any) -> None:
    if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real):
        raise TypeError(f"lost_vocabulary_threshold: got {threshold!r}, wanted a number between 0 and 1")
    if not 0 <= float(threshold) <= 1:
        raise ValueError(f"lost_vocabulary_threshold: got {threshold!r}, wanted a number between 0 and 1")


class WordSearch:
    """Lookup of words in a vocabulary: the forms to try, and whether to use the first match or all matches."""

    def __init__(
        self, vocabulary: Container[str], prefix: str | None, preprocessors: list[PreprocessorArgs], strategy: Strategy
    ) -> None:
        if not isinstance(preprocessors, list):
            got, hint = type(preprocessors).__name__, checks.compat_hint("preprocessor_args")
            hint = hint if got == "dict" else ""
            raise TypeError(f"preprocessors: got a {got}, wanted a list of dicts of options{hint}")
        if not preprocessors:
            raise TypeError(
                "preprocessors: got an empty list, wanted at least one dict of options; write [{}] for none"
            )
        functions = [preprocessing(options, f"preprocessors[{i}]") for i, options in enumerate(preprocessors)]
        self.functions: list[Preprocess] = [str] if preprocessors is UNCHANGED else functions
        checks.check_choice("strategy", strategy, get_args(Strategy))
        self.vocabulary = vocabulary
        self.prefix = prefix or ""
        self.strategy = strategy

    def variant(self, word: str, function: Preprocess) -> str:
        key = function(word)
        if not isinstance(key, str):
            raise TypeError(f"preprocessor: got a {type(key).__name__} for the word {word!r}, wanted a str")
        return self.prefix + key

    def first(self, word: str) -> str | None:
        """Return the first form of a word that is in the vocabulary."""
        forms = (self.variant(word, function) for function in self.functions)
        return next((key for key in forms if key in self.vocabulary), None)

    def words(self, words: Iterable[str]) -> "WordMatches":
        """Look up every distinct word."""
        words = dict.fromkeys(words)
        if self.functions == [str] and not self.prefix:  # without preprocessing
            lost = [word for word in words if word not in self.vocabulary]
            matches = [word for word in words if word in self.vocabulary] if lost else list(words)
            return WordMatches(matches, lost, len(words), lost)
        keys: dict[str, int] = {}
        lost, not_found = list[str](), list[str]()
        for i, word in enumerate(words):
            found: list[str] = []
            for function in self.functions:
                key = self.variant(word, function)
                (found if key in self.vocabulary else not_found).append(key)
                if found and self.strategy == "first":
                    break
            for key in found:
                keys.setdefault(key, i)
            if not found:
                lost.append(word)
        return WordMatches(list(keys), lost, len(words), not_found, self._origins(keys.values()))

    def tuples(self, tuples: Iterable[tuple[str, ...]]) -> "WordMatches":
        """Look up tuples of words; a tuple is found if all its words are, under "all" by the same preprocessor."""
        tuples = list(tuples)
        if self.functions == [str] and not self.prefix and all(word in self.vocabulary for word in chain(*tuples)):
            return WordMatches(tuples, [], len(tuples), origins=self._origins(range(len(tuples))))
        keys: list[tuple[str | None, ...]] = []
        origins, lost = [], []
        for i, words in enumerate(tuples):
            if self.strategy == "first":
                first = tuple(map(self.first, words))
                matches = [] if None in first else [first]
            else:
                matches = dict.fromkeys(tuple(self.variant(word, f) for word in words) for f in self.functions)
                matches = [variants for variants in matches if all(key in self.vocabulary for key in variants)]
            keys += matches
            origins += [i] * len(matches)
            if not matches:
                lost.append(words)
        return WordMatches(keys, lost, len(tuples), origins=self._origins(origins))

    def _origins(self, origins: Iterable[int]) -> list[int] | None:
        return list(origins) if self.strategy == "all" else None


class WordMatches(NamedTuple):
    """Result of looking up a set of words, or of tuples of words."""

    keys: list  # keys in the vocabulary, each once, or a tuple of keys per tuple of words
    lost: list  # words, or tuples, without a key
    total: int  # number of distinct words, or tuples
    not_found: Sequence[str] = ()  # all forms that were tried without success
    origins: list[int] | None = None  # the index of each key's word or tuple; None: every key has another word

    def loss_reason(self, threshold: float, kind: str = "words") -> str | None:
        """Return why the keys do not represent the set, or None if they do."""
        if not self.total:
            return "is empty"
        fraction = len(self.lost) / self.total
        if self.keys and fraction <= threshold:
            return None
        why = f"{fraction:.3g} > {threshold}" if fraction > threshold else "nothing is left"
        return f"lost {len(self.lost)} of {self.total} {kind} ({why})"


def look_up(
    query: Query, search: WordSearch, model: str, threshold: float, paired: bool, warn_not_found_words: bool
) -> tuple[tuple[list[WordMatches], list[WordMatches]], str | None]:
    """Return the matches of all sets, and the reason if the query cannot be scored; log lost words.

    `paired` aligns the target sets by position as pairs or tuples, or the attribute sets if there is one target set.
    """
    matches: tuple[list[WordMatches], list[WordMatches]] = ([], [])
    loss_reasons = []
    aligned = (0 if len(query.target_sets) > 1 else 1) if paired else None
    roles = ((query.target_sets, query.target_sets_names), (query.attribute_sets, query.attribute_sets_names))
    for role, (sets, names) in enumerate(roles):
        if role == aligned:
            if len(set(map(len, sets))) > 1:
                lengths = ", ".join(f"{name!r} has {len(members)}" for name, members in zip(names, sets, strict=True))
                expected = "lists of one length, because they form tuples by position"
                raise ValueError(f"query: {lengths} words, wanted {expected}")
            tuples = search.tuples(zip(*sets, strict=True))
            loss_reasons.append((" and ".join(map(repr, names)), tuples.loss_reason(threshold, "tuples")))
            columns = (
                [*map(list, zip(*rows, strict=True))] or [[] for _ in sets] for rows in (tuples.keys, tuples.lost)
            )
            matches[role].extend(tuples._replace(keys=keys, lost=lost) for keys, lost in zip(*columns, strict=True))
        else:
            matches[role].extend(map(search.words, sets))
            loss_reasons += [(repr(n), m.loss_reason(threshold)) for n, m in zip(names, matches[role], strict=True)]
        for name, match in zip(names, matches[role], strict=True):
            if match.lost and warn_not_found_words:
                log.warning("%r: not in the vocabulary of %r: %s", name, model, ", ".join(match.lost))
    reasons = [f"{name} {loss_reason}" for name, loss_reason in loss_reasons if loss_reason]
    for reason in reasons:
        log.warning("%s in the model %r; the lost_vocabulary_threshold is %s", reason, model, threshold)
    if reasons:
        log.warning("the query %r has no score in the model %r", query.query_name, model)
    return matches, "; ".join(reasons) or None
