"""Relevance of segments of a text to the question that a conversation ends with."""
