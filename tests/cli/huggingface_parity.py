"""Models to and from the package transformers:

huggingface_parity.py make NAME…    folders of random models and what to ask them, below the present one; none: all
huggingface_parity.py check NAME…   whether NAME.printed, of model-print, is what transformers computes with the model of the
                                    folder NAME, and whether it loads NAME.back whole, as the same model and tokenizer
"""
import json
import os
import pathlib
import random
import sys

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoConfig, AutoTokenizer, BertConfig, GPT2Config

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)


def text():
    random.seed(3)
    return [" ".join(f"w{int(random.random() * random.random() * 60)}" for _ in range(random.randrange(1, 12))) + " caf\u00e9"
            for _ in range(300)]


def randomised(model):
    """All parameters at random, so that none can be mistaken for another."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            else:
                parameter.copy_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def write_rows(folder, vocabulary, length, segments=False):
    rows = []
    for _ in range(4):
        ids = [random.randrange(vocabulary) for _ in range(random.randrange(2, length))]
        half = random.randrange(len(ids))
        rows.append(" ".join(map(str, ids)) + (" | " + " ".join("0" if i < half else "1" for i in range(len(ids))) if segments else ""))
    pathlib.Path(folder, "rows").write_text("\n".join(rows) + "\n")


def wanted(folder):
    return len(sys.argv) == 2 or folder in sys.argv[2:]


def old_gpt2(folder):
    """Buffers and the tied copy, as older files have them, and a tensor that is stored transposed."""
    if not wanted(folder):
        return
    path = pathlib.Path(folder, "pytorch_model.bin")
    state = torch.load(path)
    for i in range(2):
        state[f"transformer.h.{i}.attn.bias"] = torch.tril(torch.ones(24, 24, dtype=torch.uint8)).view(1, 1, 24, 24)
        state[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    state["lm_head.weight"] = state["transformer.wte.weight"]
    name = "transformer.h.0.mlp.c_fc.weight"
    state[name] = torch.nn.Parameter(state[name].t().contiguous().t())
    torch.save(state, path)


def old_bert(folder):
    """As the first files were: gamma and beta, and the buffers of those days."""
    if not wanted(folder):
        return
    path = pathlib.Path(folder, "pytorch_model.bin")
    state = torch.load(path)
    state = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in state.items()}
    state["bert.embeddings.position_ids"] = torch.arange(40).expand((1, -1))
    torch.save(state, path)


def make():
    torch.manual_seed(5)
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(text(), vocab_size=400, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False)
    os.mkdir("bpe")
    bpe.save_model("bpe")
    tokenizer = transformers.GPT2TokenizerFast("bpe/vocab.json", "bpe/merges.txt")
    size = len(tokenizer)

    def gpt2(folder, kind=transformers.GPT2LMHeadModel, rows=size, half=False, shards="5GB", safe=True, **more):
        if not wanted(folder):
            return
        config = GPT2Config(vocab_size=rows, n_positions=24, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, **more)
        model = randomised(kind(config))
        if half:
            model = model.to(half)
        model.save_pretrained(folder, safe_serialization=safe, max_shard_size=shards)
        tokenizer.save_pretrained(folder)
        write_rows(folder, size, 24)

    gpt2("gpt2")
    gpt2("gpt2-bin", safe=False)
    gpt2("gpt2-base", kind=transformers.GPT2Model)
    gpt2("gpt2-shards", shards="40KB")
    gpt2("gpt2-shards-bin", shards="40KB", safe=False)
    gpt2("gpt2-half", half=torch.float16, safe=False)
    gpt2("gpt2-bfloat", half=torch.bfloat16)
    gpt2("gpt2-other", activation_function="gelu", n_inner=48, tie_word_embeddings=False, layer_norm_epsilon=1e-3)
    gpt2("gpt2-padded", rows=size + 13)
    gpt2("gpt2-old", safe=False)
    old_gpt2("gpt2-old")

    words = sorted({w for line in text() for w in line.split()} | {"w", "##1", "##2", "cafe"})
    os.mkdir("wordpiece")
    pathlib.Path("wordpiece/vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words) + "\n")
    pieces = transformers.BertTokenizerFast("wordpiece/vocab.txt")

    def bert(folder, kind, safe=True, **more):
        if not wanted(folder):
            return
        config = BertConfig(vocab_size=len(pieces), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                            max_position_embeddings=40, **more)
        randomised(kind(config)).save_pretrained(folder, safe_serialization=safe)
        pieces.save_pretrained(folder)
        write_rows(folder, len(pieces), 40, segments=True)

    bert("bert", transformers.BertForPreTraining)
    bert("bert-bin", transformers.BertForPreTraining, safe=False)
    bert("bert-old", transformers.BertForPreTraining, safe=False)
    old_bert("bert-old")
    bert("bert-words", transformers.BertForMaskedLM, hidden_act="gelu_new")
    bert("bert-base", transformers.BertModel)
    bert("bert-base-bare", lambda config: transformers.BertModel(config, add_pooling_layer=False))
    bert("bert-classes", transformers.BertForSequenceClassification, num_labels=3, classifier_dropout=0.2)
    bert("bert-number", transformers.BertForSequenceClassification, num_labels=1)
    bert("bert-span", transformers.BertForQuestionAnswering, hidden_act="relu")


def load(folder):
    config = AutoConfig.from_pretrained(folder)
    name = config.architectures[0]
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    return model.eval(), info


def outputs(model, rows):
    """Hidden states, logits and those of the next sentence, as model-print prints them; None for what the model lacks."""
    found = []
    for row in rows:
        ids, _, segments = row.partition("|")
        inputs = {"input_ids": torch.tensor([[int(i) for i in ids.split()]])}
        if segments:
            inputs["token_type_ids"] = torch.tensor([[int(i) for i in segments.split()]])
        with torch.no_grad():
            out = model(**inputs, output_hidden_states=True)
        hidden = out.last_hidden_state if hasattr(out, "last_hidden_state") else out.hidden_states[-1]
        if "start_logits" in out:
            logits = torch.stack([out.start_logits, out.end_logits], -1)
        elif "prediction_logits" in out:
            logits = out.prediction_logits
        else:
            logits = out.get("logits")
        found.append((hidden, logits, out.get("seq_relationship_logits")))
    return found


def rows_of(folder):
    return pathlib.Path(folder, "rows").read_text().splitlines()


def compare(folder, printed):
    model, _ = load(folder)
    rows = rows_of(folder)
    lines = pathlib.Path(printed).read_text().splitlines()
    assert len(lines) == len(rows), (len(lines), len(rows))
    worst = 0
    for line, row, theirs in zip(lines, rows, outputs(model, rows)):
        for values, wanted in zip(line.split("|"), theirs):
            ours = torch.tensor([float(v) for v in values.split()])
            if wanted is None:
                continue
            if ours.numel() != wanted.numel():  # rows of the embedding behind the vocabulary have no logits
                length = len(row.partition("|")[0].split())
                wanted = wanted[:, :, :ours.numel() // length]
            worst = max(worst, (ours - wanted.flatten().float()).abs().max().item())
    assert worst < 1e-4, f"{folder}: differs by {worst}"
    print(f"{folder}: at most {worst:.1e} from transformers")


def back(folder, written):
    model, _ = load(folder)
    again, info = load(written)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")), info
    numbers = again.state_dict()
    for key, value in model.state_dict().items():
        assert key not in numbers or torch.equal(value, numbers[key]), (folder, key)
    rows = rows_of(folder)
    for a, b in zip(outputs(model, rows), outputs(again, rows)):
        for x, y in zip(a, b):
            if x is not None and y is not None:
                assert (x - y).abs().max() < 1e-6, (folder, (x - y).abs().max())
    theirs, ours = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(written)
    assert type(theirs) is type(ours), (theirs, ours)
    for line in text():
        assert theirs(line)["input_ids"] == ours(line)["input_ids"], line
    assert theirs.decode(theirs("w1 w2")["input_ids"]) == ours.decode(ours("w1 w2")["input_ids"])


if sys.argv[1] == "make":
    make()
else:
    for name in sys.argv[2:]:
        compare(name, f"{name}.printed")
        back(name, f"{name}.back")
