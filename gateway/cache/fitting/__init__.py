"""The fit of the match model's coefficients to labelled questions."""
