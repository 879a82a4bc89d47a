"""The scheduler: admission, lanes, prompt budget and the sequences of each step."""
