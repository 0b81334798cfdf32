"""Intervals and comparisons that hold at every number of items.

Stands on `item_scores`.
"""
