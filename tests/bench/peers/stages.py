"""Peers of the attention stages: the decoder of decoder.py with the attention of each stage as tuned eager PyTorch.

The peer of a stage that acts on logits or probabilities computes them explicitly: baddbmm adds the mask in the product of queries
and keys, tensors that no gradient needs are changed in place, and mixing is one batched matrix product. Other stages use
scaled_dot_product_attention.

    python peers/stages.py --stage mixhead-a --rows 1000 --length 512     prints one line of JSON, as decoder.py
"""
import argparse
import dataclasses
import functools
import math
import pathlib
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that `peers` can be imported when this file is run as a program
from peers import decoder  # noqa: E402


@dataclasses.dataclass
class ModelSize:
    """Sizes of the model and of its batches, equal for the project and the peer."""
    layers: int = 4
    d: int = 512
    h: int = 8
    f: int = 512
    n: int = 512
    batch_tokens: int = 2048


def concatenate_heads(z):
    """Concatenates the heads: (B, h, T, dv) -> (B, T, h dv)."""
    return z.transpose(1, 2).flatten(2)


class ComposedAttention(decoder.Layer):
    """Plain attention with explicit probabilities: softmax(q kᵀ / √dk + mask) v."""

    def __init__(self, d, h, f, n):
        super().__init__(d, h, f)
        self.scale = (d // h) ** -0.5
        future_mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        self.register_buffer("future_mask", future_mask, persistent=False)
        self.register_buffer("mask", torch.zeros(n, n).masked_fill_(future_mask, -math.inf), persistent=False)

    def masked_product(self, q, k, mask):
        """Returns mask + q kᵀ / √dk, (B, h, T, T); q (B, h, T, dk), mask broadcastable to (B h, T, T)."""
        b, h, t, _ = q.shape
        return torch.baddbmm(mask, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=self.scale).view(b, h, t, t)

    def logits(self, q, k):
        return self.masked_product(q, k, self.mask)

    def normalise(self, logits):
        return logits.softmax(-1)

    def mix(self, p, _):
        return p

    def attend(self, x):
        q, k, v = self.project(x)
        return concatenate_heads(self.mix(self.normalise(self.logits(q, k)), q) @ v)


def mix_heads(x, m):
    """Returns the mixed heads Σ_j m[j, i] x_j, (B, h, T, S); x (B, h, T, S), m (h, h)."""
    return torch.bmm(m.t().expand(x.shape[0], -1, -1), x.flatten(2)).view(x.shape)


class MixheadA(ComposedAttention):
    def __init__(self, d, h, f, n):
        super().__init__(d, h, f, n)
        self.mixer__matrix = nn.Parameter(torch.eye(h))

    def mix(self, p, _):
        return mix_heads(p, self.mixer__matrix)


class MixheadB(MixheadA):
    def __init__(self, d, h, f, n):
        super().__init__(d, h, f, n)
        self.mixer__query__weight = nn.Parameter(torch.zeros(h, d // h))

    def mix(self, p, q):
        m = F.linear(q.transpose(1, 2), self.mixer__query__weight, None) + self.mixer__matrix  # (B, T, h, h)
        return torch.einsum("btji,bjts->bits", m, p)


class ConstantMixing(ComposedAttention):
    """Head mixing with a constant matrix: all entries 1 / h, or the matrix of a loaded checkpoint."""

    def __init__(self, d, h, f, n):
        super().__init__(d, h, f, n)
        self.register_buffer("mixer__matrix", torch.full((h, h), 1 / h))

    def mix(self, p, _):
        return mix_heads(p, self.mixer__matrix)


class CausalMean(ComposedAttention):
    """All heads attend with the mean of their probabilities, so one product serves the values of all heads."""

    def attend(self, x):
        q, k, v = self.project(x)
        b, h, t, dv = v.shape
        p = self.normalise(self.logits(q, k)).mean(1)
        return p @ v.transpose(1, 2).reshape(b, t, h * dv)


class TalkingHeads(ComposedAttention):
    def __init__(self, d, h, f, n, pre=True, post=True):
        super().__init__(d, h, f, n)
        self.mixer__logits = nn.Parameter(torch.eye(h)) if pre else None
        self.mixer__matrix = nn.Parameter(torch.eye(h)) if post else None

    def logits(self, q, k):
        if self.mixer__logits is None:
            return super().logits(q, k)
        scores = (q * self.scale) @ k.transpose(-1, -2)
        b, h, t, _ = scores.shape
        m = self.mixer__logits.t().expand(b, h, h)
        return torch.baddbmm(self.mask.view(1, 1, t * t), m, scores.flatten(2)).view(scores.shape)

    def mix(self, p, _):
        return p if self.mixer__matrix is None else mix_heads(p, self.mixer__matrix)


class Sigsoftmax(ComposedAttention):
    def normalise(self, logits):
        return F.logsigmoid(logits).add_(logits).softmax(-1)


class Alibi(ComposedAttention):
    """ALiBi for a number of heads that is a power of two."""

    def __init__(self, d, h, f, n):
        super().__init__(d, h, f, n)
        slopes = 2.0 ** (-8 * torch.arange(1, h + 1) / h)
        distances = torch.arange(n).unsqueeze(1) - torch.arange(n)
        self.register_buffer("bias", -slopes.view(h, 1, 1) * distances, persistent=False)

    def logits(self, q, k):
        return super().logits(q, k) + self.bias


class T5Bias(ComposedAttention):
    """Position bias of T5 with 32 buckets up to the distance 128 and a table for each layer."""

    def __init__(self, d, h, f, n):
        super().__init__(d, h, f, n)
        self.position_bias__weight = nn.Parameter(torch.zeros(32, h))
        distances = (torch.arange(n).unsqueeze(1) - torch.arange(n)).clamp(min=0)
        logarithmic = 16 + (torch.log(distances.clamp(min=1) / 16) / math.log(128 / 16) * 16).long()
        self.register_buffer("buckets", torch.where(distances < 16, distances, logarithmic.clamp(max=31)), persistent=False)

    def logits(self, q, k):
        return super().logits(q, k) + self.position_bias__weight[self.buckets].permute(2, 0, 1)


class RelativePositions(ComposedAttention):
    """Relative positions of Transformer-XL, with its relative shift."""

    def __init__(self, d, h, f, n):
        super().__init__(d, h, f, n)
        self.relative__weight = nn.Parameter(torch.empty(d, d).normal_(std=0.02))
        self.relative__content_bias = nn.Parameter(torch.zeros(h, d // h))
        self.relative__position_bias = nn.Parameter(torch.zeros(h, d // h))
        frequencies = 10000 ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d)
        angles = torch.arange(n - 1, -1, -1, dtype=torch.float64)[:, None] * frequencies
        self.register_buffer("distances", torch.cat([angles.sin(), angles.cos()], 1).float(), persistent=False)

    def logits(self, q, k):
        b, h, t, dk = q.shape
        q = q * self.scale
        r = F.linear(self.distances, self.relative__weight).view(t, h, dk).permute(1, 2, 0)
        logits_by_distance = (q + (self.relative__position_bias * self.scale)[:, None]) @ r
        shifted_logits = F.pad(logits_by_distance, (1, 0)).view(b * h, t + 1, t)[:, 1:]
        content = (q + (self.relative__content_bias * self.scale)[:, None]).flatten(0, 1)
        return torch.baddbmm(shifted_logits, content, k.flatten(0, 1).transpose(1, 2)).masked_fill_(self.future_mask, -math.inf).view(b, h, t, t)


class Rotary(decoder.Layer):
    """Rotary positions: elements j and j + dk / 2 of queries and keys rotate by an angle proportional to the position."""

    def __init__(self, d, h, f):
        super().__init__(d, h, f)
        size = d // h
        self.register_buffer("frequencies", 1 / 10000 ** (torch.arange(0, size, 2).float() / size), persistent=False)
        self.cosines = self.sines = None  # (T, dk / 2), computed for the first batch

    def rotate(self, x):
        first, second = x.chunk(2, -1)
        return torch.cat([first * self.cosines - second * self.sines, second * self.cosines + first * self.sines], -1)

    def attend(self, x):
        q, k, v = self.project(x)
        if self.cosines is None or self.cosines.shape[0] != x.shape[1]:
            angles = torch.outer(torch.arange(x.shape[1], device=x.device).float(), self.frequencies)
            self.cosines, self.sines = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        return concatenate_heads(F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True))


class QkNorm(decoder.Layer):
    """RMS norm of the queries and keys of each head."""

    def __init__(self, d, h, f):
        super().__init__(d, h, f)
        self.query_norm__weight, self.key_norm__weight = nn.Parameter(torch.ones(d // h)), nn.Parameter(torch.ones(d // h))

    def attend(self, x):
        q, k, v = self.project(x)
        q, k = F.rms_norm(q, q.shape[-1:], self.query_norm__weight, 1e-6), F.rms_norm(k, k.shape[-1:], self.key_norm__weight, 1e-6)
        return concatenate_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class WithoutKeys(ComposedAttention):
    def __init__(self, d, h, f, n):
        super().__init__(d, h, f, n)
        self.qkv = nn.Linear(d, 2 * d)

    def project(self, x):
        b, t, d = x.shape
        return self.qkv(x).view(b, t, 2, self.h, d // self.h).permute(2, 0, 3, 1, 4)


class SynthesizerDense(WithoutKeys):
    def __init__(self, d, h, f, n):
        super().__init__(d, h, f, n)
        self.synthesizer__weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(d // h, n)))
        self.synthesizer__bias = nn.Parameter(torch.zeros(n))

    def attend(self, x):
        q, v = self.project(x)
        logits = F.linear(q.relu(), self.synthesizer__weight.t(), self.synthesizer__bias)
        return concatenate_heads(logits.masked_fill_(self.future_mask, -math.inf).softmax(-1) @ v)


class SynthesizerRandom(WithoutKeys):
    """The probabilities do not depend on the input, so they are computed once per batch."""

    def __init__(self, d, h, f, n):
        super().__init__(d, h, f, n)
        self.synthesizer__logits = nn.Parameter(nn.init.xavier_uniform_(torch.empty(h, n, n)))

    def attend(self, x):
        _, v = self.project(x)
        p = (self.synthesizer__logits + self.mask).softmax(-1)
        return torch.einsum("hts,bhsv->bthv", p, v).reshape(x.shape)


class CrossHead(decoder.Layer):
    """Each head reads the keys and values of a random head, drawn for each update (rate = 1)."""

    def attend(self, x):
        q, k, v = self.project(x)
        if self.training:
            order = torch.randperm(self.h, device=x.device)
            k, v = k[:, order], v[:, order]
        return concatenate_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class WeightedHeads(decoder.Layer):
    """Plain attention with the output of each head scaled by a weight."""

    def weights(self, x):
        """Returns the weights of the heads, (h) or (B, T, h)."""

    def attend(self, x):
        z = F.scaled_dot_product_attention(*self.project(x), is_causal=True)
        return (z.transpose(1, 2) * self.weights(x).unsqueeze(-1)).reshape(x.shape)


class HeadWeights(WeightedHeads):
    def __init__(self, d, h, f):
        super().__init__(d, h, f)
        self.register_buffer("ones", torch.ones(h), persistent=False)

    def weights(self, x):
        return self.ones


class Gates(WeightedHeads):
    def __init__(self, d, h, f):
        super().__init__(d, h, f)
        self.combiner__gate__bias = nn.Parameter(torch.zeros(h))

    def weights(self, x):
        return self.combiner__gate__bias.sigmoid()


class InputGates(Gates):
    def __init__(self, d, h, f):
        super().__init__(d, h, f)
        self.combiner__gate__weight = nn.Parameter(torch.zeros(h, d))

    def weights(self, x):
        return F.linear(x, self.combiner__gate__weight, self.combiner__gate__bias).sigmoid()


class HardConcrete(WeightedHeads):
    def __init__(self, d, h, f):
        super().__init__(d, h, f)
        self.combiner__log_a = nn.Parameter(torch.zeros(h))

    def weights(self, x):
        s = self.combiner__log_a
        if self.training:
            s = (torch.empty_like(s).uniform_(1e-6, 1 - 1e-6).logit_() + s) / 0.33
        return (1.2 * s.sigmoid() - 0.1).clamp(0, 1)


class Alphas(decoder.Layer):
    def __init__(self, d, h, f):
        super().__init__(d, h, f)
        self.combiner__alpha = nn.Parameter(torch.eye(h))

    def attend(self, x):
        z = F.scaled_dot_product_attention(*self.project(x), is_causal=True)
        return torch.einsum("ij,bjtv->btiv", self.combiner__alpha, z).reshape(x.shape)


class Experts(WeightedHeads):
    """Mixture of attentive experts (MAE), each of which leaves out one head; the gate reads the mean of the inputs up to the position.
    `sampling`: an update samples one expert per position and does not train the gate."""

    def __init__(self, d, h, f, sampling=False, hidden=256):
        super().__init__(d, h, f)
        self.sampling = sampling
        self.gate__norm__weight, self.gate__norm__bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.register_buffer("gate__norm__mean", torch.zeros(d))
        self.register_buffer("gate__norm__variance", torch.ones(d))
        self.gate__up__weight, self.gate__up__bias = nn.Parameter(torch.empty(hidden, d)), nn.Parameter(torch.zeros(hidden))
        self.gate__down__weight, self.gate__down__bias = nn.Parameter(torch.empty(h, hidden)), nn.Parameter(torch.zeros(h))
        nn.init.uniform_(self.gate__up__weight, -d**-0.5, d**-0.5)
        nn.init.uniform_(self.gate__down__weight, -hidden**-0.5, hidden**-0.5)

    def gate(self, x):
        means = x.cumsum(1).div_(torch.arange(1, x.shape[1] + 1, dtype=x.dtype, device=x.device).unsqueeze(-1))
        inner = F.batch_norm(means.flatten(0, 1), self.gate__norm__mean, self.gate__norm__variance, self.gate__norm__weight,
                             self.gate__norm__bias, training=self.training and not self.sampling)
        inner = F.linear(inner, self.gate__up__weight, self.gate__up__bias).tanh()
        return F.linear(inner, self.gate__down__weight, self.gate__down__bias).softmax(-1)  # (B T, h)

    def weights(self, x):
        if self.training and self.sampling:
            with torch.no_grad():
                gates = F.one_hot(self.gate(x).multinomial(1).squeeze(1), self.h).to(x.dtype)
        else:
            gates = self.gate(x)
        return (self.h / (self.h - 1) * (1 - gates)).view(*x.shape[:2], self.h)


class Differential(decoder.Layer):
    """Pairs of heads share their values: (P_2i - λ P_2i+1) [V_2i, V_2i+1]. By linearity this is a difference of two outputs of
    scaled_dot_product_attention, computed for each half of the values, since not every device supports wider values."""

    def __init__(self, d, h, f):
        super().__init__(d, h, f)
        for part in ("query1", "key1", "query2", "key2"):
            self.register_parameter(f"mixer__lambda_{part}", nn.Parameter(torch.empty(d // h).normal_(std=0.1)))

    @property
    def lambda_init(self):
        return 0.8 - 0.6 * math.exp(-0.3 * self.number)

    def norm(self, z):
        return z

    def attend(self, x):
        q, k, v = self.project(x)
        learned_lambda = (self.mixer__lambda_query1 @ self.mixer__lambda_key1).exp() - (self.mixer__lambda_query2 @ self.mixer__lambda_key2).exp()
        halves = [F.scaled_dot_product_attention(q, k, v[:, i::2].repeat_interleave(2, 1), is_causal=True) for i in (0, 1)]
        differences = torch.cat([z[:, ::2] - (learned_lambda + self.lambda_init) * z[:, 1::2] for z in halves], -1)  # (B, h / 2, T, 2 dv)
        return concatenate_heads(self.norm(differences))


class PairNorm(Differential):
    """Differential attention with an RMS norm of the output of each pair."""

    def __init__(self, d, h, f):
        super().__init__(d, h, f)
        self.combiner__norm__weight = nn.Parameter(torch.ones(2 * d // h))

    def norm(self, z):
        return F.rms_norm(z, z.shape[-1:], self.combiner__norm__weight * (1 - self.lambda_init), 1e-5)


class DropHead(WeightedHeads):
    """Drops each head for a complete sequence with probability 0.1 in training; plain attention in evaluation."""

    def weights(self, x):
        keep_mask = torch.empty(x.shape[0], 1, self.h, device=x.device).bernoulli_(0.9)
        keep_mask = torch.where(keep_mask.any(-1, keepdim=True), keep_mask, 1.0)
        return keep_mask * (self.h / keep_mask.sum(-1, keepdim=True))

    def attend(self, x):
        return super().attend(x) if self.training else decoder.Layer.attend(self, x)


class MixtureOfHeads(WeightedHeads):
    """Each position weighs the outputs of the first `num_shared` heads and of the `num_chosen` most probable other heads; all others are 0."""

    def __init__(self, d, h, f, num_shared, num_chosen):
        super().__init__(d, h, f)
        self.num_shared, self.num_chosen = num_shared, num_chosen
        self.combiner__router__weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(h, d)))
        self.combiner__balance__weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2, d))) if num_shared else None

    def weights(self, x):
        scores = F.linear(x, self.combiner__router__weight)
        p = scores[..., self.num_shared:].softmax(-1)
        top, indices = p.topk(self.num_chosen, -1)
        routed_weights = torch.zeros_like(p).scatter(-1, indices, self.num_chosen * top / top.sum(-1, keepdim=True))
        if not self.num_shared:
            return routed_weights
        balance = 2 * F.linear(x, self.combiner__balance__weight).softmax(-1)
        shared_weights = self.num_shared * scores[..., :self.num_shared].softmax(-1)
        return torch.cat([shared_weights * balance[..., :1], routed_weights * balance[..., 1:]], -1)


@dataclasses.dataclass
class Stage:
    """The peer of a stage, and the configuration of the stage for mh-train: lines of [attention], and other sections."""
    layer: Callable  # layer(d, h, f) makes a peer layer; ComposedAttention takes the sequence length n as a fourth argument
    attention: str = ""
    sections: str = ""

    def toml(self, size):
        return (f"[model]\nlayers = {size.layers}\nwidth = {size.d}\nffn_dim = {size.f}\n"
                f"[attention]\nheads = {size.h}\n{self.attention.format(n=size.n)}\n{self.sections}\n"
                f"[train]\nbatch.sequence_length = {size.n}\nbatch.tokens = {size.batch_tokens}\n")

    @property
    def is_composed(self):
        """True if the peer computes the probabilities explicitly and therefore needs the sequence length."""
        return isinstance(self.layer, type) and issubclass(self.layer, ComposedAttention)

    def model(self, vocabulary, size):
        layer = functools.partial(self.layer, n=size.n) if self.is_composed else self.layer
        return decoder.Decoder(vocabulary, size.layers, size.d, size.h, size.f, size.n, layer)


def talking_heads_stage(pre, post):
    class Variant(TalkingHeads):
        def __init__(self, d, h, f, n):
            super().__init__(d, h, f, n, pre, post)
    return Stage(Variant, f"mixer = 'talking-heads'\ntalking-heads.pre = {str(pre).lower()}\ntalking-heads.post = {str(post).lower()}")


def mixture_stage(num_shared, num_chosen):
    return Stage(functools.partial(MixtureOfHeads, num_shared=num_shared, num_chosen=num_chosen),
                 f"combiner = 'mixture-of-heads'\nmixture-of-heads.shared_heads = {num_shared}\nmixture-of-heads.chosen_heads = {num_chosen}")


class SamplingExperts(Experts):
    def __init__(self, d, h, f):
        super().__init__(d, h, f, sampling=True)


STAGES = {
    "plain": Stage(ComposedAttention),
    "qk-norm": Stage(QkNorm, "transform = ['qk-norm']"),
    "rotary": Stage(Rotary, "transform = ['rotary']"),
    "mixhead-a": Stage(MixheadA, "mixer = 'mixhead-a'"),
    "mixhead-b": Stage(MixheadB, "mixer = 'mixhead-b'"),
    "random-normal": Stage(ConstantMixing, "mixer = 'random-normal'"),
    "random-uniform": Stage(ConstantMixing, "mixer = 'random-uniform'"),
    "mean": Stage(CausalMean, "mixer = 'mean'"),
    "talking-heads-pre": talking_heads_stage(True, False),
    "talking-heads-post": talking_heads_stage(False, True),
    "talking-heads": talking_heads_stage(True, True),
    "sigsoftmax": Stage(Sigsoftmax, "normaliser = 'sigsoftmax'"),
    "alibi": Stage(Alibi, "position_bias = 'alibi'"),
    "t5": Stage(T5Bias, "position_bias = 't5'\nt5.shared = false"),
    "relative": Stage(RelativePositions, "score = 'relative'\nrelative.shared_biases = false"),
    "synthesizer-dense": Stage(SynthesizerDense, "score = 'synthesizer-dense'\nsynthesizer-dense.length = {n}"),
    "synthesizer-random": Stage(SynthesizerRandom, "score = 'synthesizer-random'\nsynthesizer-random.length = {n}"),
    "cross-head": Stage(CrossHead, "pairing = 'cross-head'\ncross-head.rate = 1.0"),
    "alphas": Stage(Alphas, "combiner = 'alphas'"),
    "mae": Stage(Experts, "combiner = 'mae'\nmae.dropout = 0.0"),
    "mae-sampling": Stage(SamplingExperts, "combiner = 'mae'\nmae.dropout = 0.0\nmae.sample_unit = 'position'",
                          "[train.procedures.block-coordinate]\nfirst_gate_epoch = 1000000"),
    "head-weights": Stage(HeadWeights, "combiner = 'head-weights'"),
    "gates": Stage(Gates, "combiner = 'gates'"),
    "gates-input": Stage(InputGates, "combiner = 'gates'\ngates.input = true"),
    "hard-concrete": Stage(HardConcrete, "combiner = 'hard-concrete'"),
    "differential": Stage(Differential, "mixer = 'differential'"),
    "differential-pair-norm": Stage(PairNorm, "mixer = 'differential'\ncombiner = 'pair-norm'"),
    "drop-head": Stage(DropHead, "combiner = 'drop-head'"),
    "mixture-of-heads": mixture_stage(2, 1),
    "mixture-of-heads-routed": mixture_stage(0, 2),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    decoder.add_measure_options(parser)
    parser.add_argument("--stage", choices=STAGES, required=True)
    for field in dataclasses.fields(ModelSize):
        if field.name not in ("n", "batch_tokens"):
            parser.add_argument(f"--{field.name}", type=int, default=field.default)
    args = parser.parse_args()
    size = ModelSize(args.layers, args.d, args.h, args.f, args.length, args.batch_tokens)
    decoder.measure(args, lambda: STAGES[args.stage].model(args.rows, size))


if __name__ == "__main__":
    main()
