"""The compiled CPU runner."""
