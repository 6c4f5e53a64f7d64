"""For uvicorn and other ASGI servers."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
# Each request has a thread of its own there, so a connection that is kept would never be used again.
os.environ.setdefault("DATABASE_CONN_MAX_AGE", "0")
application = ASGIStaticFilesHandler(get_asgi_application())  # as in wsgi.py
