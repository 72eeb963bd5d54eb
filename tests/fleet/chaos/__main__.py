"""`python -m tests.fleet.chaos --seeds 5`: fleets to which everything happens, one after the other."""

import argparse
import collections
import shutil
import tempfile
import time
import traceback
from pathlib import Path

from tests.fleet.chaos.checks import check_ended
from tests.fleet.chaos.fleet import ChaosFleet, small_disks
from tests.fleet.chaos.storm import CHECKPOINTS, Storm


def main() -> int:
    """Runs them; returns the number of those that went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--faults", type=int, default=12)
    parser.add_argument("--kinds", default="", help="only these, by comma")
    parser.add_argument("--checkpoints", default="", help="at each, these, by comma, as kill-controller")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    given = parser.parse_args()
    wrong = 0
    for seed in range(given.first, given.first + given.seeds):
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        fleet = ChaosFleet(folder, given.jobs)
        at = CHECKPOINTS if given.checkpoints else ()
        storm = Storm(fleet, seed, (), at, 2.0, given.faults, then=given.checkpoints.split(","))
        storm.kinds = given.kinds.split(",") if given.kinds else sorted(storm.faults.known)
        with small_disks(folder, data="64m", logs="16m"):
            try:
                storm.run()
                check_ended(fleet)
                assert storm.shown == []
                verdict = "whole"
            except (AssertionError, ValueError, LookupError, OSError):
                wrong += 1
                verdict = f"WRONG {traceback.format_exc()}\n{storm.report()}"
            finally:
                fleet.end_all()
            done = collections.Counter(line.split()[1] for line in storm.faults.done)
            print(
                f"seed {seed}: {verdict}; {len(fleet.claims)} attempts, {fleet.starts} controllers, "
                f"{time.monotonic() - began:.0f} s; {dict(done)}",
                flush=True,
            )
            if given.keep:
                print(folder, flush=True)
                shutil.copytree(folder, f"{folder}-kept", symlinks=True)
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
