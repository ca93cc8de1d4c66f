"""Programs in the scheduler: admission, kept and shared prefixes, tool durations."""
