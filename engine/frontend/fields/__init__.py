"""The field table, as the engine has it: every field of a request, its type, and who acts on it."""
