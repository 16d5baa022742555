// Mixture of heads (Jin et al. 2024): each position weighs the heads, Z'_i[t] = w_i[t] Z_i[t]. The first s heads always
// act; of the other r = h - s it takes the k likeliest. With the layer's query input x, a router R (h, d) and a balance
// A (2, d):
//   shared head i    w_i = 2 a_1 s softmax(R_shared x)_i
//   routed head i    w_i = 2 a_2 k p_i / Σ_chosen p where it is chosen, else 0;   p = softmax(R_routed x)
//   a = softmax(A x)
// Without shared heads there is nothing to balance: w_i = k p_i / Σ_chosen p. The loss that spreads tokens over heads
// is a regulariser of its own (head-balance).
#include "attention/head_scale.h"
#include "base/error.h"
#include "model/ops.h"

namespace mh::attention {
namespace {

struct MixtureOfHeadsOptions : OptionsOf<MixtureOfHeadsOptions> {
  int64_t shared = 2;
  int64_t chosen = 2;
  void describe(Fields& f) override {
    f.field("shared", shared, "heads that always act, the first ones", at_least(0));
    f.field("chosen", chosen, "of the other heads, how many a position takes", at_least(1));
  }
};

class MixtureOfHeads : public Combiner {
 public:
  MixtureOfHeads(const MixtureOfHeadsOptions& options, const Shape& shape)
      : options_(options), routed_(shape.heads - options.shared) {
    if (options.chosen > routed_)
      throw Error(Exit::usage,
                  Problem{shape.name + ", combiner 'mixture-of-heads'",
                          str("shared + chosen of at most ", shape.heads, " heads"),
                          str(options.shared, " + ", options.chosen), "lower one of them, or raise attention.heads"});
  }
  void add_parameters(model::ParameterList& parameters, const Shape& shape) override {
    router_ = &parameters.add(shape.name + ".combiner.router.weight", {shape.heads, shape.width},
                              {model::Init::xavier_uniform(), true, false, 0, shape.heads});
    if (options_.shared > 0)
      balance_ = &parameters.add(shape.name + ".combiner.balance.weight", {2, shape.width},
                                 {model::Init::xavier_uniform(), true, false, std::nullopt, 0});
  }
  at::Tensor combine(const Context& c, const at::Tensor& z) override {
    const at::Tensor x = c.query_input.to(at::kFloat);
    const at::Tensor scores = model::linear(x, router_->value(), {});                   // (B, T, h)
    const at::Tensor p = at::softmax(scores.narrow(-1, options_.shared, routed_), -1);  // (B, T, r)
    const at::Tensor chosen = std::get<1>(p.topk(options_.chosen, -1));                 // (B, T, k)
    const at::Tensor mask = at::zeros_like(p).scatter(-1, chosen, 1.0);
    if (c.observer != nullptr) c.observer->routing(c.shape, p, mask);
    const at::Tensor kept = p * mask;
    at::Tensor w = kept * (static_cast<double>(options_.chosen) / kept.sum(-1, true));
    if (balance_ != nullptr) {
      const at::Tensor a = 2 * at::softmax(model::linear(x, balance_->value(), {}), -1);
      const at::Tensor shared =
          at::softmax(scores.narrow(-1, 0, options_.shared), -1) * static_cast<double>(options_.shared);
      w = at::cat({shared * a.narrow(-1, 0, 1), w * a.narrow(-1, 1, 1)}, -1);
    }
    return combine_gated(c, z, w);
  }
  std::string unfused_because() const override { return ""; }

 private:
  MixtureOfHeadsOptions options_;
  int64_t routed_;
  model::Parameter *router_ = nullptr, *balance_ = nullptr;
};

const Optioned<Combiner, MixtureOfHeads, MixtureOfHeadsOptions> entry(
    combiners(), "mixture-of-heads", "each position weighs some heads and chooses a few of the rest");

}  // namespace
}  // namespace mh::attention
