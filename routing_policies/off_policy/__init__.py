"""Off-policy evaluation: what a policy that never ran would have done with recorded requests, with its uncertainty."""
