"""Plans of a policy as lines for a terminal."""
