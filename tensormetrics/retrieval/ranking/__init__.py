"""Ranks of the relevant references of queries, by search or by counting, also over several processes."""
