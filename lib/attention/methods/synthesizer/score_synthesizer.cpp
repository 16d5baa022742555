// Synthesizers (Tay et al. 2021): logits that do not depend on keys, as in the baselines of the Mixhead paper.
//
//   dense:  A_i[t] = ReLU(q_i[t]) W_2 + b_2,   W_2 (dk, n), one for all heads or one for each head
//   random: A_i[t, s] = R_i[t, s],             R (h, n, n), trained or fixed at its initial values
//
// n is the option `length`. Column s of W_2 and of R[i] belongs to key s, cached keys included. Neither form can use a
// memory, since the index of a key in memory changes between segments.
#include "attention/stage.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::attention {
namespace {

void check_length(const LayerSpec& layer_spec, const char* name, int64_t num_positions, int64_t length) {
  if (num_positions > length)
    refuse_usage(layer_spec.name,
                 str("at most ", count_of(length, "position"), ", the value of attention.", name, ".length"),
                 str(num_positions), str("raise attention.", name, ".length, or shorten blocks or contexts"));
}

struct DenseSynthesizerOptions : OptionsOf<DenseSynthesizerOptions> {
  int64_t length = 512;
  bool per_head = false;
  void describe(Fields& f) override {
    f.field("length", length, "maximum number of key positions, cached keys included", between(1, 1 << 20));
    f.field("per_head", per_head,
            "give each head a separate second matrix, from the hidden layer to the logits; false: all heads "
            "share the matrix");
  }
};

class DenseSynthesizer : public Score {
 public:
  using Options = DenseSynthesizerOptions;
  DenseSynthesizer(const DenseSynthesizerOptions& options, const LayerSpec&) : options_(options) {}

  void add_parameters(nn::ParameterList& parameters, const LayerSpec& s) override {
    const int64_t n = options_.length;
    auto add = [&](const char* suffix, std::vector<int64_t> shape, nn::ParameterTraits traits) {
      if (options_.per_head) shape.insert(shape.begin(), s.heads), traits.head_axes = {{0, s.heads, HeadSide::score}};
      return &parameters.add(s.name + suffix, std::move(shape), traits);
    };
    weight_ = add(".synthesizer.weight", {s.key_size, n}, {nn::Init::xavier_uniform(), true, true});
    bias_ = add(".synthesizer.bias", {n}, {nn::Init::constant(0), false, false});
  }

  bool uses_keys() const override { return false; }
  Capabilities capabilities() const override {
    Capabilities result;
    result.supports_memory = false;
    return result;
  }
  int64_t max_length() const override { return options_.length; }
  std::string why_not_fused() const override { return "the logits are not products of queries and keys"; }

  void score(Context& c) override {
    const int64_t num_keys = c.v.size(2);
    check_length(c.layer_spec, "synthesizer-dense", num_keys, options_.length);
    at::Tensor w = weight_->value().narrow(-1, 0, num_keys);                             // (dk, Tk) or (h, dk, Tk)
    at::Tensor b = bias_->value().narrow(-1, 0, num_keys).to(c.q.scalar_type());         // (Tk) or (h, Tk)
    c.logits = at::matmul(at::relu(c.q), w) + (options_.per_head ? b.unsqueeze(1) : b);  // (B, h, Tq, Tk)
  }

 private:
  DenseSynthesizerOptions options_;
  nn::Parameter *weight_ = nullptr, *bias_ = nullptr;
};

struct RandomSynthesizerOptions : OptionsOf<RandomSynthesizerOptions> {
  int64_t length = 512;
  bool train = true;
  void describe(Fields& f) override {
    f.field("length", length, "maximum number of query positions and of key positions", between(1, 1 << 15));
    f.field("train", train, "train the logits; false: the logits keep their random initial values");
  }
};

class RandomSynthesizer : public Score {
 public:
  using Options = RandomSynthesizerOptions;
  RandomSynthesizer(const RandomSynthesizerOptions& options, const LayerSpec&) : options_(options) {}

  void add_parameters(nn::ParameterList& parameters, const LayerSpec& s) override {
    nn::ParameterTraits traits{nn::Init::xavier_uniform(), true, false, {{0, s.heads, HeadSide::score}}};
    traits.trainable = options_.train;
    logits_ = &parameters.add(s.name + ".synthesizer.logits", {s.heads, options_.length, options_.length}, traits);
  }

  bool uses_keys() const override { return false; }
  // Cross-attention is not supported: a decoding step does not know the position of its query.
  Capabilities capabilities() const override {
    Capabilities result;
    result.supports_cross_attention = result.supports_memory = false;
    return result;
  }
  int64_t max_length() const override { return options_.length; }
  std::string why_not_fused() const override { return "the logits are not products of queries and keys"; }

  void score(Context& c) override {
    const int64_t num_queries = c.q.size(2), num_keys = c.v.size(2), first_query = c.mask.offset;
    check_length(c.layer_spec, "synthesizer-random", std::max(num_keys, first_query + num_queries), options_.length);
    at::Tensor logits_block = logits_->value().narrow(1, first_query, num_queries).narrow(2, 0, num_keys);
    c.logits = logits_block.unsqueeze(0);
  }

 private:
  RandomSynthesizerOptions options_;
  nn::Parameter* logits_ = nullptr;
};

const Registration<DenseSynthesizer> dense_synthesizer_entry(
    scores(), "synthesizer-dense", "logits of all key positions, computed from the query by a small network");
const Registration<RandomSynthesizer> random_synthesizer_entry(scores(), "synthesizer-random",
                                                               "table of logits for all pairs of positions");

}  // namespace
}  // namespace mh::attention
