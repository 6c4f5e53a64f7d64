"""The Celery application: python -m celery -A testproject worker"""

import os
from pathlib import Path
from typing import Any

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES["filesystem"] = "testproject.broker:Transport"  # its messages appear whole
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

app = Celery("testproject")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@app.on_after_configure.connect
def make_folders(sender: Any, **kwargs: Any) -> None:
    """Those of the filesystem's broker; here and not above, because the settings import this package first."""
    if sender.conf.broker_url.startswith("filesystem:"):
        for name, value in sender.conf.broker_transport_options.items():
            if "folder" in name:
                Path(value).mkdir(parents=True, exist_ok=True)
