"""Data of one step: sequences, scheduled chunks, inputs and outputs."""
