"""Where models come from: folders, GGUF files, bundled and packaged models, and the Hugging Face hub."""
