"""What several experiments share, and the papers' own methods, which the package does not need."""
