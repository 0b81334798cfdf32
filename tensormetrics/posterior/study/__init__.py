"""Studies of many experiments, their reports, comparisons and pooling, and `ConfusionPosterior` for training loops.

Built on all other subpackages of the domain.
"""
