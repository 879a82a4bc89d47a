"""Qwen generations, dense and with experts."""
