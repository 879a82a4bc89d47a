"""The policy document: its types, its YAML form, its checks, edits and differences."""
