"""The benchmark sections, one per file. The first line of a module's docstring describes the section; its function `measure(bench)` yields steps."""
import difflib

from sections import (answering, attention, beam, cut, equality, fine_tuning, gpu_training, large_models, metrics, modern_generation, modern_scan,
                      modern_scoring, modern_training, prep, reading, scale, scan, spectra, stage_equality, stages, start, tokenizer_json,
                      training, translation)

# The sections in the order in which bench.py runs them.
SECTIONS = {module.__name__.rpartition(".")[2]: module
            for module in (training, translation, stages, attention, gpu_training, start, prep, reading, metrics, scan, spectra, cut,
                           beam, fine_tuning, answering, scale, modern_training, modern_scoring, modern_generation, modern_scan,
                           large_models, tokenizer_json, equality, stage_equality)}
GROUPS = {"analysis": ("scan", "spectra", "cut"), "encoder": ("fine_tuning", "answering"),
          "modern": ("modern_training", "modern_scoring", "modern_generation", "modern_scan", "large_models", "tokenizer_json")}


def listing():
    """Returns [(name, description)] of all sections and groups."""
    descriptions = [(name, module.__doc__.split("\n", maxsplit=1)[0]) for name, module in SECTIONS.items()]
    return descriptions + [(name, f"The sections {', '.join(members)}.") for name, members in GROUPS.items()]


def modules_of(names):
    """Returns the modules of the sections and groups in a comma-separated list, or of all sections for None. Raises ValueError if a name
    is unknown."""
    if names is None:
        return list(SECTIONS.values())
    modules = []
    for name in names.split(","):
        if name not in SECTIONS and name not in GROUPS:
            nearest = difflib.get_close_matches(name, [*SECTIONS, *GROUPS], n=1, cutoff=0)[0]
            raise ValueError(f"expected the name of a section; found '{name}'; the nearest name is '{nearest}', --list prints all")
        modules += [SECTIONS[member] for member in GROUPS.get(name, (name,))]
    return modules
