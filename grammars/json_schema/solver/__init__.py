"""What values a schema allows: satisfiability, exact for the supported keywords."""
