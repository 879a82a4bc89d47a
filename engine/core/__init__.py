"""The core process: assembly, message exchange with the front, and the step loop."""
