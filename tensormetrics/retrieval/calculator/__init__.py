"""`AccuracyCalculator`: many scores by name from one search, with the interface of pytorch-metric-learning.

`calculator` holds the class, and `metric_names` its table of names."""
