"""The life of the policy document: revisions, where they come from, and trials of one against another."""
