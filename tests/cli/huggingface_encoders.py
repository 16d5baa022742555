"""Records outputs of small encoders of transformers, and compares converted models with the record, like huggingface_decoders.py:

huggingface_encoders.py record [NAME…]      writes the folders of the installed version of transformers to tests/cli/recorded; default: all
huggingface_encoders.py names               prints the names of all recorded folders
huggingface_encoders.py tokenizer FOLDER    prints the folder of the recorded tokenizer of FOLDER
huggingface_encoders.py weights FOLDER [CHANGE…]   writes the files of the record, the vocabulary and model.safetensors to FOLDER, a copy of a
                                            recorded folder; a CHANGE as in huggingface_recorded.py
huggingface_encoders.py compare FOLDER PRINTED   compares the output of model-print --probabilities with the record
huggingface_encoders.py config FOLDER NEW   compares config.json of the folder NEW with the recorded configuration of FOLDER
huggingface_encoders.py peer FOLDER…        checks that transformers computes from FOLDER.back the recorded outputs, and all numbers of FOLDER.printed,
                                            the output of model-print --probabilities, and reads the same tokens
"""
import json
import os
import pathlib
import shutil
import sys

import tolerance
from huggingface_decoders import IGNORED_KEYS, TOKENIZER_FILES, flatten, format_figures, parse_line, probability_places, write_record_json
from huggingface_recorded import TEXT, formula_tensors, pack_tensors, write_safetensors

recorded_folder = pathlib.Path(__file__).resolve().parent / "recorded"
LENGTHS = (40, 13, 5)  # tokens of the rows: longer than the window of ModernBERT, and unequal, so that transformers pads two of three rows
NUM_SAMPLES = 150  # number of recorded hidden states, and of logits, of a row
# Keys without effect on the model, which a written config.json lacks or has with another value.
OTHER_KEYS = IGNORED_KEYS + ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "rope_scaling", "rope_parameters",
                             "layer_types", "id2label", "label2id", "num_labels", "problem_type", "classifier_dropout", "reference_compile",
                             "position_embedding_type", "initializer_cutoff_factor", "repad_logits_with_grad", "sparse_pred_ignore_index")
# Special tokens of each tokenizer: begin, padding, separator, unknown and mask. The first four have the ids 0 to 3.
TOKENIZERS = {"roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"), "xlm-roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
              "modernbert": ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")}

ROBERTA = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
           "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
MODERNBERT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 5, "num_attention_heads": 4, "max_position_embeddings": 64,
              "local_attention": 6, "global_rope_theta": 500.0, "local_rope_theta": 50.0, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
              "cls_token_id": 0, "sep_token_id": 2, "reference_compile": False}
# Name of the folder without the version, tokenizer, class of the configuration, class of the model, and settings.
ENCODERS = {
    "roberta": ("roberta", "Roberta", "RobertaForMaskedLM", ROBERTA),
    "roberta-untied": ("roberta", "Roberta", "RobertaForMaskedLM", ROBERTA | {"tie_word_embeddings": False, "type_vocab_size": 2}),
    "roberta-classes": ("roberta", "Roberta", "RobertaForSequenceClassification", ROBERTA | {"num_labels": 3, "hidden_act": "relu",
                                                                                              "classifier_dropout": 0.2}),
    "xlm-roberta-span": ("xlm-roberta", "XLMRoberta", "XLMRobertaForQuestionAnswering", ROBERTA),
    "camembert-number": ("xlm-roberta", "Camembert", "CamembertForSequenceClassification", ROBERTA | {"num_labels": 1}),
    "modernbert": ("modernbert", "ModernBert", "ModernBertForMaskedLM", MODERNBERT),
    "modernbert-classes": ("modernbert", "ModernBert", "ModernBertForSequenceClassification",
                           MODERNBERT | {"num_labels": 3, "classifier_pooling": "cls", "norm_bias": True, "attention_bias": True, "mlp_bias": True,
                                         "classifier_bias": True, "global_attn_every_n_layers": 2, "classifier_dropout": 0.1}),
}


def tokenizer_of(folder):
    """Returns the folder of the recorded tokenizer of a model folder."""
    model_type = json.loads(pathlib.Path(folder, "config.json").read_text())["model_type"]
    return recorded_folder / f"tokenizer-{'xlm-roberta' if model_type == 'camembert' else model_type}"


def rows(size):
    """Returns token ids that are fixed and almost without repetition, between the begin token and the separator. `size`: of the vocabulary."""
    def row(length):
        return [0] + [3 + (31 * i + 7 * i * i + 11 * length) % (size - 3) for i in range(length - 2)] + [2]
    return [row(length) for length in LENGTHS]


def sample(values):
    """Returns at most NUM_SAMPLES of the values, at equal distances."""
    return values[::(len(values) - 1) // NUM_SAMPLES + 1]


def figures_of(hidden, logits, probabilities, length):
    """Returns the recorded numbers of a row. `hidden` (T·d) and `logits`: lists; `probabilities`: (layers, h, T, T) lists."""
    return [sample(hidden), sample(logits), [head[q][k] for layer in probabilities for head in layer for q, k in probability_places(length)]]


def write_record(folder):
    """Writes the parts of record.json as files: tensors.txt, figures.txt, read.json and rows."""
    parts = json.loads(pathlib.Path(folder, "record.json").read_text())
    for name in ("tensors", "figures"):
        pathlib.Path(folder, f"{name}.txt").write_text("".join(line + "\n" for line in parts[name]))
    pathlib.Path(folder, "read.json").write_text(json.dumps(parts["read"]))
    pathlib.Path(folder, "rows").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows(parts["read"]["vocab_size"])))


def compare(folder, printed):
    expected = pathlib.Path(folder, "figures.txt").read_text().splitlines()
    lines = pathlib.Path(printed).read_text().splitlines()
    assert len(lines) == len(expected) == len(LENGTHS), (len(lines), len(expected))
    largest = [[0, 0] for _ in range(3)]  # largest difference and largest entry of each part
    for line, expected_line, length in zip(lines, expected, LENGTHS):
        hidden, logits, _, probabilities = parse_line(line)
        matrices = [[probabilities[(m * length + q) * length:(m * length + q + 1) * length] for q in range(length)]
                    for m in range(len(probabilities) // length ** 2)]
        for part, expected_part, extremes in zip(figures_of(hidden, logits, [matrices], length), expected_line.split("|"), largest):
            values = [float(v) for v in expected_part.split()]
            assert len(part) == len(values), (folder, len(part), len(values))
            extremes[0] = max([extremes[0]] + [abs(x - y) for x, y in zip(part, values)])
            extremes[1] = max([extremes[1]] + [abs(y) for y in values])
    # The record has 8 digits, so it adds less than one rounding. Logits are sums of products of hidden states and weights.
    num_roundings = tolerance.pass_roundings(f"{folder}.safetensors", max(LENGTHS)) + 1
    for name, (difference, entry) in zip(("hidden states", "logits", "probabilities"), largest):
        bound = tolerance.chain_bound(num_roundings, max(entry, largest[0][1]) if name == "logits" else entry)
        assert difference <= bound, f"{folder}: {name}: expected a difference of at most {bound:.1e}; found {difference:.1e}"
    print(f"{folder}: hidden states at most {largest[0][0]:.1e}, logits {largest[1][0]:.1e}, probabilities {largest[2][0]:.1e} from the record")


def compare_config(folder, new):
    expected, actual = json.loads(pathlib.Path(folder, "read.json").read_text()), json.loads(pathlib.Path(new, "config.json").read_text())
    for key, value in actual.items():
        if key not in OTHER_KEYS and key in expected:
            assert expected[key] == value, (new, key, expected[key], value)
    for key in json.loads(pathlib.Path(folder, "config.json").read_text()):
        assert key in actual or key in OTHER_KEYS, f"{new}/config.json: expected the key {key}; found none"
    assert actual["architectures"] == json.loads(pathlib.Path(folder, "config.json").read_text())["architectures"], (new, actual["architectures"])


def outputs(model, size):
    """Returns the hidden states, logits and probabilities of each row. transformers computes all rows in one padded batch."""
    import torch
    width, texts = max(LENGTHS), rows(size)
    ids = torch.tensor([row + [1] * (width - len(row)) for row in texts])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in texts])
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=mask, output_attentions=True)
        hidden = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
    logits = torch.stack([out.start_logits, out.end_logits], 2) if "start_logits" in out else out.logits
    for i, row in enumerate(texts):
        n = len(row)
        row_logits = logits[i, :n] if logits.dim() == 3 else logits[i]
        yield hidden[i, :n].flatten().tolist(), row_logits.flatten().tolist(), [layer[i, :, :n, :n].tolist() for layer in out.attentions]


def load(folder, model_class=None):
    import torch
    import transformers
    model_class = model_class or json.loads(pathlib.Path(folder, "config.json").read_text())["architectures"][0]
    model, loading_info = getattr(transformers, model_class).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                                             output_loading_info=True)
    assert not any(loading_info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")), (folder, loading_info)
    model.config.reference_compile = False
    return model.eval()


def peer(*folders):
    import transformers
    transformers.logging.set_verbosity_error()
    largest_difference = 0
    for folder in folders:
        model = load(f"{folder}.back")
        num_roundings = tolerance.pass_roundings(f"{folder}.safetensors", max(LENGTHS)) + 1
        lines = [pathlib.Path(name).read_text().splitlines() for name in (f"{folder}/figures.txt", f"{folder}.printed")]
        for (hidden, logits, probabilities), line, printed_line in zip(outputs(model, model.config.vocab_size), *lines, strict=True):
            figures = figures_of(hidden, logits, probabilities, len(probabilities[0][0]))
            printed_hidden, printed_logits, _, printed_probabilities = parse_line(printed_line)
            # Logits are sums of products of hidden states and weights.
            magnitude = max(map(abs, hidden))
            parts = [("recorded figures", part, expected, magnitude, 0) for part, expected in zip(figures, parse_line(line))]
            parts += [("hidden states", hidden, printed_hidden, 0, 0), ("logits", logits, printed_logits, magnitude, 0),
                      ("probabilities", flatten(probabilities), printed_probabilities, 0, 0)]
            largest_difference = max(largest_difference, tolerance.compare_parts(folder, parts, num_roundings))
        tokenizer = transformers.AutoTokenizer.from_pretrained(f"{folder}.back")
        recorded_ids = [list(map(int, line.split())) for line in (tokenizer_of(folder) / "ids").read_text().splitlines()]
        assert [tokenizer(line, split_special_tokens=True)["input_ids"] for line in TEXT] == [[0] + ids + [2] for ids in recorded_ids], folder
        roles = [tokenizer.cls_token, tokenizer.pad_token, tokenizer.sep_token, tokenizer.unk_token, tokenizer.mask_token]
        assert tuple(roles) == TOKENIZERS[tokenizer_of(folder).name.removeprefix("tokenizer-")], (folder, roles)
    print(f"transformers {transformers.__version__} reads {len(folders)} written folders; hidden states, logits and "
          f"probabilities at most {largest_difference:.1e} apart")


def write_tokenizer(folder):
    """Writes a tokenizer of the form of a family: byte-level BPE with two separators between texts (RoBERTa) or one (ModernBERT, after NFC and
    with runs of spaces as added tokens), or Unigram (XLM-R)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    name = folder.name.removeprefix("tokenizer-")
    special = TOKENIZERS[name]
    begin, padding, separator, unknown, mask = special
    if name == "xlm-roberta":
        mark = "\u2581"
        pieces = [(piece, 0.0) for piece in special[:4]]
        pieces += [(mark + piece if is_first else piece, -3.0 - len(pieces) / 100)
                   for piece in "a b c d e h m n o s t u w 1 2 the cat sat on mat s ' , .".split() for is_first in (True, False)]
        pieces += [(mark, -4.0), ("\u4e2d", -6.0), (mask, 0.0)]
        tokenizer = Tokenizer(models.Unigram(list(dict(pieces).items()), unk_id=3, byte_fallback=False))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(mark, prepend_scheme="always")])
        tokenizer.decoder = decoders.Metaspace(mark, prepend_scheme="always")
    else:
        vocabulary = {piece: i for i, piece in enumerate(special[:4] + tuple(sorted(pre_tokenizers.ByteLevel.alphabet())))}
        merges = []
        for left, right in [("\u0120", "t"), ("h", "e"), ("\u0120t", "he"), ("a", "t"), ("\u0120", "c"), ("\u0120", "m"), ("o", "n"), ("\u0120", "w")]:
            merges.append((left, right))
            vocabulary[left + right] = len(vocabulary)
        vocabulary[mask] = len(vocabulary)
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    ends = [(begin, 0), (separator, 2)]
    if name == "roberta":
        tokenizer.post_processor = processors.RobertaProcessing((separator, 2), (begin, 0), add_prefix_space=False)
    else:
        between = f"{separator} {separator}" if name == "xlm-roberta" else separator
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{begin} $A {separator}", pair=f"{begin} $A {between} $B {separator}",
                                                                 special_tokens=ends)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, lstrip=token == mask) for token in special])
    if name == "modernbert":
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.add_tokens([AddedToken("  ", normalized=True)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {"cls_token": begin, "pad_token": padding, "sep_token": separator, "unk_token": unknown, "mask_token": mask, "bos_token": begin,
             "eos_token": separator}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | roles, indent=1) + "\n")
    (folder / "special_tokens_map.json").write_text(json.dumps(roles, indent=1) + "\n")
    tokenizer.encode_special_tokens = True
    (folder / "ids").write_text("".join(" ".join(map(str, tokenizer.encode(line, add_special_tokens=False).ids)) + "\n" for line in TEXT))


def vocabulary_size(folder):
    from tokenizers import Tokenizer
    return Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()


def record(*names):
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    version = transformers.__version__.split(".")[0]
    for name in names or ENCODERS:
        tokenizer_name, config_prefix, model_class, settings = ENCODERS[name]
        tokenizer_folder = recorded_folder / f"tokenizer-{tokenizer_name}"
        if not tokenizer_folder.exists():
            write_tokenizer(tokenizer_folder)
        folder = recorded_folder / f"{name}-{version}"
        shutil.rmtree(folder, ignore_errors=True)
        size = vocabulary_size(tokenizer_folder)
        config = getattr(transformers, f"{config_prefix}Config")(vocab_size=size, **settings)
        model = getattr(transformers, model_class)(config)
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        parameters = dict(model.named_parameters())  # contains each tied tensor once, like saved files
        tensors = [f"{key} {' '.join(map(str, value.shape))}" for key, value in parameters.items()]
        (folder / "tensors.txt").write_text("\n".join(tensors))
        write_safetensors(folder / "model.safetensors", pack_tensors(formula_tensors(folder, [])))
        model = load(folder, model_class)
        figures = [format_figures(figures_of(*row, len(row[2][0][0]))) for row in outputs(model, size)]
        for file in ("model.safetensors", "tensors.txt"):
            (folder / file).unlink()
        write_record_json(folder, tensors, figures, transformers)
        print(name, sum(file.stat().st_size for file in folder.iterdir()), "bytes", flush=True)


if __name__ == "__main__":
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    command, *arguments = sys.argv[1:]
    if command == "weights":
        write_record(arguments[0])
        write_safetensors(pathlib.Path(arguments[0], "model.safetensors"), pack_tensors(formula_tensors(arguments[0], arguments[1:])))
        for name in TOKENIZER_FILES:
            shutil.copy(tokenizer_of(arguments[0]) / name, arguments[0])
    elif command == "names":
        print("\n".join(sorted(folder.name for folder in recorded_folder.iterdir() if folder.name.rpartition("-")[0] in ENCODERS)))
    elif command == "tokenizer":
        print(tokenizer_of(arguments[0]))
    else:
        {"record": record, "compare": compare, "config": compare_config, "peer": peer}[command](*arguments)
