"""The types that cross the runtime's borders: requests, events, errors, batches."""
