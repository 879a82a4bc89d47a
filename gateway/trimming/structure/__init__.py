"""Structure of texts: what may be cut from a text as a whole, and how the rest is put together again."""
