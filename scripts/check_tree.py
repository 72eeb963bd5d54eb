"""Refuse files that tie the repository to one machine: its paths, hosts of package registries, uv.lock."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOSTS = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "deb.deb" + "ian.org",
    "npm" + "js.org",
    "snapshot.deb" + "ian",
]
PATHS = [str(ROOT.resolve()), str(Path.home() / ".pyenv"), "/wor" + "k/", "/opt/whe" + "els"]


def main() -> int:
    """Print each offending line; exit 1 when there is one."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name]
    problems = [f"{name}: pins belong into requirements/" for name in names if Path(name).name == "uv.lock"]
    forbidden = re.compile("|".join(map(re.escape, HOSTS + PATHS)))
    for name in names:
        file = ROOT / name
        if not file.is_file():
            continue
        for number, line in enumerate(file.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            if match := forbidden.search(line):
                problems.append(f"{name}:{number}: {match[0]}")
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
