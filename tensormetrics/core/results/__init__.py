"""Result types of all domains: a number with its interval, a difference of two, and a table of several."""
