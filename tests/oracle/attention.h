// Multi-head attention as plain loops in double precision, written from the equations:
//   Q_i = x W^Q_i + b, K_i, V_i likewise; A = Q_i K_iᵀ / √dk; P = softmax over allowed keys; Z_i = P V_i; y = concat(Z)
//   W^O + b.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace reference {

using Vector = std::vector<double>;
using Weights = std::map<std::string, Vector>;  // by the last part of the parameter's name: "query.weight"

struct Sizes {
  int64_t batch, queries, keys, width, heads, key_size, value_size;
};

// allowed(b, t, s): query t of row b may attend to key s.
using Allowed = std::function<bool(int64_t, int64_t, int64_t)>;
using Additive = std::function<double(int64_t, int64_t, int64_t, int64_t)>;  // (b, head, t, s)

// x (B, Tq, d), m (B, Tk, d) row-major -> y (B, Tq, d)
inline Vector attention(const Sizes& z, const Vector& x, const Vector& m, const Weights& w, const Allowed& allowed,
                        const Additive& additive = {}) {
  auto project = [&](const Vector& in, int64_t length, const char* name, int64_t size) {
    const Vector& weight = w.at(std::string(name) + ".weight");
    auto bias = w.find(std::string(name) + ".bias");
    Vector out(static_cast<size_t>(z.batch * length * z.heads * size));
    for (int64_t r = 0; r < z.batch * length; ++r)
      for (int64_t o = 0; o < z.heads * size; ++o) {
        double sum = bias == w.end() ? 0 : bias->second[static_cast<size_t>(o)];
        for (int64_t c = 0; c < z.width; ++c)
          sum += in[static_cast<size_t>(r * z.width + c)] * weight[static_cast<size_t>(o * z.width + c)];
        out[static_cast<size_t>(r * z.heads * size + o)] = sum;
      }
    return out;
  };
  const Vector q = project(x, z.queries, "query", z.key_size), k = project(m, z.keys, "key", z.key_size),
               v = project(m, z.keys, "value", z.value_size);
  const Vector& wo = w.at("output.weight");
  auto bo = w.find("output.bias");
  Vector y(static_cast<size_t>(z.batch * z.queries * z.width));
  for (int64_t b = 0; b < z.batch; ++b)
    for (int64_t t = 0; t < z.queries; ++t) {
      Vector joined(static_cast<size_t>(z.heads * z.value_size));
      for (int64_t i = 0; i < z.heads; ++i) {
        Vector e(static_cast<size_t>(z.keys));
        double sum = 0;
        for (int64_t s = 0; s < z.keys; ++s) {
          if (!allowed(b, t, s)) continue;
          double a = 0;
          for (int64_t c = 0; c < z.key_size; ++c)
            a += q[static_cast<size_t>(((b * z.queries + t) * z.heads + i) * z.key_size + c)] *
                 k[static_cast<size_t>(((b * z.keys + s) * z.heads + i) * z.key_size + c)];
          a /= std::sqrt(static_cast<double>(z.key_size));
          if (additive) a += additive(b, i, t, s);
          e[static_cast<size_t>(s)] = std::exp(a);
          sum += e[static_cast<size_t>(s)];
        }
        if (sum == 0) continue;
        for (int64_t s = 0; s < z.keys; ++s)
          for (int64_t c = 0; c < z.value_size; ++c)
            joined[static_cast<size_t>(i * z.value_size + c)] +=
                e[static_cast<size_t>(s)] / sum *
                v[static_cast<size_t>(((b * z.keys + s) * z.heads + i) * z.value_size + c)];
      }
      for (int64_t o = 0; o < z.width; ++o) {
        double sum = bo == w.end() ? 0 : bo->second[static_cast<size_t>(o)];
        for (size_t c = 0; c < joined.size(); ++c) sum += joined[c] * wo[static_cast<size_t>(o) * joined.size() + c];
        y[static_cast<size_t>((b * z.queries + t) * z.width + o)] = sum;
      }
    }
  return y;
}

// x (B, T, d) through the weight and bias of this name: (B, T, out).
inline Vector projected(const Weights& w, const std::string& name, const Vector& x, int64_t width) {
  const Vector& weight = w.at(name + ".weight");
  auto bias = w.find(name + ".bias");
  const size_t d = static_cast<size_t>(width), outs = weight.size() / d;
  Vector y(x.size() / d * outs);
  for (size_t r = 0; r < x.size() / d; ++r)
    for (size_t o = 0; o < outs; ++o) {
      double sum = bias == w.end() ? 0 : bias->second[o];
      for (size_t c = 0; c < d; ++c) sum += x[r * d + c] * weight[o * d + c];
      y[r * outs + o] = sum;
    }
  return y;
}

}  // namespace reference
