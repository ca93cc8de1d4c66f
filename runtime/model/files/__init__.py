"""Model files: GGUF, safetensors, and Hugging Face folders."""
