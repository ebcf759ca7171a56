"""The study: three designs of one API under several type checkers."""
