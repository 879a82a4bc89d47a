"""Sources of models: folders, GGUF files, bundled and packaged models, and the Hugging Face hub."""
