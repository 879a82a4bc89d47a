"""Random choices of a route that explores, and the probabilities that they are recorded with."""
