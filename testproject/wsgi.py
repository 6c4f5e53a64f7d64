"""For gunicorn and other WSGI servers."""

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
# A demonstration has no web server in front of it, which elsewhere serves what collectstatic gathered.
application = StaticFilesHandler(get_wsgi_application())
