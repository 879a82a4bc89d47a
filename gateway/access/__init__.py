"""Who may do what: API keys that the store holds, admins, their sessions and tokens, and the log of every change."""
