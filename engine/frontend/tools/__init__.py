"""Tool calls: grammars that constrain them, and a parser that finds them in answers."""
