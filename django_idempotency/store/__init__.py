"""The only SQL: one guarded statement per change, answering a row, a bool or a count."""
