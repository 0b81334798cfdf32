"""Overlaps of padded tensors: sets, sequences, graphs, boxes and latent mappings, and the scores made of overlaps."""
