"""Several decode steps in one compiled call, with draft tokens from lookup and prediction heads."""
