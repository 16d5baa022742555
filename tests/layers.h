// A layer of attention by itself, built from a piece of configuration; and small helpers around it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/layer.h"
#include "base/error.h"
#include "numbers.h"
#include "reference_attention.h"

namespace layers {

using mh::attention::AttentionConfig;
using mh::attention::AttentionLayer;
using mh::attention::AttentionOptions;
using mh::attention::Kind;

using numbers::doubles;
using numbers::normal;

// Options from lines under [attention]: "heads = 3\nmixer = 'mean'\n". Sections for stages may follow.
inline AttentionOptions options_of(const std::string& toml, Kind kind = Kind::decoder_self) {
  mh::Config config;
  config.load_text("[attention]\n" + toml, "test");
  AttentionConfig attention;
  attention.read(config, {{kind, 1}});
  config.check_all_known();
  return attention.layer(kind, 0);
}

struct Layer {
  mh::nn::ParameterList parameters{at::kCPU};
  AttentionOptions options;
  std::unique_ptr<AttentionLayer> layer;

  Layer(const std::string& toml, int64_t width, uint64_t seed = 1, Kind kind = Kind::decoder_self)
      : options(options_of(toml, kind)) {
    // Larger than a real model's, so that attention is far from uniform.
    const auto init = mh::nn::Init::normal(0.5);
    layer = std::make_unique<AttentionLayer>(parameters, options, make_shape(options, kind, 0, width, "x"),
                                             AttentionLayer::Inits{init, init, init});
    parameters.initialise(seed);
  }

  // The parameter "x." + part.
  at::Tensor& operator[](const std::string& part) {
    mh::nn::Parameter* p = parameters.find("x." + part);
    if (p == nullptr) throw std::out_of_range("no parameter x." + part);
    return p->master();
  }
  void set(const std::string& part, const at::Tensor& value) {
    c10::NoGradGuard no_gradient;
    (*this)[part].copy_(value);
  }
  // By name, without the layer's.
  reference::Weights weights() const {
    reference::Weights w;
    for (const auto& p : parameters.all()) w[p.name().substr(2)] = doubles(p.master());
    return w;
  }
  // Takes over the parameters of the same names.
  void take(const Layer& other) {
    c10::NoGradGuard no_gradient;
    for (const auto& p : other.parameters.all())
      if (auto* mine = parameters.find(p.name())) mine->master().copy_(p.master());
  }
  // Moves every trained parameter away from its first value, so that none is an identity or zero.
  void shake(uint64_t seed, double by = 0.3) {
    c10::NoGradGuard no_gradient;
    for (auto& p : parameters.all())
      if (p.traits().trainable) p.master().add_(normal(p.master().sizes().vec(), seed++), by);
  }
  // Moves the heads of every parameter: head i becomes what head order[i] was.
  void permute_heads(const std::vector<int64_t>& order) {
    c10::NoGradGuard no_gradient;
    for (auto& p : parameters.all())
      for (const mh::nn::HeadAxis& axis : p.traits().head_axes) {
        const auto blocks = p.master().chunk(axis.heads, axis.axis);
        std::vector<at::Tensor> moved;
        for (int64_t i : order) moved.push_back(blocks[static_cast<size_t>(i)]);
        p.master().copy_(at::cat(moved, axis.axis));
      }
  }
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& m, const mh::attention::Mask& mask,
                        const mh::nn::ForwardContext& step = {}, mh::attention::Observer* observer = nullptr) {
    return layer->forward(x, m, mask, step, nullptr, observer);
  }
};

// A layer none of whose trained parameters is what it starts as.
struct Shaken : Layer {
  Shaken(const std::string& toml, int64_t width, uint64_t seed, Kind kind = Kind::decoder_self)
      : Layer(toml, width, seed, kind) {
    shake(seed + 17, 0.5);
  }
};

// y = concat(g_i Z_i) W^O + b by loops over heads, from the head outputs that an observer saw; gates (h) or (B, T, h).
inline at::Tensor by_heads(Layer& l, const at::Tensor& z, const at::Tensor& gates) {
  const int64_t dv = z.size(3);
  at::Tensor y = l["output.bias"].detach().to(at::kDouble);
  for (int64_t i = 0; i < z.size(1); ++i) {
    const at::Tensor head = z.select(1, i).to(at::kDouble) * gates.select(-1, i).to(at::kDouble).unsqueeze(-1);
    y = y + at::matmul(head, l["output.weight"].detach().narrow(1, i * dv, dv).t().to(at::kDouble));
  }
  return y.to(at::kFloat);
}

// Keeps what an observer is shown.
struct Watch : mh::attention::Observer {
  at::Tensor p, z, g;
  void probabilities(const mh::attention::Shape&, const at::Tensor& given) override { p = given; }
  at::Tensor head_outputs(const mh::attention::Shape&, const at::Tensor& given) override { return z = given; }
  at::Tensor gates(const mh::attention::Shape&, const at::Tensor& given) override { return g = given; }
};

}  // namespace layers
