"""`penstock replay`: a recorded answer given again."""
