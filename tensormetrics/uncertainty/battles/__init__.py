"""Pairwise judgements: `bradley_terry` estimates strengths from counts of outcomes, `ratings` keeps the battles."""
