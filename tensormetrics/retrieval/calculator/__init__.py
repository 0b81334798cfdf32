"""`AccuracyCalculator`: many scores by name from one search, with the interface of pytorch-metric-learning.

`calculator` holds the class, `metric_names` its table of names, and `accuracy_calculator` the names that users of
pytorch-metric-learning import from its module of this name."""
