"""The response cache: an exact tier, a semantic tier, and the audits that bound wrong answers."""
