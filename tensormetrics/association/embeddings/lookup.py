"""From words to the keys of a vocabulary: preprocessing, the search, and when a set has lost too many words."""

import difflib
import logging
import numbers
import unicodedata
import warnings
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ... import _checks
from .query import Query

log = logging.getLogger("tensormetrics.association")

PreprocessorArgs = dict[str, bool | str | Callable | None]
Preprocess = Callable[[str], str]
AS_THEY_STAND: list[PreprocessorArgs] = [{}]  # how words are looked up unless somebody says otherwise

CASES = {"lowercase": str.lower, "uppercase": str.upper, "titlecase": str.title}
ACCENTS = {
    "unicode": lambda character: not unicodedata.combining(character),
    "ascii": str.isascii,
}  # which characters of the decomposed word stay
OPTIONS = (*CASES, "strip_accents", "preprocessor")


def preprocess_word(word: str, options: PreprocessorArgs = {}, vocab_prefix: str | None = None) -> str:  # noqa: B006
    """`vocab_prefix` and `word`, with the case and the accents that a vocabulary has.

    `options`: the first true one of `lowercase`, `uppercase`, `titlecase`; then `strip_accents`, which decomposes the
    word (NFKD) and drops combining marks (True or "unicode") or all that is not ASCII ("ascii"). A callable
    `preprocessor` takes the place of all of these. An unknown option is a UserWarning, an unknown value a ValueError.

    >>> preprocess_word("Ñandú", {"lowercase": True, "strip_accents": True}, "/c/es/")
    '/c/es/nandu'
    """
    if not isinstance(word, str):
        raise TypeError(f"word: got a {type(word).__name__}, wanted a str")
    return (vocab_prefix or "") + preprocessing(options, "options")(word)


def preprocessing(options: PreprocessorArgs, argument: str) -> Preprocess:
    """The function of a word that `options` describe."""
    if not isinstance(options, dict):
        raise TypeError(f"{argument}: got a {type(options).__name__}, wanted a dict of options")
    for name, value in options.items():
        if name not in OPTIONS:
            warnings.warn(
                f"{argument}: the option {name!r} is unknown and ignored; did you mean {nearest(name, OPTIONS)!r}?",
                UserWarning,
                stacklevel=2,
            )
        elif name in CASES:
            _checks.check_choice(f"{argument}[{name!r}]", value, (None, True, False))
        elif name == "strip_accents":
            _checks.check_choice(f"{argument}['strip_accents']", value, (None, True, False, *ACCENTS))
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


def preprocessings(preprocessors: Any) -> list[Preprocess]:
    """The functions of a list of options."""
    if not isinstance(preprocessors, list):
        raise TypeError(f"preprocessors: got a {type(preprocessors).__name__}, wanted a list of dicts of options")
    if not preprocessors:
        raise TypeError("preprocessors: got an empty list, wanted at least one dict of options; write [{}] for none")
    return [preprocessing(options, f"preprocessors[{i}]") for i, options in enumerate(preprocessors)]


def nearest(name: Any, choices: Sequence[str]) -> str:
    return max(choices, key=lambda choice: difflib.SequenceMatcher(None, str(name), choice).ratio())


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name}: got a {type(value).__name__}, wanted True or False")


def check_threshold(threshold: Any) -> None:
    if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real):
        raise TypeError(f"lost_vocabulary_threshold: got {threshold!r}, wanted a number between 0 and 1")
    if not 0 <= float(threshold) <= 1:
        raise ValueError(f"lost_vocabulary_threshold: got {threshold!r}, wanted a number between 0 and 1")


class Search:
    """How words are looked up in a vocabulary: which forms are tried, and whether the first or all of them count."""

    def __init__(
        self,
        vocabulary: Container[str],
        prefix: str | None,
        preprocessors: list[PreprocessorArgs],
        strategy: str = "first",
    ) -> None:
        _checks.check_choice("strategy", strategy, ("first", "all"))
        self.vocabulary = vocabulary
        self.prefix = prefix or ""
        self.functions = [str] if preprocessors is AS_THEY_STAND else preprocessings(preprocessors)
        self.strategy = strategy

    def variant(self, word: str, function: Preprocess) -> str:
        key = function(word)
        if not isinstance(key, str):
            raise TypeError(f"preprocessor: got a {type(key).__name__} for the word {word!r}, wanted a str")
        return self.prefix + key

    def first(self, word: str) -> str | None:
        """The first form of a word that is in the vocabulary."""
        forms = (self.variant(word, function) for function in self.functions)
        return next((key for key in forms if key in self.vocabulary), None)

    def words(self, words: Iterable[str]) -> "Found":
        """Every distinct word for itself."""
        words = dict.fromkeys(words)
        if self.functions == [str] and not self.prefix:  # as they stand
            lost = [word for word in words if word not in self.vocabulary]
            known = [word for word in words if word in self.vocabulary] if lost else list(words)
            return Found(known, lost, len(words), lost)
        keys: dict[str, int] = {}
        not_found, lost = [], []
        for i, word in enumerate(words):
            found = False
            for function in self.functions:
                key = self.variant(word, function)
                if key not in self.vocabulary:
                    not_found.append(key)
                    continue
                found = True
                keys.setdefault(key, i)
                if self.strategy == "first":
                    break
            if not found:
                lost.append(word)
        return Found(list(keys), lost, len(words), not_found, self._origins(keys.values()))

    def tuples(self, tuples: Iterable[tuple[str, ...]]) -> "Found":
        """Words that belong together; a tuple is found if all of them are, under "all" by the same preprocessor."""
        tuples = list(tuples)
        if self.functions == [str] and not self.prefix and all(word in self.vocabulary for word in chain(*tuples)):
            return Found(tuples, [], len(tuples), origins=self._origins(range(1, len(tuples) + 1)))
        keys: list[tuple[str | None, ...]] = []
        origins, lost, total = [], [], 0
        for words in tuples:
            total += 1
            if self.strategy == "first":
                first = tuple(map(self.first, words))
                found = [] if None in first else [first]
            else:
                found = dict.fromkeys(tuple(self.variant(word, f) for word in words) for f in self.functions)
                found = [variants for variants in found if all(key in self.vocabulary for key in variants)]
            keys += found
            origins += [total] * len(found)
            if not found:
                lost.append(words)
        return Found(keys, lost, total, origins=self._origins(origins))

    def _origins(self, origins: Iterable[int]) -> list[int] | None:
        return list(origins) if self.strategy == "all" else None


class Found(NamedTuple):
    keys: list  # what is in the vocabulary: each key once, or a tuple of keys per tuple of words
    lost: list  # words, or tuples, of which nothing is
    total: int  # distinct words, or tuples, that were asked for
    not_found: Sequence[str] = ()  # every form tried in vain
    origins: list[int] | None = None  # the number of each key's word or tuple; None: no two are of one

    def trouble(self, threshold: float, kind: str = "words") -> str | None:
        """Why so few are no sample of the set, or None."""
        if not self.total:
            return "is empty"
        share = len(self.lost) / self.total
        if self.keys and share <= threshold:
            return None
        why = f"{share:.3g} > {threshold}" if share > threshold else "nothing is left"
        return f"lost {len(self.lost)} of {self.total} {kind} ({why})"


class LookedUp(NamedTuple):
    words: tuple[list, list]  # keys found, by side and set
    origins: tuple[list, list]  # as in `Found`
    lost: tuple[list, list]  # words
    reason: str | None  # why the query cannot be scored


def look_up(
    query: Query, search: Search, model: str, threshold: float, paired: bool, warn_not_found_words: bool
) -> LookedUp:
    """All sets of a query; logs losses.

    `paired`: the target sets, or if there is one only the attribute sets, are aligned by position, as pairs or tuples.
    """
    words: tuple[list, list] = ([], [])
    origins: tuple[list, list] = ([], [])
    lost: tuple[list, list] = ([], [])
    troubles = []
    aligned = (0 if len(query.target_sets) > 1 else 1) if paired else None
    sides = ((query.target_sets, query.target_sets_names), (query.attribute_sets, query.attribute_sets_names))
    for side, (sets, names) in enumerate(sides):
        if side == aligned:
            check_aligned(sets, names)
            found = search.tuples(zip(*sets, strict=True))
            troubles.append((" and ".join(map(repr, names)), found.trouble(threshold, "tuples")))
            words[side].extend([list(keys) for keys in zip(*found.keys, strict=True)] or [[] for _ in sets])
            origins[side].extend(found.origins for _ in sets)
            lost[side].extend([list(keys) for keys in zip(*found.lost, strict=True)] or [[] for _ in sets])
        else:
            for members, name in zip(sets, names, strict=True):
                found = search.words(members)
                troubles.append((repr(name), found.trouble(threshold)))
                words[side].append(found.keys)
                origins[side].append(found.origins)
                lost[side].append(found.lost)
        if warn_not_found_words:
            for name, missing in zip(names, lost[side], strict=True):
                if missing:
                    log.warning("%r: not in the vocabulary of %r: %s", name, model, ", ".join(missing))
    reasons = [f"{name} {trouble}" for name, trouble in troubles if trouble]
    for reason in reasons:
        log.warning("%s in the model %r; the lost_vocabulary_threshold is %s", reason, model, threshold)
    if not reasons:
        return LookedUp(words, origins, lost, None)
    log.warning("the query %r has no score in the model %r", query.query_name, model)
    return LookedUp(words, origins, lost, "; ".join(reasons))


def check_aligned(sets: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Sets that form pairs or tuples by position have one length."""
    if len(set(map(len, sets))) > 1:
        lengths = ", ".join(f"{name!r} has {len(members)}" for name, members in zip(names, sets, strict=True))
        raise ValueError(f"query: {lengths} words, wanted lists of one length, because they form tuples by position")
