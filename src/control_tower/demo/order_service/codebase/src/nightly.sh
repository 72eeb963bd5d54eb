#!/bin/sh
# What the scheduler starts every night at two.
set -e
cd "$(dirname "$0")/release"
exec python3 -m orders nightly
