# shellcheck shell=bash
# Functions of the cases that make archives of corpora. The cases source this file.

# pack ARCHIVE FOLDER: packs the files of a folder as a zip or tar.gz archive, in the order of their names.
pack() {
  python3 - "$1" "$2" <<'PYTHON'
import pathlib, sys, tarfile, zipfile
root = pathlib.Path(sys.argv[2])
files = [(path, str(path.relative_to(root))) for path in sorted(root.rglob("*")) if path.is_file()]
if sys.argv[1].endswith(".zip"):
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive:
        [archive.write(path, name) for path, name in files]
else:
    with tarfile.open(sys.argv[1], "w:gz") as archive:
        [archive.add(path, "./" + name) for path, name in files]
PYTHON
}
