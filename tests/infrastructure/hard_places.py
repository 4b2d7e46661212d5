"""Code that runs where it is hard to: as somebody whom permissions bind, or on a disk that is soon full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_AS_NOBODY = """
import contextlib, io, os, shutil, sys, tempfile
from pathlib import Path

code, path = sys.argv[1:]

def run(at):
    sys.argv = ["-c", at]
    exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})

if os.getuid() == 0:
    # First on a copy: what Python loads late, it would load as somebody who may not read it.
    unseen = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(unseen):
        with contextlib.redirect_stderr(unseen):
            run(str(shutil.copytree(path, Path(folder) / "copy", symlinks=True)))
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
run(path)
"""


def as_somebody_else(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run code on `path` (its argument) as a user whom the permissions of files apply to.

    Root passes over them, and gives its rights away first; whoever else runs the tests is such a user.
    """
    for each in path.parents:
        if each.stat().st_uid == os.getuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o055)
    command = [sys.executable, "-c", _AS_NOBODY, code, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def on_a_small_disk(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code on `folder` (its argument), in which a file system of 3 MB is mounted for it alone."""
    if os.getuid() != 0 or not shutil.which("unshare"):
        pytest.skip("only root can mount the small file system that this test fills")
    mount = f'mount -t tmpfs -o size=3m none {folder} && exec {sys.executable} -c "$0" {folder}'
    command = ["unshare", "-m", "sh", "-c", mount, code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if "permission denied" in done.stderr.lower() and "mount" in done.stderr.lower():
        pytest.skip("this machine lets not even root mount the small file system that this test fills")
    return done
