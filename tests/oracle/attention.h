// Multi-head attention as naive loops in double precision, written from the equations:
//   Q_i = x W^Q_i + b, K_i and V_i likewise from m;  A = c tanh(Q_i K_iᵀ / (√dk c)) + position bias + additive mask;
//   P = softmax of A over allowed keys and a sink of logit ψ_i;  Z_i = P V_i;  y = concat(Z) W^O + b.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace reference {

using Vector = std::vector<double>;
using Weights = std::map<std::string, Vector>;  // parameters by their names in the layer: "query.weight"

struct Sizes {
  int64_t batch, queries, keys, width, heads, key_size, value_size;
};

// may_attend(b, t, s): query t of row b may attend to key s.
using MayAttend = std::function<bool(int64_t, int64_t, int64_t)>;
// Mask added to A[b, head, t, s]; empty: none.
using AdditiveMask = std::function<double(int64_t, int64_t, int64_t, int64_t)>;

// Optional terms of the logits.
struct LogitTerms {
  double soft_cap = 0;  // c; 0: none
  Vector sinks = {};    // ψ (h); empty: none
  // Bias of head i for query t and key s, added after the soft cap; empty: none.
  std::function<double(int64_t i, int64_t t, int64_t s)> position_bias = {};
};

// Returns y (B, Tq, d) for x (B, Tq, d) and m (B, Tk, d), row-major. Fully masked rows have Z = 0.
inline Vector attention(const Sizes& sizes, const Vector& x, const Vector& m, const Weights& w,
                        const MayAttend& may_attend, const AdditiveMask& additive_mask = {},
                        const LogitTerms& terms = {}) {
  auto project = [&](const Vector& in, int64_t length, const char* name, int64_t size) {
    const Vector& weight = w.at(std::string(name) + ".weight");
    auto bias = w.find(std::string(name) + ".bias");
    Vector out(static_cast<size_t>(sizes.batch * length * sizes.heads * size));
    for (int64_t r = 0; r < sizes.batch * length; ++r)
      for (int64_t o = 0; o < sizes.heads * size; ++o) {
        double sum = bias == w.end() ? 0 : bias->second[static_cast<size_t>(o)];
        for (int64_t c = 0; c < sizes.width; ++c)
          sum += in[static_cast<size_t>(r * sizes.width + c)] * weight[static_cast<size_t>(o * sizes.width + c)];
        out[static_cast<size_t>(r * sizes.heads * size + o)] = sum;
      }
    return out;
  };
  const Vector q = project(x, sizes.queries, "query", sizes.key_size),
               k = project(m, sizes.keys, "key", sizes.key_size), v = project(m, sizes.keys, "value", sizes.value_size);
  const Vector& wo = w.at("output.weight");
  auto bo = w.find("output.bias");
  Vector y(static_cast<size_t>(sizes.batch * sizes.queries * sizes.width));
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t t = 0; t < sizes.queries; ++t) {
      Vector concatenated_outputs(static_cast<size_t>(sizes.heads * sizes.value_size));
      for (int64_t i = 0; i < sizes.heads; ++i) {
        Vector exp_logits(static_cast<size_t>(sizes.keys));
        double sum = terms.sinks.empty() ? 0 : std::exp(terms.sinks[static_cast<size_t>(i)]);
        for (int64_t s = 0; s < sizes.keys; ++s) {
          if (!may_attend(b, t, s)) continue;
          double logit = 0;
          for (int64_t c = 0; c < sizes.key_size; ++c)
            logit += q[static_cast<size_t>(((b * sizes.queries + t) * sizes.heads + i) * sizes.key_size + c)] *
                     k[static_cast<size_t>(((b * sizes.keys + s) * sizes.heads + i) * sizes.key_size + c)];
          logit /= std::sqrt(static_cast<double>(sizes.key_size));
          if (terms.soft_cap > 0) logit = terms.soft_cap * std::tanh(logit / terms.soft_cap);
          if (terms.position_bias) logit += terms.position_bias(i, t, s);
          if (additive_mask) logit += additive_mask(b, i, t, s);
          exp_logits[static_cast<size_t>(s)] = std::exp(logit);
          sum += exp_logits[static_cast<size_t>(s)];
        }
        if (sum == 0) continue;
        for (int64_t s = 0; s < sizes.keys; ++s)
          for (int64_t c = 0; c < sizes.value_size; ++c)
            concatenated_outputs[static_cast<size_t>(i * sizes.value_size + c)] +=
                exp_logits[static_cast<size_t>(s)] / sum *
                v[static_cast<size_t>(((b * sizes.keys + s) * sizes.heads + i) * sizes.value_size + c)];
      }
      for (int64_t o = 0; o < sizes.width; ++o) {
        double sum = bo == w.end() ? 0 : bo->second[static_cast<size_t>(o)];
        for (size_t c = 0; c < concatenated_outputs.size(); ++c)
          sum += concatenated_outputs[c] * wo[static_cast<size_t>(o) * concatenated_outputs.size() + c];
        y[static_cast<size_t>((b * sizes.queries + t) * sizes.width + o)] = sum;
      }
    }
  return y;
}

// Returns the contribution of head `head` to attention() (B, Tq, d), without the output bias.
inline Vector head_output(const Sizes& sizes, int64_t head, const Vector& x, const Vector& m, Weights w,
                          const MayAttend& may_attend) {
  w.erase("output.bias");
  Vector& output = w.at("output.weight");  // (d, h dv)
  for (size_t i = 0; i < output.size(); ++i)
    if (static_cast<int64_t>(i) % (sizes.heads * sizes.value_size) / sizes.value_size != head) output[i] = 0;
  return attention(sizes, x, m, w, may_attend);
}

// Returns x W^T + b (B, T, out) for x (B, T, width), with the weight W (out, width) and the bias b, if any, of `name`.
inline Vector apply_projection(const Weights& w, const std::string& name, const Vector& x, int64_t width) {
  const Vector& weight = w.at(name + ".weight");
  auto bias = w.find(name + ".bias");
  const size_t d = static_cast<size_t>(width), out_features = weight.size() / d;
  Vector y(x.size() / d * out_features);
  for (size_t r = 0; r < x.size() / d; ++r)
    for (size_t o = 0; o < out_features; ++o) {
      double sum = bias == w.end() ? 0 : bias->second[o];
      for (size_t c = 0; c < d; ++c) sum += x[r * d + c] * weight[o * d + c];
      y[r * out_features + o] = sum;
    }
  return y;
}

}  // namespace reference
