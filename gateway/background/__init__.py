"""Background work: audits, shadows and learning, off the path of requests."""
