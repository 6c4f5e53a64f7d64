"""An app, so that workers find its operations."""

from pathlib import Path

from django.apps import AppConfig


class Served(AppConfig):
    name = "tests.celery.served"
    path = str(Path(__file__).parent)  # a folder without __init__.py may have another one behind it
