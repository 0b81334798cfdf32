"""What each command does once its options are read; imported by then, for all of it needs torch."""
