"""The comparison of two questions' wordings, and the probability that one answer fits both."""
