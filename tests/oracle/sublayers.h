// The embeddings and the sublayers of a transformer as naive loops in double precision, with the parameters of a model.
// The sublayers are attention (oracle/attention.h) and feed-forward. A parameter that the model lacks, such as a bias,
// is left out of the equations.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fixtures/aten.h"
#include "model/language_model.h"
#include "model/model_config.h"
#include "oracle/attention.h"

namespace reference {

struct NaiveSublayers {
  mh::model::LanguageModel& model;
  bool is_pre_norm;
  int64_t width = 16, heads = 4;
  int64_t head_size = 0;  // 0: width / heads
  mh::nn::Activation activation_kind = mh::nn::Activation::relu;
  double epsilon = 1e-5;
  mh::nn::NormType norm_type = mh::nn::NormType::layer;
  mh::model::Sinusoids sinusoids = mh::model::Sinusoids::fairseq;

  double activation(double v) const {
    switch (activation_kind) {
      case mh::nn::Activation::none:
        return v;
      case mh::nn::Activation::relu:
        return std::max(0.0, v);
      case mh::nn::Activation::gelu:
        return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
      case mh::nn::Activation::gelu_tanh:
        return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      case mh::nn::Activation::silu:
        return v / (1 + std::exp(-v));
    }
    return v;
  }

  bool has_parameter(const std::string& name) const { return model.parameters().find(name) != nullptr; }
  // Returns the entries of the parameter `name` of the model, row-major.
  std::vector<double> parameter(const std::string& name) const {
    const at::Tensor x = model.parameters().find(name)->master().detach().to(at::kDouble).contiguous();
    return {x.const_data_ptr<double>(), x.const_data_ptr<double>() + x.numel()};
  }
  // Returns the entries of the bias `name`; `size` zeros if the model has no such parameter.
  std::vector<double> bias(const std::string& name, size_t size) const {
    return has_parameter(name) ? parameter(name) : std::vector<double>(size);
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
  // Returns the sinusoidal embeddings (num_positions, d), row-major. In the formula of fairseq the first position has
  // the number 2, in the standard formula the number 0.
  std::vector<double> sinusoidal_positions(size_t num_positions) const {
    std::vector<double> table;
    for (size_t p = 0; p < num_positions; ++p)
      for (int64_t c = 0; c < width; ++c) {
        const int64_t half = width / 2, k = c % half;
        const double angle =
            sinusoids == mh::model::Sinusoids::fairseq
                ? static_cast<double>(p + 2) *
                      std::exp(-static_cast<double>(k) * std::log(10000.0) / static_cast<double>(half - 1))
                : static_cast<double>(p) / std::pow(10000.0, static_cast<double>(2 * k) / static_cast<double>(width));
        table.push_back(c < half ? std::sin(angle) : std::cos(angle));
      }
    return table;
  }
  HiddenStates norm(const std::string& name, const HiddenStates& x) const {
    const auto w = parameter(name + ".weight"), b = bias(name + ".bias", w.size());
    HiddenStates y = x;
    for (auto& row : y) {
      double mean = 0, variance = 0;
      if (norm_type == mh::nn::NormType::layer)
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
  // Returns the output of an attention layer for `in`, (length, d), row-major, without norm and residual connection.
  // `source`: encoder outputs that cross-attention reads; null: self-attention.
  std::vector<double> attention_output(const std::string& name, const HiddenStates& in, const HiddenStates* source,
                                       bool causal) const {
    Weights w;
    for (const char* projection : {"query", "key", "value", "output"})
      for (const char* suffix : {".weight", ".bias"})
        if (const std::string parameter_name = name + "." + projection + suffix; has_parameter(parameter_name))
          w[std::string(projection) + suffix] = parameter(parameter_name);
    const HiddenStates& key_inputs = source != nullptr ? *source : in;
    const Sizes sizes{1,     static_cast<int64_t>(in.size()),           static_cast<int64_t>(key_inputs.size()),  width,
                      heads, head_size > 0 ? head_size : width / heads, head_size > 0 ? head_size : width / heads};
    return attention(sizes, flatten(in), flatten(key_inputs), w,
                     [&](int64_t, int64_t t, int64_t s) { return !causal || s <= t; });
  }
  // Returns W x + b for a vector x, with the parameters `name`.weight and `name`.bias.
  std::vector<double> dense(const std::string& name, const std::vector<double>& x) const {
    const auto w = parameter(name + ".weight");
    std::vector<double> y = bias(name + ".bias", w.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o)
      for (size_t c = 0; c < x.size(); ++c) y[o] += w[o * x.size() + c] * x[c];
    return y;
  }
  // Returns the output of a feed-forward layer for `in`, (length, d), row-major, without norm and residual connection.
  // The layer has a gate if the model has the parameter `name`.gate.weight.
  std::vector<double> feed_forward_output(const std::string& name, const HiddenStates& in) const {
    HiddenStates y;
    for (const auto& row : in) {
      std::vector<double> inner = dense(name + ".up", row);
      if (has_parameter(name + ".gate.weight")) {
        const std::vector<double> gate = dense(name + ".gate", row);
        for (size_t i = 0; i < inner.size(); ++i) inner[i] *= activation(gate[i]);
      } else {
        for (double& v : inner) v = activation(v);
      }
      y.push_back(dense(name + ".down", inner));
    }
    return flatten(y);
  }
  // Return the result of a sublayer with pre-norm or post-norm and a residual connection.
  HiddenStates attention_sublayer(const std::string& name, const HiddenStates& x, const HiddenStates* source,
                                  bool causal) const {
    const HiddenStates in = is_pre_norm ? norm(name + ".norm", x) : x;
    const HiddenStates y = add(x, attention_output(name, in, source, causal));
    return is_pre_norm ? y : norm(name + ".norm", y);
  }
  HiddenStates feed_forward_sublayer(const std::string& name, const HiddenStates& x) const {
    const HiddenStates y = add(x, feed_forward_output(name, is_pre_norm ? norm(name + ".norm", x) : x));
    return is_pre_norm ? y : norm(name + ".norm", y);
  }
};

// Returns the first `length` tokens of row `row` of `tokens` (B, T).
inline std::vector<int64_t> tokens_of_row(const at::Tensor& tokens, int64_t row, int64_t length) {
  std::vector<int64_t> values;
  for (int64_t t = 0; t < length; ++t) values.push_back(tokens[row][t].item<int64_t>());
  return values;
}

}  // namespace reference
