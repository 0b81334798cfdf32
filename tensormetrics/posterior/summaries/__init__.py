"""Summaries of posterior samples, and the printing of tables.

Built on `uncertainty.statistics` only.
"""
