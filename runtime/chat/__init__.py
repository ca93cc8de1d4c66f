"""Shared by all chat APIs: conversation, plan, tools, reasoning, output grammar."""
