"""Peer of the translation benchmark: a tuned encoder-decoder in eager PyTorch.

The peer has the settings of decoder.py, one projection for the keys and values of the encoder output, and one padding mask for all
layers (None for a batch without padding). It trains on the batches of mh-train, recomputed here from the documented shuffle: pairs of
similar length, with up to --batch-tokens tokens after padding to the longest sequence of source and target.

    python peers/translation.py --pairs ids.tsv --rows 8000 --updates 40     one line of JSON
"""
import argparse
import json
import math
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that `peers` can be imported when this file is run as a program
from peers import decoder, shuffle  # noqa: E402


class Attention(nn.Module):
    def __init__(self, d, h, cross, dropout):
        super().__init__()
        self.h, self.cross, self.dropout = h, cross, dropout
        if cross:
            self.q, self.kv = nn.Linear(d, d), nn.Linear(d, 2 * d)
        else:
            self.qkv = nn.Linear(d, 3 * d)
        self.out, self.norm = nn.Linear(d, d), nn.LayerNorm(d)

    def split(self, x, parts):
        """Splits projections into heads: x (B, T, parts d) -> (parts, B, h, T, dk)."""
        return x.view(x.shape[0], x.shape[1], parts, self.h, -1).permute(2, 0, 3, 1, 4)

    def forward(self, x, memory=None, mask=None, causal=False):
        """Returns x + attention(norm(x)), (B, T, d); memory (B, S, d): encoder output of S source positions;
        mask (B, 1, 1, S), True where a key is visible."""
        y = self.norm(x)
        if self.cross:
            q, (k, v) = self.split(self.q(y), 1)[0], self.split(self.kv(memory), 2)
        else:
            q, k, v = self.split(self.qkv(y), 3)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal).transpose(1, 2).reshape(x.shape)
        return x + F.dropout(self.out(z), self.dropout, self.training)

    def tensors(self, name, value_of):
        """Yields (name in checkpoints of mh-train, tensor or slice). `value_of`: maps a parameter to the tensor to return, such as its gradient."""
        parts = {"query": self.q, "key value": self.kv} if self.cross else {"query key value": self.qkv}
        for names, layer in {**parts, "output": self.out}.items():
            for kind, p in layer.named_parameters():
                yield from zip((f"{name}.{n}.{kind}" for n in names.split()), value_of(p).chunk(len(names.split())))
        for kind, p in self.norm.named_parameters():
            yield f"{name}.norm.{kind}", value_of(p)


class FeedForward(nn.Module):
    def __init__(self, d, f, dropout):
        super().__init__()
        self.norm, self.up, self.down, self.dropout = nn.LayerNorm(d), nn.Linear(d, f), nn.Linear(f, d), dropout

    def forward(self, x):
        return x + F.dropout(self.down(F.relu(self.up(self.norm(x)))), self.dropout, self.training)

    def tensors(self, name, value_of):
        for part, p in self.named_parameters():
            yield f"{name}.{part}", value_of(p)


class EncoderDecoder(nn.Module):
    """Pre-norm (norm = "pre" of mh-train); one embedding matrix for source, target and output."""

    def __init__(self, rows, layers=3, d=256, h=8, f=1024, dropout=0.0, max_length=256):
        super().__init__()
        self.d, self.dropout = d, dropout
        self.embedding = nn.Embedding(rows, d)
        nn.init.normal_(self.embedding.weight, std=d**-0.5)
        self.encoder = nn.ModuleList(
            nn.ModuleDict({"self": Attention(d, h, False, dropout), "ffn": FeedForward(d, f, dropout)}) for _ in range(layers))
        self.decoder = nn.ModuleList(
            nn.ModuleDict({"self": Attention(d, h, False, dropout), "cross": Attention(d, h, True, dropout),
                           "ffn": FeedForward(d, f, dropout)}) for _ in range(layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.register_buffer("positions", decoder.sinusoidal(max_length, d), persistent=False)

    def embed(self, tokens):
        x = self.embedding(tokens) * math.sqrt(self.d) + self.positions[:tokens.shape[1]]
        return F.dropout(x, self.dropout, self.training)

    def forward(self, source, mask, tokens):
        """Returns logits (B, T, rows) from source (B, S), mask (B, 1, 1, S) or None, and tokens (B, T)."""
        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer["ffn"](layer["self"](memory, mask=mask))
        memory = self.encoder_norm(memory)
        x = self.embed(tokens)
        for layer in self.decoder:
            x = layer["self"](x, causal=True)
            x = layer["ffn"](layer["cross"](x, memory, mask))
        return F.linear(self.decoder_norm(x), self.embedding.weight)

    def tensors(self, value_of=lambda p: p.data):
        """Returns {name in checkpoints of mh-train: tensor of this model}. `value_of`: maps a parameter to the tensor to return."""
        tensors = {"decoder.embedding.weight": value_of(self.embedding.weight)}
        for side, layers, norm in (("encoder", self.encoder, self.encoder_norm), ("decoder", self.decoder, self.decoder_norm)):
            for kind, p in norm.named_parameters():
                tensors[f"{side}.norm.{kind}"] = value_of(p)
            for i, layer in enumerate(layers):
                for part, module in layer.items():
                    tensors.update(module.tensors(f"{side}.layers.{i}.{part}", value_of))
        return tensors


def read_pairs(path):
    """Returns [(source ids, target ids)] from the output of `mh-prep cat --ids`; source and target end with the end-of-line token."""
    with open(path, encoding="ascii") as lines:
        return [tuple([int(t) for t in side.split()] for side in line.rstrip("\n").split("\t")) for line in lines]


class Batches:
    """The batches of mh-train. Calling the object with the number of an update returns source (B, S), mask (B, 1, 1, S) or None, tokens
    and targets (B, T) each; padded targets are -1."""

    def __init__(self, pairs, batch_tokens, seed=1):
        self.pairs, self.seed, self.epoch = pairs, seed, None
        self.sort(0)
        self.batches, rows, max_width = [], [], 0
        for i, pair in enumerate(self.order):
            width = max(max_width, *map(len, pairs[pair]))
            if rows and width * (len(rows) + 1) > batch_tokens:
                self.batches.append(rows)
                rows, width = [], max(map(len, pairs[pair]))
            rows.append(i)
            max_width = width
        self.batches.append(rows)

    def sort(self, epoch):
        order = shuffle.shuffled_order(len(self.pairs), self.seed, "pairs", epoch)
        self.order = sorted(order, key=lambda i: (len(self.pairs[i][1]), len(self.pairs[i][0])))

    def rows(self, update):
        epoch, index = divmod(update, len(self.batches))
        if epoch != self.epoch:
            self.sort(epoch)
            self.batch_order, self.epoch = shuffle.shuffled_order(len(self.batches), self.seed, "batches", epoch), epoch
        return [self.pairs[self.order[i]] for i in self.batches[self.batch_order[index]]]

    def __call__(self, update):
        rows = self.rows(update)
        sources, targets = [torch.tensor(s) for s, _ in rows], [torch.tensor(t) for _, t in rows]
        end = targets[0][-1].item()
        pad = lambda sides, fill: nn.utils.rnn.pad_sequence(sides, batch_first=True, padding_value=fill)
        source, y = pad(sources, sources[0][-1].item()), pad(targets, -1)
        lengths = torch.tensor([len(s) for s in sources])
        mask = None
        if lengths.min() < source.shape[1]:
            mask = (torch.arange(source.shape[1]) < lengths[:, None])[:, None, None, :]
        x = torch.full_like(y, end)
        x[:, 1:] = y[:, :-1].masked_fill(y[:, :-1] < 0, end)
        return source, mask, x, y


def losses(model, source, mask, tokens, targets, smoothing):
    """Returns (training loss, loss without label smoothing) of a batch, nats per target token."""
    logits = model(source, mask, tokens).flatten(0, 1)
    training_loss = F.cross_entropy(logits, targets.flatten(), ignore_index=-1, label_smoothing=smoothing)
    if smoothing == 0:
        return training_loss, training_loss
    with torch.no_grad():
        return training_loss, F.cross_entropy(logits, targets.flatten(), ignore_index=-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--pairs", required=True, help="output of `mh-prep cat --ids` for the shard")
    parser.add_argument("--rows", type=int, required=True, help="vocabulary size")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--warm", type=int, default=3, help="updates before the clock starts")
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    peak_at_start = decoder.peak_bytes()
    model = EncoderDecoder(args.rows, h=args.heads, dropout=args.dropout).to(args.device)
    optimizer = decoder.optimizer_of(model, 5e-4)
    batches = Batches(read_pairs(args.pairs), args.batch_tokens)
    batches_on_device = [[t if t is None else t.to(args.device) for t in batches(i)] for i in range(args.warm + args.updates)]
    tokens = sum((batch[3] >= 0).sum().item() for batch in batches_on_device[args.warm:])
    for i, (source, mask, x, y) in enumerate(batches_on_device):
        if i == args.warm:
            start_time, cpu_start = time.perf_counter(), time.process_time()
        loss = F.cross_entropy(model(source, mask, x).flatten(0, 1), y.flatten(), ignore_index=-1, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
    print(json.dumps({"tokens_per_second": tokens / (time.perf_counter() - start_time),
                      "tokens_per_cpu_second": tokens / (time.process_time() - cpu_start), "tokens": tokens, "peak": decoder.peak_bytes(),
                      "at_start": peak_at_start}))


if __name__ == "__main__":
    main()
