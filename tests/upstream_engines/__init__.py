"""Other engines behind the gateway: vLLM and llama.cpp as they are installed from the package index."""
