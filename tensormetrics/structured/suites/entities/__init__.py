"""Named entities and other labelled spans: tags are read, spans scored, and errors sorted."""
