"""Run the provider: python -m testproject.gateway --port 9000"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from testproject.gateway.ledger import Ledger
from testproject.gateway.provider import Provider
from testproject.gateway.server import GatewayServer
from testproject.gateway.webhooks import Webhooks

DEMO_SECRET = "whsec_demo"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m testproject.gateway", description="A payment provider to test with."
    )
    parser.add_argument("--port", type=int, default=9000, help="0 takes any free port and prints it")
    parser.add_argument("--host", default="127.0.0.1", help="where it listens; 0.0.0.0 in a container")
    parser.add_argument("--ledger", type=Path, help="file with one JSON line per charge (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gateway-") as folder:
        webhooks = Webhooks(os.environ.get("GATEWAY_WEBHOOK_SECRET", DEMO_SECRET))
        ledger = Ledger(options.ledger or Path(folder, "ledger.jsonl"))
        server = GatewayServer(options.port, Provider(ledger, announce=webhooks.announce), host=options.host)
        print(f"The gateway listens on http://127.0.0.1:{server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("The gateway stops.")


if __name__ == "__main__":
    main()
