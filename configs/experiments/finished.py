"""The finished runs of a series in one file, with which another machine continues the series without the folders of the runs.

Each line is a JSON object: study, row, seed, configuration (fingerprint), spent (seconds of machine time) and result (result.json of the run).
"""
import json

from errors import refuse
from runs import Job
from tools import write_atomically

KEYS = {"study": str, "row": str, "seed": int, "configuration": str, "spent": float, "result": dict}


def save(path, parts, ledger):
    """Replaces the file by the finished runs of the series."""
    lines = [json.dumps({"study": part.name, "row": job.row.name, "seed": job.seed, "configuration": job.configuration(),
                         "spent": round(ledger.spent_by(part.name, job.row.name, job.seed), 1), "result": json.loads(job.result_file.read_text(encoding="utf-8"))})
             for part in parts for job in part.all_jobs() if job.result()]
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def load(path, parts, ledger):
    """Adds the runs of the file that the folder of the series lacks, and their time to the ledger. A row that initialises unfinished runs is trained
    again, since the file has no models. Does nothing without a file."""
    if not path.exists():
        return
    rows = {(part.name, name): (part, row) for part in parts for name, row in part.rows.items()}
    runs = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        subject = f"{path}, line {number}"
        try:
            run = json.loads(line)
            is_run = run.keys() == KEYS.keys() and all(isinstance(run[key], kind) for key, kind in KEYS.items())
        except (ValueError, AttributeError):
            is_run = False
        if not is_run:
            refuse(subject, f"a JSON object with {', '.join(KEYS)}", line[:80], "remove the line")
        if (run["study"], run["row"]) not in rows:
            refuse(subject, "a row of the series", f"{run['study']}, {run['row']}", "remove the line")
        part, row = rows[run["study"], run["row"]]
        job = Job(row, run["seed"], part.options.threads)
        if run["configuration"] != job.configuration():
            refuse(subject, f"a run of {row.name} with its present configuration", "a run with another configuration", "remove the line; the run is then repeated")
        runs.append((part, job, run))
    initial = {id(other.init) for part, row in rows.values() for other in part.rows.values() if other.init}
    for part, job, run in sorted(runs, key=lambda entry: id(entry[1].row) in initial):
        dependents = [other for other in part.first_jobs() if other.row.init is job.row]
        if job.out.exists() or any(other.result() is None for other in dependents):
            continue
        write_atomically(job.out.with_suffix(".configuration"), run["configuration"] + "\n")
        write_atomically(job.result_file, json.dumps(run["result"]) + "\n")
        if job.result() is None:
            refuse(path, f"a result with all scores of {job.row.name}", json.dumps(run["result"])[:80], "remove the line; the run is then repeated")
        ledger.add(part, job, run["spent"], "finished")
