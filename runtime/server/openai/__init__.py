"""OpenAI's APIs: chat, completions, responses, embeddings, models."""
