"""A payment provider to practise with; standard library only, runnable as its own process."""
