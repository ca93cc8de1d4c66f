"""What an engine reports of itself: counts, collections, stuck steps, recorded requests."""
