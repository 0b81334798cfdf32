"""Overlap of structures with variables, under the best one-to-one mapping of the variables.

`terms` reads the problem, `search` climbs to good mappings and bounds the rest, `exact` proves one the best.
"""
