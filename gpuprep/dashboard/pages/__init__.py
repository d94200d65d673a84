"""What does each page show? Reads the board and the store, judges nothing. A module a page."""
