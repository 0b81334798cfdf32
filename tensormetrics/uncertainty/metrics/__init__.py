"""Metrics of binary scores and probabilities, and `Uncertain`, which gives metrics of torchmetrics an interval.

Built on `core.metric` and `core.resampling`.
"""
