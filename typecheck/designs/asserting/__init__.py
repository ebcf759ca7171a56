"""Before the pull request: the base says `AttentionSpec`, and what gets another spec asserts that it did."""
