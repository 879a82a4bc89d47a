"""Life cycle of the policy document: revisions, their sources, and trials of one against another."""
