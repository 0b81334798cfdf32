"""The arguments of `run_query`."""

from typing import Any, NamedTuple

from ..embeddings.lookup import UNCHANGED, Search, check_flag, check_threshold, nearest
from ..embeddings.model import WordEmbeddingModel, check_model
from ..embeddings.query import IndexedQuery, Query, Template, check_query

ORDER = (
    "query",
    "model",
    "lost_vocabulary_threshold",
    "preprocessors",
    "strategy",
    "normalize",
    "warn_not_found_words",
)


class Call(NamedTuple):
    """What every metric is told: the query, the model, and how words are looked up."""

    query: Query
    model: WordEmbeddingModel
    search: Search
    lost_vocabulary_threshold: float
    normalize: bool
    warn_not_found_words: bool

    @classmethod
    def checked(
        cls,
        query: Any,
        model: Any,
        lost_vocabulary_threshold: Any = 0.2,
        preprocessors: Any = UNCHANGED,
        strategy: Any = "first",
        normalize: Any = False,
        warn_not_found_words: Any = False,
    ) -> "Call":
        check_query(query)
        check_model(model)
        check_threshold(lost_vocabulary_threshold)
        search = model.search(preprocessors, strategy)
        check_flag("normalize", normalize)
        check_flag("warn_not_found_words", warn_not_found_words)
        return cls(query, model, search, lost_vocabulary_threshold, normalize, warn_not_found_words)

    def look_up(self, paired: bool, query: Query | None = None) -> IndexedQuery:
        """The rows of the words of this query, or of another one by the same rules."""
        rules = (self.search, self.lost_vocabulary_threshold, paired, self.warn_not_found_words)
        return self.model.index(query or self.query, *rules)


def bind(
    metric: str, own: tuple[str, ...], by_position: bool, args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Call, dict[str, Any]]:
    """The call, and the `own` options of the metric."""
    if len(args) == 2 and not keywords:
        return Call.checked(*args), {}
    most = len(ORDER) if by_position else 2
    if len(args) > most:
        raise TypeError(
            f"{metric}.run_query: got {len(args)} arguments by position, wanted at most {most}; name the others"
        )
    given = dict(zip(ORDER, args, strict=False))
    if twice := sorted(given.keys() & keywords.keys()):
        raise TypeError(f"{metric}.run_query: got {', '.join(twice)} by position and by name, wanted one")
    given |= keywords
    known = (*ORDER, *own)
    for name in given:
        if name not in known:
            raise TypeError(
                f"{metric}.run_query: got the unknown keyword {name!r}; did you mean {nearest(name, known)!r}?"
            )
    options = {name: given.pop(name) for name in own if name in given}
    if lacking := [name for name in ORDER[:2] if name not in given]:
        raise TypeError(f"{metric}.run_query: got no {lacking[0]}")
    return Call.checked(**given), options


def check_groups(query: Query, metric: str, equal: bool = False) -> None:
    """At least two attribute sets, and where `equal` as many target sets."""
    targets, attributes = query.template
    if attributes < 2 or (equal and targets != attributes):
        wanted = "equally many, at least 2" if equal else "at least 2 attribute sets"
        raise ValueError(
            f"query: {query.query_name!r} has {targets} target and {attributes} attribute sets, wanted {wanted} for "
            f"the metric {metric}"
        )


def check_template(query: Query, template: Template, metric: str) -> None:
    for side, got, wanted in zip(("target", "attribute"), query.template, template, strict=True):
        if got != wanted and not (wanted == "n" and got):
            asked = "one or more" if wanted == "n" else wanted
            raise ValueError(
                f"query: {query.query_name!r} has {got} {side} sets, wanted {asked} for the metric {metric}"
            )
