#!/bin/sh
# Bring a changed crawler into use. There is no daemon: this checks that the program starts and that its
# configuration can be read, and says whether a partner session is configured.
set -e
cd "$(dirname "$0")"
python3 -m crawler --help >/dev/null
python3 - <<'PY'
import json
import os

for name in ("crawler", "session"):
    with open(f"config/{name}.json", encoding="utf-8") as file:
        config = json.load(file)
print("crawler ready, partner session:", "yes" if os.environ.get(config["value_env"]) else "no")
PY
