"""The JSON log and the redaction of secrets in it."""
