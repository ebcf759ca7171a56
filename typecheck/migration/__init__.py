"""The codemod on packages as they are released: what it does to copies of them, and what checkers say of that."""
