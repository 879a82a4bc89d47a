"""GGUF files: their container, their blocks of quantized numbers, and the Hugging Face folder made from one."""
