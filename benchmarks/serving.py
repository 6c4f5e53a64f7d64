"""The WSGI application of `python -m benchmarks`: no middleware, so that the ratios are those of the layer alone."""

from django.conf import settings
from django.core.wsgi import get_wsgi_application

settings.ROOT_URLCONF = "benchmarks.served"
settings.MIDDLEWARE = []
application = get_wsgi_application()
