"""Token masks: the vocabulary's trie, and the walk of a grammar over it."""
