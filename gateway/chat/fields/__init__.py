"""The field table: every field that a chat request may have, its type, and who acts on it."""
