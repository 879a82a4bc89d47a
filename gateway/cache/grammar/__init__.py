"""Parts of a question that change what it asks without naming a thing: code, modals, tense, quantity, spelling."""
