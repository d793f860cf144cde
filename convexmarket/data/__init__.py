"""Tables in and out, and public preprocessing."""
