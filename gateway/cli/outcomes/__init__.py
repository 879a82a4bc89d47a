"""`penstock policy outcomes`: answers of two models to the same prompts, and the score of each."""
