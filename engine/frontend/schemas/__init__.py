"""JSON schemas in the form that the grammar compiler enforces: patterns, references, counts of members."""
