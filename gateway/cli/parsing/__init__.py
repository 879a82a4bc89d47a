"""Parsing of the command line: errors that suggest, and shell completion made from the parser."""
