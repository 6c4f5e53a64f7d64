"""Safe retries for Django: one key, one effect, one answer."""

__version__ = "0.1.0"
