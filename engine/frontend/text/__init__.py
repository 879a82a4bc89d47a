"""Text of prompts and answers: chat template, tokenizer, stop strings and choices."""
