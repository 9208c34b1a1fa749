#!/bin/sh
# Written by tools/packages of kubelot, for dpkg and rpm.
set -e
booted() { [ -d /run/systemd/system ]; }
has() { command -v "$1" >/dev/null; }
