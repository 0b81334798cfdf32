"""Studies of many experiments, their tables, comparisons and plots, and `ConfusionPosterior` for training loops.

Built on all other subpackages of the domain.
"""
