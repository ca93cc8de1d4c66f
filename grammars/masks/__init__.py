"""Token masks: filled by a walk of the vocabulary's trie, over cached context-independent masks."""
