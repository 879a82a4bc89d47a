"""Templates of pairs of questions: two with different answers, or two wordings of one."""
