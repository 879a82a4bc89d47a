"""Data of one step: sequences, scheduled rows, inputs and outputs."""
