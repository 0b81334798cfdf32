"""The arguments of `run_query`."""

from typing import Any, NamedTuple

from ...core.arguments import checks
from ..embeddings.lookup import UNCHANGED, Search, check_threshold, nearest
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
    """Arguments that every metric receives: the query, the model, and the options of the lookup."""

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
        checks.check_flag("normalize", normalize)
        checks.check_flag("warn_not_found_words", warn_not_found_words)
        return cls(query, model, search, lost_vocabulary_threshold, normalize, warn_not_found_words)

    def look_up(self, paired: bool, query: Query | None = None) -> IndexedQuery:
        """Look up the words of this query, or of another one with the same options."""
        rules = (self.search, self.lost_vocabulary_threshold, paired, self.warn_not_found_words)
        return self.model.index(query or self.query, *rules)


def bind(
    metric: str, metric_options: tuple[str, ...], by_position: bool, args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Call, dict[str, Any]]:
    """Bind the arguments of `run_query`; return the call, and the options of the metric."""
    if len(args) == 2 and not keywords:
        return Call.checked(*args), {}
    max_args = len(ORDER) if by_position else 2
    if len(args) > max_args:
        raise TypeError(
            f"{metric}.run_query: got {len(args)} arguments by position, wanted at most {max_args}; name the others"
        )
    arguments = dict(zip(ORDER, args, strict=False))
    if repeated := sorted(arguments.keys() & keywords.keys()):
        raise TypeError(f"{metric}.run_query: got {', '.join(repeated)} by position and by name, wanted one")
    arguments |= keywords
    supported = (*ORDER, *metric_options)
    for name in arguments:
        if name not in supported:
            hint = checks.compat_hint(name) or f"; did you mean {nearest(name, supported)!r}?"
            raise TypeError(f"{metric}.run_query: got the unknown keyword {name!r}{hint}")
    options = {name: arguments.pop(name) for name in metric_options if name in arguments}
    if missing := [name for name in ORDER[:2] if name not in arguments]:
        raise TypeError(f"{metric}.run_query: got no {missing[0]}")
    return Call.checked(**arguments), options


def check_groups(query: Query, metric: str, equal: bool = False) -> None:
    """Check for at least two attribute sets and, if `equal`, for as many target sets."""
    targets, attributes = query.template
    if attributes < 2 or (equal and targets != attributes):
        expected = "equally many, at least 2" if equal else "at least 2 attribute sets"
        raise ValueError(
            f"query: {query.query_name!r} has {targets} target and {attributes} attribute sets, wanted {expected} for "
            f"the metric {metric}"
        )


def check_template(query: Query, template: Template, metric: str) -> None:
    for role, got, expected in zip(("target", "attribute"), query.template, template, strict=True):
        if got != expected and not (expected == "n" and got):
            requested = "one or more" if expected == "n" else expected
            raise ValueError(
                f"query: {query.query_name!r} has {got} {role} sets, wanted {requested} for the metric {metric}"
            )
