"""Texts of answers without their formatting, and what they state."""
