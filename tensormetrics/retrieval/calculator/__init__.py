"""`AccuracyCalculator`: many scores by name from one search, as testers of metric learning call it.

`calculator` is the door, `metric_names` its table of names, and `accuracy_calculator` holds those that users of
pytorch-metric-learning import from its module of this name."""
