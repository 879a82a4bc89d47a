"""Text completions: the older API of raw prompts, on the pipeline of chat completions."""
