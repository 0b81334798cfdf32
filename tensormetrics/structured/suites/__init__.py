"""Ready-made scores of one kind of structure: entities, coreference, events, relations, rankings, meaning graphs."""
