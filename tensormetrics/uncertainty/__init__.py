"""Intervals and comparisons of scores, and probabilistic scores: is one model better than another?

Every metric has `interval()`. Two metrics that were updated with the same items are compared by `compare`.
"""

# Subpackages and files, each built on the previous ones; `_metric.py` comes between `engine` and `statistics`:
#   results: the types of results; imports only files below all domains
#   engine: weights of items, intervals and comparisons of weighted sums
#   statistics: samples, pooling, tests over folds and data sets; imports no metric
#   metrics: metrics of binary scores and probabilities, and the wrapper of torchmetrics' metrics
#   item_scores, score_files, score_sources: existing scores of items, in files, and in other containers
#   sequences: intervals that hold at every number of items
#   scores: the interval of a score
#   metric_pairs, paired_scores, paired_sequences, model_tables, comparison: comparisons of two metrics, of scores, of
#     scores at every number of items, of several models, and the public function for all of them
#   planning: the number of items of a comparison
#   battles: strengths and ratings of models from pairwise judgements

from ..core.arguments.lazy import attach

# Imported when they are used: association needs two of these names, and all together are 4,000 lines.
__getattr__, __dir__, __all__ = attach(__name__, __file__)
