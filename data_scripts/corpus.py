#!/usr/bin/env python3
"""Downloads and reads files of public corpora. corpus.sh calls this program; it needs Python 3.9 and no packages.

usage: corpus.py lock DESCRIPTOR FOLDER | corpus.py file FILE SUM MIRROR URL | corpus.py members ARCHIVE FOLDER MEMBER=NAME… | corpus.py python PACKAGE==VERSION…
corpus.sh describes the commands. MH_SCRIPT: name of the calling script, which starts each message. Exit status: 0, 1 after an error, or 2 for another
command.
"""
import bz2
import contextlib
import fcntl
import filecmp
import fnmatch
import gzip
import hashlib
import http.client
import importlib.metadata
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib

CHUNK = 1 << 20  # bytes
DECOMPRESSORS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}  # by the first bytes of a file
# Control characters and characters that reorder text, which a file name may contain.
CONTROLS = re.compile("[\\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Fault(Exception):
    """An error whose text states what was expected, what was found, and what to do."""


class SourceFault(Exception):
    """A source that cannot be read to its end."""


def log(message):
    """Prints a message of one line on stderr, with escaped control characters."""
    text = CONTROLS.sub(lambda match: ascii(match[0])[1:-1], message)
    print(f"{os.environ.get('MH_SCRIPT', 'corpus.py')}: {text}", file=sys.stderr)


@contextlib.contextmanager
def writing(path):
    """Turns an error of the file system into a Fault that names `path`."""
    try:
        yield
    except OSError as error:
        raise Fault(f"{error.filename or path}: expected a writable file; found: {error.strerror}; correct the folder, its permissions or the disk space") from None


def copy(source, target):
    """Copies a stream to a file and returns the number of bytes. Raises SourceFault if reading fails, and OSError if writing fails."""
    num_bytes = 0
    while True:
        try:
            chunk = source.read(CHUNK)
        except (OSError, EOFError, http.client.HTTPException, tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error) as error:
            raise SourceFault(str(error) or type(error).__name__) from None
        if not chunk:
            return num_bytes
        target.write(chunk)
        num_bytes += len(chunk)


# Files ------------------------------------------------------------------------------------------------------------------------------

def wanted_sums(text):
    """Returns the pairs (kind, value) of "sha256:…,bytes:…"."""
    sums = [item.partition(":")[::2] for item in text.split(",") if item]
    for kind, value in sums:
        if kind not in ("sha256", "sha1", "md5", "bytes") or not value:
            raise Fault(f"expected checksums sha256, sha1 or md5, or sizes in bytes; found {kind}:{value}; correct the script")
    return sums


def actual_sum(path, kind):
    if kind == "bytes":
        return str(os.path.getsize(path))
    digest = hashlib.new(kind)
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def wrong_sum(path, sums):
    """Returns "expected …; found …" for the first sum that differs, or ""."""
    for kind, value in sums:
        found = actual_sum(path, kind)
        if found != value.lower():
            return f"expected {kind} {value}; found {found}"
    return ""


def read_mirror(mirrored, part):
    """Writes the content of a file of the mirror, decompressed if its name ends in .zst."""
    if not mirrored.endswith(".zst"):
        try:
            source = open(mirrored, "rb")
        except OSError as error:
            raise Fault(f"{mirrored}: expected a readable file; found: {error.strerror}; correct its permissions") from None
        with source:
            copy(source, part)
        return
    try:
        process = subprocess.Popen(["zstd", "-dcq", mirrored], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Fault("expected the program zstd; found none on the PATH; install the package zstd") from None
    with process:
        copy(process.stdout, part)
    if process.returncode != 0:
        raise Fault(f"expected a zstd file; found another format in {mirrored}; delete this file or download it again")


def open_source(url, start):
    """Opens the content of `url`, a local path or file:// or https://, at byte `start` if possible. Returns (stream, the byte at which it begins,
    the number of bytes that follow or None)."""
    local = url.removeprefix("file://")
    if local != url and not os.path.exists(local):
        local = urllib.request.url2pathname(local)
    if "://" not in local:
        file = open(local, "rb")
        start = min(start, os.path.getsize(local))
        file.seek(start)
        return file, start, os.path.getsize(local) - start
    # Some hosts refuse the user agent of urllib.
    request = urllib.request.Request(url, headers={"User-Agent": "multihead-data-scripts", **({"Range": f"bytes={start}-"} if start else {})})
    response = urllib.request.urlopen(request, timeout=60)
    length = response.headers.get("Content-Length")
    log(f"downloading {length or 'an unknown number of'} bytes from {url}")
    return response, start if response.status == 206 else 0, int(length) if length else None


def download(url, part, unpacks):
    """Appends the rest of the content of `url` to the file `part`, or writes all of it if the server cannot start within the content. unpacks: the
    content has the format of gzip, and `part` receives the decompressed bytes."""
    start = os.fstat(part.fileno()).st_size
    try:
        source, first, length = open_source(url, start)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # no bytes follow the present ones
            return
        raise SourceFault(f"HTTP status {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise SourceFault(getattr(reason, "strerror", None) or str(reason)) from None
    with source:
        part.truncate(first)
        if unpacks:
            with gzip.open(source) as unpacked:  # raises an EOFError at the end of an incomplete file
                copy(unpacked, part)
            return
        num_bytes = copy(source, part)
    if length is not None and num_bytes < length:
        raise SourceFault(f"the end after {first + num_bytes} of {first + length} bytes")


def fetch(path, sums, mirrored, url):
    """Writes the file to `path`.part and renames this file when its sums are correct. With known sums the file stays after a broken download,
    and the next call continues it."""
    name, part_path, origin = os.path.basename(path), path + ".part", mirrored or url
    unpacks = url.endswith(".gz") and not path.endswith("gz")
    keep = bool(sums) and not mirrored and not unpacks
    with writing(part_path), open(part_path, "ab") as part:  # also for an error of the last write when the file closes
        try:
            fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = os.path.exists(part_path) and os.path.samestat(os.stat(part_path), os.fstat(part.fileno()))
        except BlockingIOError:
            is_alone = False
        if not is_alone:
            raise Fault(f"{name}: expected one download at a time; found another process that writes {part_path}; wait for its end and run the script again")
        try:
            if not keep:
                part.truncate(0)
            resumes = os.path.getsize(part_path) > 0
            while True:
                try:
                    if mirrored:
                        read_mirror(mirrored, part)
                    else:
                        download(url, part, unpacks)
                except SourceFault as fault:
                    part.flush()
                    advice = "; a second call continues the download" if keep and os.path.getsize(part_path) else ""
                    raise Fault(f"{name}: expected the file in the mirror MH_DATA or from {origin}; found: {fault}; pass another URL (file:// for a copy of "
                                f"your own) or set MH_DATA to the folder of the mirror{advice}") from None
                part.flush()
                fault = wrong_sum(part_path, sums)
                if not (fault and resumes):
                    break
                resumes = False  # the bytes that were present belong to another file
                part.truncate(0)
            if fault:
                keep = False
                raise Fault(f"{name}: {fault} in {origin}; download from another URL, or replace the file in the mirror MH_DATA")
            os.replace(part_path, path)
        except BaseException:  # also a signal; after os.replace another process may own a new file of this name
            if os.path.exists(part_path) and not (keep and os.path.getsize(part_path)):
                os.remove(part_path)
            raise


def lock_folder(descriptor, folder):
    """Locks a folder for the calling script, which has opened it as `descriptor`."""
    try:
        fcntl.flock(int(descriptor), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Fault(f"{folder}: expected one script that writes this folder; found another; wait for its end and run the script again") from None
    except OSError as error:  # some network file systems lock only files that are open for writing
        log(f"{folder}: cannot be locked ({error.strerror}): run only one script at a time that writes this folder")


def fetch_file(path, sum_text, mirror, url):
    sums = [] if os.environ.get("MH_TEST_SUMS") == "none" else wanted_sums(sum_text)
    if os.path.isfile(path) and not wrong_sum(path, sums):
        log(f"{os.path.basename(path)}: present, not downloaded again")
        return
    data = os.environ.get("MH_DATA", "")
    mirrored = next((file for file in (os.path.join(data, mirror), os.path.join(data, mirror + ".zst")) if data and mirror and os.path.isfile(file)), "")
    fetch(path, sums, mirrored, url)
    if not sums:
        log(f"{os.path.basename(path)}: sha256 {actual_sum(path, 'sha256')}, without a published checksum to compare with")


# Members of archives ----------------------------------------------------------------------------------------------------------------

def open_archive(path):
    """Yields the pairs (name, stream, size) of the files in a zip or tar archive. The stream of a pair is read before the next pair."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            for member in file.infolist():
                if not member.is_dir():
                    yield member.filename, lambda member=member: file.open(member), member.file_size
        return
    with open(path, "rb") as file:
        magic = file.read(6)
    opener = next((opener for prefix, opener in DECOMPRESSORS.items() if magic.startswith(prefix)), open)
    # tarfile's own decompression takes the end of an incomplete file for the end of the archive; gzip, bz2 and lzma raise an EOFError.
    with opener(path, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as file:
        for member in file:
            if member.isfile():
                yield member.name, lambda member=member: file.extractfile(member), member.size


def write_member(source, size, path):
    """Writes a member to `path`; a file with the same content keeps its time of modification, so that newer files made from it stay valid."""
    folder, name = os.path.split(path)
    with writing(path):  # also for an error of the last write when the file closes
        os.makedirs(folder or ".", exist_ok=True)
        part = tempfile.NamedTemporaryFile(dir=folder or ".", prefix=name + ".part.", delete=False)
        try:
            with part:
                num_bytes = copy(source, part)
            if num_bytes != size:
                raise SourceFault(f"a member of {size} bytes that ends after {num_bytes} bytes")
            if not (os.path.isfile(path) and filecmp.cmp(part.name, path, shallow=False)):
                os.chmod(part.name, 0o666 & ~UMASK)
                os.replace(part.name, path)
        finally:
            if os.path.exists(part.name):
                os.remove(part.name)


def files_of(member, pairs):
    """Returns the pairs (index, file name) of the arguments MEMBER=NAME that match a member."""
    return [(i, name + os.path.basename(member) if name.endswith("/") else name) for i, (pattern, name) in enumerate(pairs)
            if member == pattern or (name.endswith("/") and fnmatch.fnmatchcase(member, pattern))]


def members(path, folder, *arguments):
    pairs = [argument.rpartition("=")[::2] for argument in arguments]
    has_patterns = any(name.endswith("/") for _, name in pairs)
    missing, others, short = set(range(len(pairs))), [], os.path.basename(path)
    if not os.path.isfile(path):
        raise Fault(f"{short}: expected the archive {path}; found no such file; download the archive first")
    try:
        for member, open_member, size in open_archive(path):
            member = re.sub(r"^(\./)+", "", member)
            files = files_of(member, pairs)
            if not files:
                others.append(member)
                continue
            first = os.path.join(folder, files[0][1])
            with open_member() as source:
                write_member(source, size, first)
            for _, name in files[1:]:
                with open(first, "rb") as source:
                    write_member(source, size, os.path.join(folder, name))
            missing -= {i for i, _ in files}
            if not missing and not has_patterns:
                break
    except (SourceFault, EOFError, OSError, tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, NotImplementedError, RuntimeError) as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Fault(f"{short}: expected a complete zip or tar archive; found: {text}; delete {path} and download it again") from None
    if missing:
        examples = f"other members, such as {', '.join(sorted(others)[:3])}" if others else "no other members"
        raise Fault(f"{short}: expected the member {pairs[min(missing)][0]}; found {examples}; pass the archive that the script names")


# Python packages --------------------------------------------------------------------------------------------------------------------

def is_installed(package):
    name, _, version = package.partition("==")
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False


def install(packages, folder):
    """Installs the packages from PyPI to `folder`, which appears when it is complete."""
    part = tempfile.mkdtemp(prefix="part.", dir=os.path.dirname(folder))
    try:
        pip = [sys.executable, "-m", "pip"]
        if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode != 0:
            subprocess.run([sys.executable, "-m", "venv", f"{part}/venv"], capture_output=True, check=False)
            pip = [f"{part}/venv/bin/pip"]
        command = [*pip, "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "10", "--target", f"{part}/packages", *packages]
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            found, status = ([line for line in result.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"])[-1], result.returncode
        except OSError as error:
            found, status = f"pip: {error.strerror}", 1
        if status != 0:
            raise Fault(f"expected the Python packages {' '.join(packages)} from PyPI; found: {found.removeprefix('ERROR: ')}; connect to the network, or run "
                        f"pip install {' '.join(packages)} for {sys.executable}")
        with writing(folder):
            os.rename(f"{part}/packages", folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def python(*packages):
    """Prints a PYTHONPATH with the packages."""
    path = os.environ.get("PYTHONPATH", "")
    if all(map(is_installed, packages)):
        print(path)
        return
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "multihead")
    key = hashlib.sha256(" ".join([*sorted(packages), sys.version.split()[0]]).encode()).hexdigest()[:16]
    folder = os.path.join(cache, f"python-{key}")
    with writing(cache):
        os.makedirs(cache, exist_ok=True)
        lock = open(f"{folder}.lock", "w", encoding="utf-8")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            with writing(cache):
                install(packages, folder)
    print(folder + (f":{path}" if path else ""))


def main():
    commands = {"lock": lock_folder, "file": fetch_file, "members": members, "python": python}
    if not sys.argv[1:] or sys.argv[1] not in commands:
        log(f"expected a command, {', '.join(commands)}; found {sys.argv[1] if sys.argv[1:] else 'none'}; source corpus.sh, whose functions call this program")
        return 2
    try:
        commands[sys.argv[1]](*sys.argv[2:])
    except Fault as fault:
        log(str(fault))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the finally clauses, which remove incomplete files
    UMASK = os.umask(0)
    os.umask(UMASK)
    sys.exit(main())
