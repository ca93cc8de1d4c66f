"""What a program's calls are sent to."""
