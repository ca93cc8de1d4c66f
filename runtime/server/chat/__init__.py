"""What every chat API shares: conversation, plan, tools, reasoning, output grammar."""
