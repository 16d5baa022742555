"""Records outputs of small encoder-decoders of transformers, and compares converted models with the record, like huggingface_decoders.py:

huggingface_translators.py record [NAME…]   writes the folders of the installed version of transformers to tests/cli/recorded; default: all
huggingface_translators.py text             prints the lines of text whose tokens are recorded
huggingface_translators.py names            prints the names of all recorded folders
huggingface_translators.py weights FOLDER [FORM…]   writes the files of the record, the vocabulary and model.safetensors to FOLDER, a copy of a
                                            recorded folder; a FORM is one of huggingface_decoders.py
huggingface_translators.py compare FOLDER PRINTED   compares the output of model-print --probabilities with the record
huggingface_translators.py ids FOLDER PRINTED   compares the output of mh-prep cat --ids for pairs of TEXT with the recorded tokens
huggingface_translators.py config FOLDER NEW   compares config.json of the folder NEW with the recorded configuration of FOLDER
huggingface_translators.py peer FOLDER…     checks that transformers computes from FOLDER.back the recorded outputs and tokens, and all logits and
                                            probabilities of FOLDER.printed, the output of model-print --probabilities

Each row of a record has a source and a target. The decoder reads the start token and the target without its last token.
"""
import json
import pathlib
import shutil

import huggingface_recorded as recorded
from huggingface_recorded import MODEL_IGNORED_KEYS, recorded_folder

VOCABULARY = 99
LENGTHS = ((40, 13), (9, 40), (150, 140))  # tokens of source and target; the last row is longer than the largest distance with a bucket of T5
MAX_KEYS = max(max(pair) for pair in LENGTHS)
TEXT = recorded.TEXT + [">>abc<< the cat sat", "the >>cat<< sat", ">>abc<<", "\uff54\uff48\uff45 \u00bd \ufb01t", "two  spaces "]
MARIAN_PIECES = ["</s>", "<unk>", ">>abc<<"]  # in front of the pieces of both languages; <pad> is the last entry
# Keys without effect on the model, which a written config.json may lack.
UNWRITTEN_KEYS = ("bos_token_id", "classifier_dropout", "dense_act_fn", "is_gated_act", "decoder_vocab_size", "output_past", "forced_eos_token_id", "bad_words_ids",
                  "num_beams", "max_length", "scale_decoder_outputs", "is_decoder", "tokenizer_class")

MARIAN = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_attention_heads": 4,
          "decoder_attention_heads": 4, "max_position_embeddings": 160, "activation_function": "swish", "scale_embedding": True,
          "pad_token_id": VOCABULARY - 1, "decoder_start_token_id": VOCABULARY - 1, "eos_token_id": 0, "bos_token_id": 0, "forced_eos_token_id": 0,
          "vocab_size": VOCABULARY}
T5 = {"d_model": 32, "d_ff": 48, "d_kv": 12, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4, "pad_token_id": 0, "eos_token_id": 1,
      "decoder_start_token_id": 0, "vocab_size": VOCABULARY}
# Name of the folder without the version, class prefix of transformers, and settings of the configuration.
TRANSLATORS = {
    "marian": ("Marian", MARIAN),
    "marian-separate": ("Marian", MARIAN | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": VOCABULARY, "encoder_attention_heads": 2,
                                            "activation_function": "gelu", "scale_embedding": False}),
    "t5": ("T5", T5),
    "t5-gated": ("T5", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 8, "relative_attention_num_buckets": 16,
                             "relative_attention_max_distance": 20}),
    "mt5": ("MT5", T5 | {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False, "num_decoder_layers": 2}),
}


def is_marian(folder):
    return pathlib.Path(folder).name.startswith("marian")


def tokenizer_folder(folder):
    """Returns the folder with the files of the vocabulary of a recorded folder."""
    name = pathlib.Path(folder).name
    return recorded_folder / ("tokenizer-marian-separate" if name.startswith("marian-separate") else "tokenizer-marian" if is_marian(folder) else "tokenizer-t5")


def start_token(folder):
    return VOCABULARY - 1 if is_marian(folder) else 0


def sequence(length, seed):
    """Returns token ids that are fixed, almost without repetition, and neither special token."""
    return [3 + (31 * i + 7 * i * i + 11 * length + seed) % (VOCABULARY - 4) for i in range(length)]


def rows():
    return [(sequence(source, 5), sequence(target, 0)) for source, target in LENGTHS]


def sample(length, position):
    """Returns the two entries of the vocabulary whose logits at a position are recorded."""
    return [(37 * position + length) % VOCABULARY, (53 * position + 11) % VOCABULARY]


def figures_of(logits, probabilities):
    """Returns the recorded numbers of a row. `logits`: (T, V) lists; `probabilities`: a matrix (Tq, Tk) of each head of each layer, in the
    order of the forward pass."""
    places = []
    for matrix in probabilities:
        queries, keys = len(matrix), len(matrix[0])
        places += [matrix[-1][min(keys, queries) - 1], matrix[-1][0], matrix[queries // 2][min(keys, queries) // 2 - 2]]
    return [logits[-1][::2], [logits[t][v] for t in range(len(logits)) for v in sample(len(logits), t)], places]


def write_weights(folder, *forms):
    # The first token of a target is the end token, in place of which the model reads the start token.
    end = 0 if is_marian(folder) else 1
    recorded.write_record(folder, [" ".join(map(str, [end] + target[:-1])) + " | " + " ".join(map(str, source)) for source, target in rows()])
    recorded.write_weights_in_form(folder, forms)
    recorded.copy_tokenizer(tokenizer_folder(folder), folder)


def matrices_of(numbers, folder, source, target):
    """Divides printed probabilities into one matrix (Tq, Tk) of each head, in the order of the forward pass."""
    config = json.loads(pathlib.Path(folder, "read.json").read_text())
    marian = is_marian(folder)
    encoder_layers, decoder_layers = (config["encoder_layers"], config["decoder_layers"]) if marian else (config["num_layers"], config["num_decoder_layers"])
    encoder_heads, heads = (config["encoder_attention_heads"], config["decoder_attention_heads"]) if marian else (config["num_heads"],) * 2
    shapes = encoder_layers * encoder_heads * [(source, source)] + decoder_layers * (heads * [(target, target)] + heads * [(target, source)])
    matrices, begin = [], 0
    for queries, keys in shapes:
        matrices.append([numbers[begin + q * keys:begin + (q + 1) * keys] for q in range(queries)])
        begin += queries * keys
    assert begin == len(numbers), (folder, begin, len(numbers))
    return matrices


def compare(folder, printed):
    def figures_of_line(parts, lengths):
        source, target = lengths
        _, logits, _, probabilities = parts
        assert len(logits) == target * VOCABULARY, (folder, len(logits))
        logits = [logits[t * VOCABULARY:(t + 1) * VOCABULARY] for t in range(target)]
        return figures_of(logits, matrices_of(probabilities, folder, source, target))
    recorded.compare_figures(folder, printed, LENGTHS, figures_of_line, ("last logits", "sampled logits", "probabilities"), MAX_KEYS)


def compare_ids(folder, printed):
    # The record lacks the end token, which mh-prep appends to both sides.
    end = str(json.loads(pathlib.Path(folder, "read.json").read_text())["eos_token_id"])
    lines = (tokenizer_folder(folder) / "ids").read_text().splitlines()
    expected = [[[*side.split(), end] for side in line.split("\t")] for line in lines]
    actual = [[side.split() for side in line.split("\t")] for line in pathlib.Path(printed).read_text().splitlines()]
    assert actual == expected, f"{folder}: the tokens differ: {actual}, {expected}"


def compare_config(folder, new):
    expected, actual = json.loads(pathlib.Path(folder, "read.json").read_text()), json.loads(pathlib.Path(new, "config.json").read_text())
    for key, value in actual.items():
        if key not in MODEL_IGNORED_KEYS + UNWRITTEN_KEYS:
            expected_value = "silu" if expected.get(key) == "swish" else expected.get(key, value)  # two names of one function
            assert expected_value == value, (new, key, expected_value, value)
    for key in json.loads(pathlib.Path(folder, "config.json").read_text()):
        assert key in actual or key in MODEL_IGNORED_KEYS + UNWRITTEN_KEYS, f"{new}/config.json: expected the key {key}; found none"


def outputs(model, source, target, start):
    import torch
    with torch.no_grad():
        out = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[start] + target[:-1]]), output_attentions=True)
    layers = list(out.encoder_attentions)
    for self_attention, cross_attention in zip(out.decoder_attentions, out.cross_attentions):
        layers += [self_attention, cross_attention]
    return out.logits[0].tolist(), [head for layer in layers for head in layer[0].tolist()]


def load(folder):
    return recorded.load_model(folder, "AutoModelForSeq2SeqLM")


def ids_of(tokenizer):
    """Returns the tokens of TEXT as a source and as a target, without the token that ends a text. Special tokens in text are text."""
    def ids(**text):
        return " ".join(map(str, tokenizer(**text, split_special_tokens=True)["input_ids"][:-1]))
    return "".join(ids(text=line) + "\t" + ids(text_target=line) + "\n" for line in TEXT)


def compare_peer(folder, transformers):
    model = load(f"{folder}.back")
    assert model.config.decoder_start_token_id == model.config.pad_token_id == start_token(folder), folder

    def compared_outputs(pair):
        logits, probabilities = outputs(model, *pair, start_token(folder))
        return figures_of(logits, probabilities), 0, {"logits": (logits, 0, 0), "probabilities": (probabilities, 0, 0)}
    largest_difference = recorded.compare_outputs(folder, map(compared_outputs, rows()), MAX_KEYS)
    reader = transformers.MarianTokenizer if is_marian(folder) else transformers.PreTrainedTokenizerFast
    tokenizer = reader.from_pretrained(f"{folder}.back")
    assert ids_of(tokenizer) == (tokenizer_folder(folder) / "ids").read_text(), folder
    assert tokenizer.pad_token_id == start_token(folder), (folder, tokenizer.pad_token_id)
    return largest_difference


def peer(*folders):
    recorded.compare_with_transformers(folders, compare_peer)


# Text from which the SentencePiece models of the vocabularies are trained, and rules of normalisation, fewer than in published models.
TRAINING_TEXT = ["the cat sat on the mat", "a cat and a mat", "the mat is fit for the cat", "no cat is on the mat", "one two three half"] * 4
TARGET_TEXT = ["die katze sass auf der matte", "eine katze und eine matte", "keine katze ist auf der matte", "eins zwei drei halb"] * 4
RULES = {"\uff54": "t", "\uff48": "h", "\uff45": "e", "\u00bd": "1/2", "\ufb01": "fi"}


def train_sentencepiece(text, size, folder, name):
    import sentencepiece
    rules = pathlib.Path(folder, "rules.tsv")
    rules.write_text("".join(f"{ord(source):X}\t{' '.join(f'{ord(c):X}' for c in target)}\n" for source, target in RULES.items()))
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_prefix=str(pathlib.Path(folder, name)), vocab_size=size,
                                             model_type="unigram", normalization_rule_tsv=str(rules), minloglevel=2, bos_id=-1, unk_id=0, eos_id=1,
                                             hard_vocab_limit=False)
    for file in (rules, pathlib.Path(folder, f"{name}.vocab")):
        file.unlink()
    model = pathlib.Path(folder, f"{name}.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return model, [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]


def write_marian_tokenizer(folder, is_separate):
    import transformers
    folder.mkdir(parents=True, exist_ok=True)
    tables = []
    for text, side in ((TRAINING_TEXT, "source"), (TARGET_TEXT, "target")):
        model, pieces = train_sentencepiece(text, 40, folder, side)
        model.rename(folder / f"{side}.spm")
        tables.append([piece for piece, _ in pieces if piece not in ("<unk>", "</s>")])
    if not is_separate:  # the last pieces of both languages stay unknown
        tables = [list(dict.fromkeys(tables[0][:-2] + tables[1][:-2]))]
    for table, file in zip(tables, ("vocab.json", "target_vocab.json")):
        entries = MARIAN_PIECES + table
        entries += [f"madeupword{i}" for i in range(VOCABULARY - 1 - len(entries))] + ["<pad>"]
        assert len(entries) == VOCABULARY, len(entries)
        (folder / file).write_text(json.dumps({piece: i for i, piece in enumerate(entries)}, ensure_ascii=False, indent=0) + "\n")
    config = {"source_lang": "abc", "target_lang": "xyz", "separate_vocabs": is_separate, "tokenizer_class": "MarianTokenizer", "unk_token": "<unk>",
              "eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 160}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "ids").write_text(ids_of(transformers.MarianTokenizer.from_pretrained(folder)))


def charsmap_of(model):
    """Returns the table of the normalisation rules in a SentencePiece model: field 2 of the message in field 3."""
    def fields(data):
        at = 0
        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = varint()
            if key & 7 == 0:
                yield key >> 3, varint()
            else:
                size = {1: 8, 5: 4}.get(key & 7) or varint()
                yield key >> 3, data[at:at + size]
                at += size
    normaliser = dict(fields(model))[3]
    return dict(fields(normaliser))[2]


def write_t5_tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    import transformers
    folder.mkdir(parents=True, exist_ok=True)
    model, pieces = train_sentencepiece(TRAINING_TEXT + TARGET_TEXT, 70, folder, "spiece")
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(piece, score) for piece, score in pieces if piece not in ("<unk>", "</s>")]
    pieces += [(f"<extra_id_{i}>", 0.0) for i in range(VOCABULARY - len(pieces) - 1, -1, -1)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    tokenizer.normalizer = normalizers.Precompiled(charsmap_of(model.read_bytes()))
    model.unlink()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"] + [piece for piece, _ in pieces if piece.startswith("<extra")])
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512} | roles, indent=1) + "\n")
    (folder / "ids").write_text(ids_of(transformers.PreTrainedTokenizerFast.from_pretrained(folder)))


def record(*names):
    import transformers
    transformers.logging.set_verbosity_error()
    version = transformers.__version__.split(".")[0]
    for name in names or TRANSLATORS:
        prefix, settings = TRANSLATORS[name]
        folder = recorded_folder / f"{name}-{version}"
        if not tokenizer_folder(folder).exists():
            if is_marian(folder):
                write_marian_tokenizer(tokenizer_folder(folder), "separate" in name)
            else:
                write_t5_tokenizer(tokenizer_folder(folder))
        shutil.rmtree(folder, ignore_errors=True)
        config = getattr(transformers, f"{prefix}Config")(**json.loads(json.dumps(settings)))
        model_class = getattr(transformers, "MarianMTModel" if prefix == "Marian" else f"{prefix}ForConditionalGeneration")
        model_class(config).save_pretrained(folder)

        def compute_figures(folder=folder):
            model = load(folder)
            return [figures_of(*outputs(model, source, target, start_token(folder))) for source, target in rows()]
        recorded.record_model(folder, recorded.saved_tensors(folder), compute_figures)


def names():
    recorded.print_names(TRANSLATORS)


def print_text():
    recorded.print_text(TEXT)


if __name__ == "__main__":
    recorded.run_command({"record": record, "text": print_text, "names": names, "weights": write_weights, "compare": compare, "ids": compare_ids,
                          "config": compare_config, "peer": peer})
