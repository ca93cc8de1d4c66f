"""What is known of programs: admission, shared prefixes, tool durations."""
