"""Copies the tools, runs commands, and names the commit of the configurations."""
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

from errors import refuse
from tables import root

NEEDS_TOOLS = 100  # exit status of a command that needs tools, with --without-tools
ends_before_tools = False  # --without-tools
NAMES = ("mh-prep", "mh-train", "mh-finetune", "mh-eval", "mh-convert", "mh-spectrum", "mh-prune", "mh-swap")


def say(text):
    print(f"experiments: {text}", file=sys.stderr, flush=True)


def call(command, **options):
    """Runs a command and returns its standard output if `options` captures it. If the driver is stopped, the command is stopped and awaited."""
    with subprocess.Popen([str(part) for part in command], **options) as process:
        try:
            output, _ = process.communicate()
        except SystemExit:
            process.terminate()  # a training saves its state
            process.wait()
            raise
    if process.returncode != 0:
        refuse(shlex.join(map(str, command)), "exit status 0", f"exit status {process.returncode}", "correct the cause above, then repeat the command, which continues from here")
    return output


def require_tools():
    """Refuses a machine without the tools. With --without-tools, ends the command."""
    if ends_before_tools:
        sys.exit(NEEDS_TOOLS)
    for name in NAMES:
        if shutil.which(name) is None:
            refuse("experiments", f"{name} on the PATH", "none", "use ./run, which builds the tools, or add the folder of the tools to the PATH")


def copy_tools(folder):
    """Copies the tools on the PATH and their libraries to a folder named by their checksum, so that a later build does not affect the runs,
    and puts that folder first on the PATH. Returns version and checksum."""
    require_tools()
    files = {f"bin/{name}": pathlib.Path(shutil.which(name)).resolve() for name in NAMES}
    # The tools find their libraries in ../lib, both in a build folder and in the copy.
    libraries = files["bin/mh-train"].parent.parent / "lib"
    files |= {f"lib/{library.name}": library for library in sorted(libraries.glob("libmultihead*.so"))}
    checksum = hashlib.sha256()
    for name, file in files.items():
        checksum.update(f"{name} {file.stat().st_size}\n".encode() + file.read_bytes())
    copy = folder / checksum.hexdigest()[:12]
    if not copy.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            new = pathlib.Path(part) / "new"
            for name, file in files.items():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, new / name)
            try:
                new.rename(copy)
            except OSError:
                if not copy.exists():  # otherwise another process made the same copy
                    raise
    os.environ["PATH"] = f"{(copy / 'bin').resolve()}:{os.environ['PATH']}"
    version = call(["mh-train", "--version"], stdout=subprocess.PIPE).decode().strip()
    return f"{version} {copy.name}"


def commit():
    """Returns the commit of the checkout, with "+changes" if tracked files differ from it, or "unknown" outside a checkout."""
    def git(*arguments):
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    head = git("rev-parse", "--short=12", "HEAD")
    if head.returncode != 0:
        return "unknown"
    return head.stdout.strip() + ("+changes" if git("status", "--porcelain", "--untracked-files=no").stdout else "")


def write_atomically(path, text):
    """Writes a file so that a stopped process or a full disk leaves the earlier file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        refuse(path, "a writable file", error.strerror, "free disk space, or choose another --out")
