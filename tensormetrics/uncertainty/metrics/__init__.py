"""Metrics of binary scores and probabilities, and `Uncertain`, which gives metrics of torchmetrics an interval.

Built on `_metric.py`, `_sum_metric.py` and `engine`.
"""
