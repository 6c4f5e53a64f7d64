"""The boundary to Django's requests and responses."""
