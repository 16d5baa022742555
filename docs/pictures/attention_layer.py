#!/usr/bin/env python3
"""Draws docs/pictures/attention-layer.svg: the stages of an attention layer in their order, and the methods of each stage.

    attention_layer.py            writes the picture
    attention_layer.py --check    compares the picture with the stages of the sources; exit status 1 if they differ

The names of the methods are the first arguments of the registrations `Registration<…> …(REGISTRY(), "NAME", …)` in
lib/attention/methods. COLUMNS places each registry, and has the settings that are no stages.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PICTURE = ROOT / "docs/pictures/attention-layer.svg"

# Title, result, registry or None, and settings of [attention] that belong to the step but are no stages.
COLUMNS = [
    ("heads", "Q, K, V", None, ["heads", "head_size", "value_size", "key_value_heads"]),
    ("transform", "Q, K", "transforms", []),
    ("pairing", "K, V by head", "pairings", []),
    ("score", "A = QKᵀ / √dk", "scores", []),
    ("position bias", "A + bias", "position_biases", ["soft_cap"]),
    ("logit mixer", "Σ L A", "logit mixers", []),
    ("normaliser", "P = softmax A", "normalisers", ["sink"]),
    ("mixer", "P̄ = Σ M P", "mixers", []),
    ("values", "Z = P̄ V", None, ["dropout"]),
    ("combiner", "Z′", "combiners", []),
]
# Mixers that can mix the logits, before the mask; the Mixheads do so with mixer_input = "logits".
LOGIT_MIXERS = {"mixhead-a", "mixhead-b", "talking-heads"}
DEFAULTS = {"own", "dot-product", "none", "softmax", "concatenate"}

WIDTH, LEFT, STEP, BOX = 1230, 16, 121, 109
TOP, BOX_HEIGHT, LINE = 66, 62, 19


def registered():
    """Returns {registry: names of its stages}, without the default stages."""
    texts = [re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
             for pattern in ("*.h", "*.cpp") for path in sorted((ROOT / "lib/attention/methods").rglob(pattern))]
    constants = {name: value for text in texts for name, value in re.findall(r"(k\w+) = \"([^\"]+)\"", text)}
    names = {}
    for text in texts:
        for registry, name in re.findall(r"Registration<\w+> \w+\( ?(\w+)\(\), ?(\"[^\"]+\"|k\w+)", text):
            name = name.strip('"') if name.startswith('"') else constants[name]
            if name not in DEFAULTS:
                names.setdefault(registry, set()).add(name)
    if missing := LOGIT_MIXERS - names["mixers"]:
        sys.exit(f"attention_layer.py: expected mixers named in LOGIT_MIXERS; found none named {', '.join(sorted(missing))}; correct LOGIT_MIXERS")
    names["logit mixers"] = LOGIT_MIXERS
    return names


def text(x, y, content, style):
    return f'<text x="{x}" y="{y}" class="{style}">{content}</text>'


def draw():
    """Returns the picture as SVG. The background is part of the picture, so that it is readable on light and dark pages."""
    stages = registered()
    if unplaced := stages.keys() - {registry for _, _, registry, _ in COLUMNS}:
        sys.exit(f"attention_layer.py: expected a column for each registry of stages; found none for {', '.join(sorted(unplaced))}; add it to COLUMNS")
    lists = []
    for title, _, registry, settings in COLUMNS:
        names = [(name, "name") for name in sorted(stages.get(registry, ()))] + [(name, "key") for name in settings]
        lists.append(names)
    height = TOP + BOX_HEIGHT + 34 + LINE * max(map(len, lists)) + 44
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>The stages of an attention layer and the methods of each stage</title>",
        "<style>text { font-family: Helvetica, Arial, sans-serif; fill: #1b1f24 } .head { font-size: 17px; font-weight: bold }",
        ".stage { font-size: 14px; font-weight: bold; text-anchor: middle } .formula { font-size: 13px; text-anchor: middle; fill: #424a53 }",
        ".name { font-size: 13px; text-anchor: middle } .key { font-size: 13px; text-anchor: middle; font-style: italic; fill: #57606a }",
        ".note { font-size: 13px; fill: #424a53 }</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        text(LEFT, 34, "An attention layer is a row of stages; the section [attention] of a configuration names the method of each stage", "head"),
    ]
    for i, ((title, formula, registry, _), names) in enumerate(zip(COLUMNS, lists)):
        x, middle = LEFT + STEP * i, LEFT + STEP * i + BOX / 2
        fill = "#ddf4ff" if registry else "#eaeef2"
        lines.append(f'<rect x="{x}" y="{TOP}" width="{BOX}" height="{BOX_HEIGHT}" rx="6" fill="{fill}" stroke="#57606a"/>')
        lines += [text(middle, TOP + 27, title, "stage"), text(middle, TOP + 48, formula, "formula")]
        if i + 1 < len(COLUMNS):
            begin, end, y = x + BOX, x + STEP, TOP + BOX_HEIGHT / 2
            lines.append(f'<path d="M{begin} {y} H{end - 6} m-1 -5 l7 5 l-7 5 z" fill="#57606a" stroke="#57606a"/>')
        lines += [text(middle, TOP + BOX_HEIGHT + 28 + LINE * j, name, style) for j, (name, style) in enumerate(names)]
    lines += [text(LEFT, height - 18, "Upright: methods, implemented in lib/attention/methods. Italic: settings of [attention]. Blue: interchangeable stages. "
                   "The mask acts before the normaliser. Output: concat(Z′) W + b.", "note"), "</svg>"]
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    picture = draw()
    if not sys.argv[1:]:
        PICTURE.write_text(picture, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture:
        sys.exit(f"{PICTURE.relative_to(ROOT)}: expected the stages of the sources; found others; run python3 docs/pictures/attention_layer.py")


if __name__ == "__main__":
    main()
