"""Regexes in the syntaxes of Python and ECMA-262: parser, syntax tree, automaton."""

from .compile import node_dfa, regex_dfa

__all__ = ["node_dfa", "regex_dfa"]
