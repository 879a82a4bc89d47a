"""Online models of latencies, lengths and ratios."""
