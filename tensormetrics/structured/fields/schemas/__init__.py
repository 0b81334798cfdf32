"""Schemas of documents: the tree of types, and its readers and writers."""
