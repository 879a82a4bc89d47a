"""Tool calls and reasoning: grammars around them, and parsers that find them in answers."""
