// Attention layers with head mixing, as naive loops in double precision:
//   L = Q Kᵀ / √dk;  L'_k = Σ_j pre_matrix[j, k] L_j;
//   P_k ∝ exp(L'_k), or exp(L'_k) σ(L'_k) if `is_sigsoftmax`, over allowed keys;
//   P̄_i = Σ_k M[t, k, i] P_k, M = post_matrix + Σ_c q_k[t, c] query_weight[i, c];
//   Z_i = P̄_i V_i;  Z'_i = Σ_j α[i, j] Z_j;  y = Z' W^O + b.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "oracle/attention.h"

namespace reference {

struct HeadMixing {
  int64_t batch, queries, keys, width, heads;
  int64_t softmax_heads;  // number of heads of the probabilities P_k, between `pre_matrix` and `post_matrix`
  int64_t dk, dv;
  bool is_sigsoftmax = false;
  // pre_matrix (h, softmax_heads), post_matrix (softmax_heads, h) and alpha (h, h); empty: the identity matrix.
  // query_weight (h, dk); empty: zero.
  Vector pre_matrix = {}, post_matrix = {}, query_weight = {}, alpha = {};
  // Returns y (B, Tq, d) for x (B, Tq, d) and m (B, Tk, d).
  Vector operator()(const Vector& x, const Vector& m, const Weights& w, const MayAttend& may_attend) const {
    auto at = [](const Vector& v, int64_t i) { return v[static_cast<size_t>(i)]; };
    auto project = [&](const Vector& in, int64_t b, int64_t t, int64_t length, const char* name, int64_t out) {
      double sum = at(w.at(std::string(name) + ".bias"), out);
      for (int64_t c = 0; c < width; ++c)
        sum += at(in, (b * length + t) * width + c) * at(w.at(std::string(name) + ".weight"), out * width + c);
      return sum;
    };
    Vector y(static_cast<size_t>(batch * queries * width));
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < queries; ++t) {
        Vector logits(static_cast<size_t>(heads * keys)), p(static_cast<size_t>(softmax_heads * keys)),
            z(static_cast<size_t>(heads * dv)), combined_outputs(z.size());
        for (int64_t j = 0; j < heads; ++j)
          for (int64_t s = 0; s < keys; ++s) {
            double sum = 0;
            for (int64_t c = 0; c < dk; ++c)
              sum += project(x, b, t, queries, "query", j * dk + c) * project(m, b, s, keys, "key", j * dk + c);
            logits[static_cast<size_t>(j * keys + s)] = sum / std::sqrt(static_cast<double>(dk));
          }
        for (int64_t k = 0; k < softmax_heads; ++k) {
          double total = 0;
          for (int64_t s = 0; s < keys; ++s) {
            if (!may_attend(b, t, s)) continue;
            double logit = 0;
            for (int64_t j = 0; j < heads; ++j)
              logit += (pre_matrix.empty() ? (j == k ? 1.0 : 0.0) : at(pre_matrix, j * softmax_heads + k)) *
                       at(logits, j * keys + s);
            p[static_cast<size_t>(k * keys + s)] = std::exp(logit) / (is_sigsoftmax ? 1 + std::exp(-logit) : 1);
            total += at(p, k * keys + s);
          }
          for (int64_t s = 0; s < keys && total > 0; ++s) p[static_cast<size_t>(k * keys + s)] /= total;
        }
        for (int64_t i = 0; i < heads; ++i)
          for (int64_t k = 0; k < softmax_heads; ++k) {
            double factor = post_matrix.empty() ? (i == k ? 1.0 : 0.0) : at(post_matrix, k * heads + i);
            if (!query_weight.empty())
              for (int64_t c = 0; c < dk; ++c)
                factor += project(x, b, t, queries, "query", k * dk + c) * at(query_weight, i * dk + c);
            for (int64_t s = 0; s < keys; ++s)
              for (int64_t c = 0; c < dv; ++c)
                z[static_cast<size_t>(i * dv + c)] +=
                    factor * at(p, k * keys + s) * project(m, b, s, keys, "value", i * dv + c);
          }
        for (int64_t i = 0; i < heads; ++i)
          for (int64_t j = 0; j < heads; ++j)
            for (int64_t c = 0; c < dv; ++c)
              combined_outputs[static_cast<size_t>(i * dv + c)] +=
                  (alpha.empty() ? (i == j ? 1.0 : 0.0) : at(alpha, i * heads + j)) * at(z, j * dv + c);
        for (int64_t o = 0; o < width; ++o) {
          double sum = at(w.at("output.bias"), o);
          for (int64_t c = 0; c < heads * dv; ++c)
            sum += at(combined_outputs, c) * at(w.at("output.weight"), o * heads * dv + c);
          y[static_cast<size_t>((b * queries + t) * width + o)] = sum;
        }
      }
    return y;
  }
};

// Sets the mixing parameters of `mixing` to the values in `w`, by their names in a layer, and returns the output y (B,
// Tq, d).
inline Vector head_mixing(HeadMixing mixing, const Weights& w, const Vector& x, const Vector& m,
                          const MayAttend& may_attend) {
  auto parameter = [&](const char* name) { return w.count(name) != 0 ? w.at(name) : Vector(); };
  mixing.pre_matrix = parameter("mixer.logits"), mixing.post_matrix = parameter("mixer.matrix"),
  mixing.query_weight = parameter("mixer.query.weight");
  mixing.alpha = parameter("combiner.alpha");
  return mixing(x, m, w, may_attend);
}

}  // namespace reference
