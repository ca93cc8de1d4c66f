"""Ramet's own endpoints: grammars, tokenizing, operations, program hints."""
