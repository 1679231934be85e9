"""The nouns of promptmill: shapes, ids, settings and errors. No I/O happens here."""
