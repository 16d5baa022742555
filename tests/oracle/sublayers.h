// The embeddings and the sublayers of a transformer as naive loops in double precision, with the parameters of a model.
// The sublayers are attention (oracle/attention.h) and feed-forward, each with residual connection and layer norm.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fixtures/aten.h"
#include "model/language_model.h"
#include "oracle/attention.h"

namespace reference {

struct NaiveSublayers {
  mh::model::LanguageModel& model;
  bool is_pre_norm;
  int64_t width = 16, heads = 4;
  int64_t head_size = 0;  // 0: width / heads
  bool is_gelu = false;   // whether the activation is GELU; false: ReLU
  double epsilon = 1e-5;

  double activation(double v) const {
    return is_gelu ? 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))) : std::max(0.0, v);
  }

  // Returns the entries of the parameter `name` of the model, row-major.
  std::vector<double> parameter(const std::string& name) const {
    const at::Tensor x = model.parameters().find(name)->master().detach().to(at::kDouble).contiguous();
    return {x.const_data_ptr<double>(), x.const_data_ptr<double>() + x.numel()};
  }
  using HiddenStates = std::vector<std::vector<double>>;  // [position][feature]

  // Returns the embeddings of the tokens, times `scale`. `owner`: the module that has the embedding table, such as
  // "decoder".
  HiddenStates embed(const std::string& owner, const std::vector<int64_t>& tokens, double scale) const {
    const auto table = parameter(owner + ".embedding.weight");
    HiddenStates x;
    for (int64_t token : tokens) {
      x.emplace_back();
      for (int64_t c = 0; c < width; ++c) x.back().push_back(table[static_cast<size_t>(token * width + c)] * scale);
    }
    return x;
  }
  // Returns the sinusoidal embeddings (num_positions, d), row-major. As in fairseq, the first position has the
  // number 2.
  std::vector<double> sinusoidal_positions(size_t num_positions) const {
    std::vector<double> table;
    for (size_t p = 0; p < num_positions; ++p)
      for (int64_t c = 0; c < width; ++c) {
        const int64_t half = width / 2, k = c % half;
        const double angle = static_cast<double>(p + 2) *
                             std::exp(-static_cast<double>(k) * std::log(10000.0) / static_cast<double>(half - 1));
        table.push_back(c < half ? std::sin(angle) : std::cos(angle));
      }
    return table;
  }
  HiddenStates layer_norm(const std::string& name, const HiddenStates& x) const {
    const auto w = parameter(name + ".weight"), b = parameter(name + ".bias");
    HiddenStates y = x;
    for (auto& row : y) {
      double mean = 0, variance = 0;
      for (double v : row) mean += v / static_cast<double>(width);
      for (double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(width);
      for (size_t c = 0; c < row.size(); ++c) row[c] = (row[c] - mean) / std::sqrt(variance + epsilon) * w[c] + b[c];
    }
    return y;
  }
  static std::vector<double> flatten(const HiddenStates& x) {
    std::vector<double> entries;
    for (const auto& row : x) entries.insert(entries.end(), row.begin(), row.end());
    return entries;
  }
  static HiddenStates add(HiddenStates x, const std::vector<double>& y) {
    for (size_t t = 0, i = 0; t < x.size(); ++t)
      for (double& v : x[t]) v += y[i++];
    return x;
  }
  // Returns the output of an attention sublayer. `source`: encoder outputs that cross-attention reads; null:
  // self-attention.
  HiddenStates attention_sublayer(const std::string& name, const HiddenStates& x, const HiddenStates* source,
                                  bool causal) const {
    Weights w;
    for (const char* projection : {"query", "key", "value", "output"})
      for (const char* suffix : {".weight", ".bias"})
        w[std::string(projection) + suffix] = parameter(name + "." + projection + suffix);
    const HiddenStates in = is_pre_norm ? layer_norm(name + ".norm", x) : x,
                       key_inputs = source != nullptr ? *source : in;
    const Sizes sizes{1,
                      static_cast<int64_t>(x.size()),
                      static_cast<int64_t>(key_inputs.size()),
                      width,
                      heads,
                      head_size > 0 ? head_size : width / heads,
                      head_size > 0 ? head_size : width / heads};
    const HiddenStates y = add(x, attention(sizes, flatten(in), flatten(key_inputs), w,
                                            [&](int64_t, int64_t t, int64_t s) { return !causal || s <= t; }));
    return is_pre_norm ? y : layer_norm(name + ".norm", y);
  }
  HiddenStates feed_forward_sublayer(const std::string& name, const HiddenStates& x) const {
    const auto up_weight = parameter(name + ".up.weight"), up_bias = parameter(name + ".up.bias"),
               down_weight = parameter(name + ".down.weight"), down_bias = parameter(name + ".down.bias");
    const HiddenStates in = is_pre_norm ? layer_norm(name + ".norm", x) : x;
    HiddenStates y = x;
    for (size_t t = 0; t < x.size(); ++t) {
      std::vector<double> inner;
      for (size_t i = 0; i < up_bias.size(); ++i) {
        double v = up_bias[i];
        for (size_t c = 0; c < in[t].size(); ++c) v += up_weight[i * in[t].size() + c] * in[t][c];
        inner.push_back(activation(v));
      }
      for (size_t c = 0; c < y[t].size(); ++c) {
        y[t][c] += down_bias[c];
        for (size_t i = 0; i < inner.size(); ++i) y[t][c] += down_weight[c * inner.size() + i] * inner[i];
      }
    }
    return is_pre_norm ? y : layer_norm(name + ".norm", y);
  }
};

// Returns the first `length` tokens of row `row` of `tokens` (B, T).
inline std::vector<int64_t> tokens_of_row(const at::Tensor& tokens, int64_t row, int64_t length) {
  std::vector<int64_t> values;
  for (int64_t t = 0; t < length; ++t) values.push_back(tokens[row][t].item<int64_t>());
  return values;
}

}  // namespace reference
