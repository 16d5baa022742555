#!/usr/bin/env python3
"""Runs a command and checks that it neither changes nor opens the given files.

untouched.py [--readable] PATH… -- COMMAND…   runs COMMAND; fails with status 99 if it changes a PATH or a file below a PATH or,
                                              without --readable, opens one; otherwise has the exit status of COMMAND
untouched.py --check                          fails if the system does not report opened files (inotify)
"""
import ctypes
import hashlib
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

ACCESS, MODIFY, ATTRIB, OPEN, IS_DIR = 0x1, 0x2, 0x4, 0x20, 0x40000000
CHANGES = MODIFY | ATTRIB | 0xFC0  # 0xFC0: the events for moved, created and deleted files
TOUCHED_STATUS = 99


def paths_below(paths):
    """Returns the paths and everything below them; links are not followed."""
    all_paths = []
    for path in map(pathlib.Path, paths):
        all_paths.append(path)
        if path.is_dir() and not path.is_symlink():
            all_paths += paths_below(sorted(path.iterdir()))
    return all_paths


def describe_files(paths):
    """Returns {path: (mode, inode, size, time of modification, hash or target)} of everything below the paths."""
    entries = {}
    for path in paths_below(paths):
        status = path.lstat()
        content = ""
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        entries[path] = status.st_mode, status.st_ino, status.st_size * (not path.is_dir()), status.st_mtime_ns, content
    return entries


class Watch:
    """Compares the files below `paths` before and after the block of a `with` statement, and lists events of inotify."""

    def __init__(self, paths, readable=False):
        self.paths, self.mask = paths, CHANGES | (0 if readable else OPEN | ACCESS)

    def __enter__(self):
        self.before = describe_files(self.paths)
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK)
        self.names = {libc.inotify_add_watch(self.descriptor, os.fsencode(path), self.mask): path for path in self.before
                      if not path.is_symlink()}
        if self.descriptor < 0 or -1 in self.names:
            raise OSError(ctypes.get_errno(), "inotify is not available")
        return self

    def __exit__(self, *_):
        events = []
        try:
            while data := os.read(self.descriptor, 1 << 16):
                while data:
                    watch, mask, _, length = struct.unpack_from("iIII", data)
                    name = data[16:16 + length].rstrip(b"\0").decode()
                    data = data[16 + length:]
                    # Opening a folder to list its files is harmless. An event for a file without a watch of its own concerns a new file.
                    if mask & self.mask and not (mask & IS_DIR and not mask & CHANGES):
                        events.append(f"{self.names.get(watch, '?')}{'/' + name if name else ''}: " +
                                      ("changed" if mask & CHANGES else "opened"))
        except BlockingIOError:
            pass
        os.close(self.descriptor)
        after = describe_files(self.paths)
        changes = [f"{path}: differs" for path in sorted(self.before.keys() | after.keys()) if self.before.get(path) != after.get(path)]
        self.problems = changes + sorted(set(events))


def check_inotify():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "file")
        file.write_text("x")
        with Watch([folder]) as watch:
            file.read_text()
    return 0 if watch.problems else "inotify reports no opened files"


def main(arguments):
    if arguments == ["--check"]:
        return check_inotify()
    readable = arguments[0] == "--readable"
    end = arguments.index("--")
    with Watch(arguments[readable:end], readable) as watch:
        status = subprocess.run(arguments[end + 1:], check=False).returncode
    for problem in watch.problems:
        print(f"untouched: {problem}", file=sys.stderr)
    return TOUCHED_STATUS if watch.problems else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
