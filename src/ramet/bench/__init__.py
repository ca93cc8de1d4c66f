"""``ramet bench``: seeded workloads against the in-process engine or any OpenAI-compatible URL."""
