"""Intervals and comparisons of scores, and probabilistic scores: is one model better than another?

Every metric has `interval()`. Two metrics that were updated with the same items are compared by `compare`.
"""

# The rooms, each built on the previous ones:
#   statistics: samples, pooling, tests over folds and data sets; imports no metric
#   metrics: metrics of binary scores and probabilities, and the wrapper of torchmetrics' metrics
#   item_scores: existing scores of items, in files, and in other containers
#   anytime: intervals that hold at every number of items
#   intervals: the interval of a score
#   pairs, comparison: comparisons of two metrics, of scores, of several models, and the function for all of them
#   planning: the number of items of a comparison
#   battles: strengths and ratings of models from pairwise judgements

from ..core.arguments.lazy import attach

# Imported when they are used: association needs two of these names, and all together are 4,000 lines.
__getattr__, __dir__ = attach(__name__, __file__)
__all__ = ["interval", "compare", "Estimate", "Comparison", "Table", "as_scalars"]
__all__ += ["Scores", "read_scores", "Uncertain", "correct_p_values", "plan", "UncertaintyWarning"]
__all__ += ["BinaryAUROC", "BinaryAveragePrecision", "BrierScore", "CalibrationError", "PassAtK", "Ratings"]
__all__ += ["compare_data_sets", "compare_folds", "compare_samples", "variance_components"]
