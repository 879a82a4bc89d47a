"""Training of quality predictors from compared answers."""
