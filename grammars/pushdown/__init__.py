"""The pushdown automaton of a constraint: states, transitions, and the parser stack."""
