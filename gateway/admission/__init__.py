"""Admission: which requests go on, in which lane and form."""
