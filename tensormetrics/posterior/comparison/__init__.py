"""Comparisons of two or more classifiers by posterior samples or paired answers, and planning of sample sizes.

Built on `sampling`, `metrics` and `summaries`.
"""
