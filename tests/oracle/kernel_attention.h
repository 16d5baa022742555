// Attention with every option of kernels/attention_params.h, with head mixing or without, and its gradients, as naive
// loops from the equations:
//   A_j = Q_j K_jᵀ, with relative positions A_j[t, s] = (Q_j[t] + u_j) · K_j[s] + (Q_j[t] + v_j) · R_j[row of (t, s)];
//   L_j = c tanh(scale A_j / c) + B_j[distance of (t, s)], without a soft cap c: scale A_j + B_j;
//   P_j = softmax of L_j over the visible keys and a sink of logit ψ_j, or Sigsoftmax;  P̄_i = Σ_j M[j, i] (Z_j ∘ P_j);
//   O_i = s_i (Z̄_i ∘ P̄_i) V_i, where one of Z and Z̄ is the dropout mask, the other is 1, and s_i is the head scale.
// All arithmetic is in double precision, but `round` can round the matrices that the composed path stores to the type
// of that path.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "attention_params.h"

namespace reference {

using Doubles = std::vector<double>;

struct OracleCase {
  mh::kernels::AttentionParams params{};
  int64_t batch = 1;
  int64_t heads = 1, value_heads = 1;  // numbers of heads of the logits and of the output
  int64_t k_heads = 1, v_heads = 1;    // numbers of heads of k and of v
  int64_t key_size = 1, value_size = 1;
  std::vector<int64_t> key_lengths;    // (batch); empty: no key is padding
  Doubles head_scales;                 // (batch, value_heads); empty: 1
  Doubles matrix;                      // M (batch, queries, heads, value_heads); empty: the identity
  bool dropout_before_mixing = false;  // Z is the dropout mask; false: Z̄ is the dropout mask
  // Relative positions: u and v_bias (heads, key_size), r (heads, num_distances, key_size); all empty without
  // relative positions.
  Doubles u, v_bias, r;
  int64_t num_distances = 0;
  std::vector<mh::kernels::KeyRange> key_ranges;  // ranges that cover all keys
  Doubles sinks;                                  // ψ (heads); empty: no sinks. params.sinks is not read
  // Position bias: B (heads, num_bias_distances), and ranges that cover all keys; empty: none. params.position_bias is
  // not read.
  Doubles position_bias;
  int64_t num_bias_distances = 0;
  std::vector<mh::kernels::KeyRange> bias_key_ranges;
  // Rounds Q + u and Q + v to the type in which the fused and the composed path store them, so that this rounding does
  // not count as an error.
  std::function<double(double)> round_biased_query = [](double x) { return x; };
  // Dropout mask: (batch row, head, query, key) -> 0 or 1 / (1 - p); empty: no dropout.
  std::function<double(int64_t, int64_t, int64_t, int64_t)> dropout_factor;
  std::function<double(double)> round = [](double x) { return x; };  // rounds each element of a stored matrix
  // Whether delta = dO · O with the rounded O, as in fused kernels; false: delta = rowsum(P ∘ dP).
  bool computes_delta_from_outputs = false;
};

struct OracleResult {
  // `out` and `dq` have the shapes of `dout` and `q`. `dk` (batch, heads, keys, key_size) has one head for each query
  // head, and `dv` (batch, value_heads, keys, value_size) has one for each value head: the gradients of heads that read
  // the same key/value head are not summed.
  Doubles out, dq, dk, dv;
  Doubles dm, dscale;          // (batch, queries, heads, value_heads); (batch, value_heads)
  Doubles lse, lse_magnitude;  // (batch, heads, queries), lse infinite for fully masked rows; lse_magnitude = 1 + |lse|
  Doubles du, dv_bias, dr;     // shaped like u, v_bias and r
  Doubles dsinks, dposition_bias;  // shaped like sinks and position_bias
  // Σ |term| of each entry. The rounding error of an entry is proportional to its Σ |term|.
  Doubles du_magnitude, dv_bias_magnitude, dr_magnitude, dsinks_magnitude, dposition_bias_magnitude;
  Doubles out_magnitude, dq_magnitude, dk_magnitude, dv_magnitude, dm_magnitude, dscale_magnitude;
  double logit_magnitude = 0;  // maximum of Σ |term| over all logits
};

// Returns the results of a case for q (batch, heads, queries, key_size), k (batch, k_heads, keys, key_size), v
// (batch, v_heads, keys, value_size) and dout (batch, value_heads, queries, value_size).
inline OracleResult attention(const OracleCase& c, const Doubles& q, const Doubles& k, const Doubles& v,
                              const Doubles& dout) {
  const auto& p = c.params;
  const int64_t queries = p.queries, keys = p.keys, key_size = c.key_size, value_size = c.value_size;
  const auto at = [](const Doubles& x, int64_t i) { return x[static_cast<size_t>(i)]; };
  const auto zeros = [](int64_t size) { return Doubles(static_cast<size_t>(size)); };
  OracleResult r;
  r.out = zeros(c.batch * c.value_heads * queries * value_size), r.dq = zeros(c.batch * c.heads * queries * key_size),
  r.dk = zeros(c.batch * c.heads * keys * key_size), r.dv = zeros(c.batch * c.value_heads * keys * value_size),
  r.dm = zeros(c.batch * queries * c.heads * c.value_heads), r.dscale = zeros(c.batch * c.value_heads);
  r.out_magnitude = r.out, r.dq_magnitude = r.dq, r.dk_magnitude = r.dk, r.dv_magnitude = r.dv, r.dm_magnitude = r.dm,
  r.dscale_magnitude = r.dscale;
  r.lse = r.lse_magnitude = zeros(c.batch * c.heads * queries);
  r.du = r.dv_bias = zeros(static_cast<int64_t>(c.u.size())), r.dr = zeros(static_cast<int64_t>(c.r.size()));
  r.du_magnitude = r.du, r.dv_bias_magnitude = r.dv_bias, r.dr_magnitude = r.dr;
  r.dsinks = zeros(static_cast<int64_t>(c.sinks.size())),
  r.dposition_bias = zeros(static_cast<int64_t>(c.position_bias.size()));
  r.dsinks_magnitude = r.dsinks, r.dposition_bias_magnitude = r.dposition_bias;
  // Returns the row of the distance between query t and key s.
  const auto row_of_distance = [&](const std::vector<mh::kernels::KeyRange>& key_ranges, int64_t t, int64_t s) {
    const auto range = std::find_if(key_ranges.begin(), key_ranges.end(), [&](const mh::kernels::KeyRange& key_range) {
      return s >= key_range.first_key && s < key_range.first_key + key_range.num_keys;
    });
    return range->first_row + queries - 1 - t + s - range->first_key;
  };
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t t = 0; t < queries; ++t) {
      const int64_t unpadded_keys =
          c.key_lengths.empty() ? keys : std::min(keys, c.key_lengths[static_cast<size_t>(b)]);
      const int64_t first = p.visible_begin(t), end = std::max(first, std::min(p.visible_end(t), unpadded_keys));
      const auto k_offset = [&](int64_t j, int64_t s) { return ((b * c.k_heads + p.k_head(j)) * keys + s) * key_size; };
      const auto v_offset = [&](int64_t i, int64_t s) {
        return ((b * c.v_heads + p.v_head(i)) * keys + s) * value_size;
      };
      const auto dropout = [&](bool before_mixing, int64_t h, int64_t s) {
        return c.dropout_factor && before_mixing == c.dropout_before_mixing ? c.dropout_factor(b, h, t, s) : 1.0;
      };
      const auto mixing_weight = [&](int64_t j, int64_t i) {
        return c.matrix.empty() ? (i == j ? 1.0 : 0.0)
                                : at(c.matrix, ((b * queries + t) * c.heads + j) * c.value_heads + i);
      };
      // Returns the offset in r of head j at the distance of query t and key s.
      const auto r_offset = [&](int64_t j, int64_t s) {
        return (j * c.num_distances + row_of_distance(c.key_ranges, t, s)) * key_size;
      };
      // Returns the index in position_bias of head j at the distance of query t and key s.
      const auto bias_index = [&](int64_t j, int64_t s) {
        return j * c.num_bias_distances + row_of_distance(c.bias_key_ranges, t, s);
      };
      const auto query = [&](int64_t j, int64_t e, const Doubles& bias) {
        const double x = at(q, ((b * c.heads + j) * queries + t) * key_size + e);
        return bias.empty() ? x : c.round_biased_query(x + at(bias, j * key_size + e));
      };
      // probs, exponent_slopes, cap_slopes: for each head of the logits, the probability of each key, the derivative of
      // its exponent with respect to its logit, and the derivative of the soft cap. sink_probs: probability of the sink
      // of each head. dmixed_probs: for each value head, the gradient of the mixed probability of each key.
      std::vector<Doubles> probs, exponent_slopes, cap_slopes, dmixed_probs, dmixed_magnitude;
      Doubles sink_probs;
      for (int64_t j = 0; j < c.heads; ++j) {
        Doubles a = zeros(keys), slopes = zeros(keys), slopes_of_cap(static_cast<size_t>(keys), 1.0);
        double max_logit = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t s = first; s < end; ++s) {
          double x = 0, distance_logit = 0, magnitude = 0;
          const auto add = [&](double& to, double term) { to += term, magnitude += std::abs(term); };
          for (int64_t e = 0; e < key_size; ++e) add(x, query(j, e, c.u) * at(k, k_offset(j, s) + e));
          for (int64_t e = 0; e < key_size && !c.r.empty(); ++e)
            add(distance_logit, query(j, e, c.v_bias) * at(c.r, r_offset(j, s) + e));
          magnitude *= std::abs(static_cast<double>(p.scale));
          if (!c.r.empty()) x = c.round(x) + c.round(distance_logit);
          x = c.round(x * static_cast<double>(p.scale));
          if (p.soft_cap > 0) {
            const double ratio = std::tanh(x / static_cast<double>(p.soft_cap));
            x = c.round(static_cast<double>(p.soft_cap) * ratio);
            slopes_of_cap[static_cast<size_t>(s)] = 1 - ratio * ratio;
          }
          if (!c.position_bias.empty()) {
            const double bias = at(c.position_bias, bias_index(j, s));
            x = c.round(x + bias), magnitude += std::abs(bias);
          }
          r.logit_magnitude = std::max(r.logit_magnitude, magnitude);
          slopes[static_cast<size_t>(s)] = 1;
          if (p.normaliser == mh::kernels::Normaliser::sigsoftmax) {
            slopes[static_cast<size_t>(s)] = 2 - 1 / (1 + std::exp(-x));
            x = (x < 0 ? 2 * x : x) - std::log1p(std::exp(-std::abs(x)));
          }
          a[static_cast<size_t>(s)] = x, max_logit = std::max(max_logit, x);
        }
        const bool any_visible = std::isfinite(max_logit);
        const double sink = c.sinks.empty() ? -std::numeric_limits<double>::infinity() : at(c.sinks, j);
        max_logit = std::max(max_logit, sink);
        for (int64_t s = first; s < end; ++s) sum += any_visible ? std::exp(at(a, s) - max_logit) : 0;
        if (any_visible) sum += std::exp(sink - max_logit);
        sink_probs.push_back(any_visible ? std::exp(sink - max_logit) / sum : 0);
        const auto lse_index = static_cast<size_t>((b * c.heads + j) * queries + t);
        r.lse[lse_index] = any_visible ? max_logit + std::log(sum) : HUGE_VAL;
        r.lse_magnitude[lse_index] = 1 + std::abs(r.lse[lse_index]);
        for (int64_t s = 0; s < keys; ++s)
          a[static_cast<size_t>(s)] = any_visible && s >= first && s < end ? std::exp(at(a, s) - max_logit) / sum : 0;
        probs.push_back(a), exponent_slopes.push_back(slopes), cap_slopes.push_back(slopes_of_cap);
      }
      for (int64_t i = 0; i < c.value_heads; ++i) {
        Doubles x = zeros(keys), x_magnitude = x, dx = x, dx_magnitude = x;
        const double scale = c.head_scales.empty() ? 1 : at(c.head_scales, b * c.value_heads + i);
        for (int64_t s = first; s < end; ++s) {
          for (int64_t j = 0; j < c.heads; ++j) {
            const double term = mixing_weight(j, i) * dropout(true, j, s) * at(probs[static_cast<size_t>(j)], s);
            x[static_cast<size_t>(s)] += term,
                x_magnitude[static_cast<size_t>(s)] += std::abs(term) * dropout(false, i, s);
          }
          x[static_cast<size_t>(s)] = c.round(x[static_cast<size_t>(s)] * dropout(false, i, s));
        }
        const int64_t out_offset = ((b * c.value_heads + i) * queries + t) * value_size;
        for (int64_t e = 0; e < value_size; ++e) {
          double sum = 0, magnitude = 0;
          for (int64_t s = first; s < end; ++s) {
            sum += at(x, s) * at(v, v_offset(i, s) + e);
            magnitude += at(x_magnitude, s) * std::abs(at(v, v_offset(i, s) + e));
          }
          r.out_magnitude[static_cast<size_t>(out_offset + e)] = std::abs(scale) * magnitude;
          r.out[static_cast<size_t>(out_offset + e)] = c.round(scale * c.round(sum));
          r.dscale[static_cast<size_t>(b * c.value_heads + i)] += c.round(sum) * at(dout, out_offset + e);
          r.dscale_magnitude[static_cast<size_t>(b * c.value_heads + i)] +=
              magnitude * std::abs(at(dout, out_offset + e));
        }
        for (int64_t s = first; s < end; ++s) {
          double sum = 0, magnitude = 0;
          for (int64_t e = 0; e < value_size; ++e) {
            const double d = c.round(scale * at(dout, out_offset + e));
            sum += d * at(v, v_offset(i, s) + e), magnitude += std::abs(d * at(v, v_offset(i, s) + e));
            const auto dv_index = static_cast<size_t>(((b * c.value_heads + i) * keys + s) * value_size + e);
            r.dv[dv_index] += at(x, s) * d, r.dv_magnitude[dv_index] += at(x_magnitude, s) * std::abs(d);
          }
          dx[static_cast<size_t>(s)] = c.round(sum) * dropout(false, i, s);
          dx_magnitude[static_cast<size_t>(s)] = magnitude * dropout(false, i, s);
        }
        dmixed_probs.push_back(dx), dmixed_magnitude.push_back(dx_magnitude);
      }
      for (int64_t j = 0; j < c.heads; ++j) {
        const Doubles& p_j = probs[static_cast<size_t>(j)];
        Doubles dp = zeros(keys), dp_magnitude = dp;
        double delta = 0, delta_magnitude = 0;
        for (int64_t i = 0; i < c.value_heads; ++i)
          for (int64_t s = first; s < end; ++s) {
            const double d = at(dmixed_probs[static_cast<size_t>(i)], s), factor = dropout(true, j, s);
            const double d_magnitude = at(dmixed_magnitude[static_cast<size_t>(i)], s);
            const auto dm_index = static_cast<size_t>(((b * queries + t) * c.heads + j) * c.value_heads + i);
            r.dm[dm_index] += factor * at(p_j, s) * d, r.dm_magnitude[dm_index] += factor * at(p_j, s) * d_magnitude;
            dp[static_cast<size_t>(s)] += mixing_weight(j, i) * factor * d;
            dp_magnitude[static_cast<size_t>(s)] += std::abs(mixing_weight(j, i)) * factor * d_magnitude;
          }
        for (int64_t s = first; s < end && !c.computes_delta_from_outputs; ++s) delta += at(p_j, s) * at(dp, s);
        for (int64_t s = first; s < end; ++s) delta_magnitude += at(p_j, s) * at(dp_magnitude, s);
        for (int64_t e = 0; e < value_size && c.computes_delta_from_outputs; ++e) {
          const int64_t i = ((b * c.value_heads + j) * queries + t) * value_size + e;
          delta += at(r.out, i) * at(dout, i);
        }
        if (!c.sinks.empty()) {
          r.dsinks[static_cast<size_t>(j)] -= at(sink_probs, j) * delta;
          r.dsinks_magnitude[static_cast<size_t>(j)] += at(sink_probs, j) * delta_magnitude;
        }
        for (int64_t s = first; s < end; ++s) {
          const double exponent_slope = at(exponent_slopes[static_cast<size_t>(j)], s),
                       cap_slope = at(cap_slopes[static_cast<size_t>(j)], s);
          const double dlogit = c.round(at(p_j, s) * (at(dp, s) - delta) * exponent_slope),
                       dlogit_magnitude = at(p_j, s) * (at(dp_magnitude, s) + delta_magnitude) * exponent_slope;
          if (!c.position_bias.empty()) {
            r.dposition_bias[static_cast<size_t>(bias_index(j, s))] += dlogit;
            r.dposition_bias_magnitude[static_cast<size_t>(bias_index(j, s))] += dlogit_magnitude;
          }
          const double ds = (p.soft_cap > 0 ? c.round(dlogit * cap_slope) : dlogit) * static_cast<double>(p.scale),
                       ds_magnitude = dlogit_magnitude * cap_slope * std::abs(static_cast<double>(p.scale));
          const auto add = [&](Doubles& to, Doubles& to_magnitude, int64_t i, double x) {
            to[static_cast<size_t>(i)] += ds * x, to_magnitude[static_cast<size_t>(i)] += ds_magnitude * std::abs(x);
          };
          for (int64_t e = 0; e < key_size; ++e) {
            const int64_t q_index = ((b * c.heads + j) * queries + t) * key_size + e,
                          k_index = ((b * c.heads + j) * keys + s) * key_size + e;
            const double key = at(k, k_offset(j, s) + e);
            add(r.dq, r.dq_magnitude, q_index, key);
            add(r.dk, r.dk_magnitude, k_index, query(j, e, c.u));
            if (c.r.empty()) continue;
            const int64_t r_index = r_offset(j, s) + e;
            add(r.dq, r.dq_magnitude, q_index, at(c.r, r_index));
            add(r.du, r.du_magnitude, j * key_size + e, key);
            add(r.dv_bias, r.dv_bias_magnitude, j * key_size + e, at(c.r, r_index));
            add(r.dr, r.dr_magnitude, r_index, query(j, e, c.v_bias));
          }
        }
      }
    }
  for (Doubles* x : {&r.dq, &r.dk, &r.dv, &r.dr})
    for (double& e : *x) e = c.round(e);
  return r;
}

}  // namespace reference
