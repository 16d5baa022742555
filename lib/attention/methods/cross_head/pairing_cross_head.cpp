// Stochastic cross-head attention. In training, with probability β for each layer and update, a random permutation π of
// the heads is drawn, and query head i reads the keys, position keys and values of head π(i):
//
//   A_i = score(Q_i, K_π(i)),  Z_i = P_i V_π(i);  π is the identity otherwise, and in evaluation.
//
// The tensors of the query head (its queries, the biases of a relative score, its block of the output projection) are
// not permuted. One draw serves the whole batch, so micro-batches and processes agree on it.
#include <numeric>

#include "attention/stage.h"
#include "base/error.h"
#include "base/random.h"

namespace mh::attention {
namespace {

struct CrossHeadOptions : OptionsOf<CrossHeadOptions> {
  double rate = 0.1;
  void describe(Fields& f) override {
    f.field("rate", rate, "beta: probability, per layer and update, that the heads are permuted", between(0, 1));
  }
};

class CrossHead : public Pairing {
 public:
  using Options = CrossHeadOptions;
  CrossHead(const CrossHeadOptions& options, const Shape& shape) : rate_(options.rate) {
    require_same(shape.heads == shape.value_heads, shape, str(shape.heads, " and ", shape.value_heads));
  }
  std::shared_ptr<StageOptions> keep(const KeptHeads& kept, const Shape& shape) const override {
    require_same(kept.score == kept.value, shape, "one cut without the other");
    return nullptr;
  }

  void pair(Context& c) override {
    if (!c.step.training || rate_ == 0) return;
    RandomSequence random(RandomStream(c.step.seed, std::string(name_of(c.shape.kind)) + ".cross-head"), c.step.update,
                          static_cast<uint32_t>(c.shape.layer));
    if (random.uniform() >= rate_) return;
    c.key_heads.resize(static_cast<size_t>(c.shape.heads));
    std::iota(c.key_heads.begin(), c.key_heads.end(), 0);
    random.shuffle(c.key_heads);
  }

  bool draws() const override { return rate_ > 0; }
  std::string unfused_because() const override { return ""; }

 private:
  // Throws Error(usage) unless keys and values have the same heads: one permutation serves both.
  static void require_same(bool same, const Shape& shape, const std::string& found) {
    if (!same)
      throw Error(Exit::usage, Problem{shape.name + ", pairing 'cross-head'", "the same heads for keys and for values",
                                       found, "cut whole heads, or set attention.pairing = \"own\" first"});
  }

  double rate_;
};

const Registered<CrossHead> cross_head_entry(pairings(), "cross-head",
                                             "in training, at times, those of a random other head");

}  // namespace
}  // namespace mh::attention
