// Relative positions of Transformer-XL (Dai et al. 2019, section 3.3). For query t and key s at distance δ = t - s,
//
//   A_i[t, s] = ((q_i[t] + u_i) · k_i[s] + (q_i[t] + v_i) · r_i[δ]) / √dk,   r_i[δ] = W^R_i S(δ),
//   S(δ) = (sin(δ w_0) … sin(δ w_{d/2-1}), cos(δ w_0) … cos(δ w_{d/2-1})),   w_k = 10000^(-2k/d).
//
// u and v belong to the query head. If query head i reads the keys of head π(i), it also reads r_π(i).
//
// Distances are computed from mask.key_positions, so they are exact in a memory with gaps, which layers skipped in
// training leave. Keys are processed in runs at consecutive positions, with one relative shift for each run.
//
// distances = "block_end" is the variant in the code of "Skip Cross-Head Transformer-XL": the distance of the key to
// the end of the block, which is the same for every query.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/fused/attention_spec.h"
#include "attention/methods/relative/relative_product.h"
#include "attention/stage.h"
#include "base/error.h"
#include "nn/device.h"
#include "nn/ops.h"

namespace mh::attention {
namespace {

enum class Distances { exact, block_end };

struct RelativeOptions : OptionsOf<RelativeOptions> {
  bool shared_biases = true;
  Distances distances = Distances::exact;
  int64_t clamp = 0;
  double dropout = 0;
  void describe(Fields& f) override {
    f.field("shared_biases", shared_biases, "whether all layers of a stack share the query biases u and v");
    f.choice(
        "distances", distances, {{Distances::exact, "exact"}, {Distances::block_end, "block_end"}},
        "distances that logits depend on; exact: between query and key; block_end: between key and end of the block");
    f.field("clamp", clamp, "maximum distance, to which larger distances are clamped; 0: unlimited",
            between(0, 1 << 24));
    f.field("dropout", dropout, "dropout rate of the position embeddings", between(0, 0.999));
  }
};

// A run of keys at consecutive positions: `count` keys from index `first`; key `first` has position `position`.
struct KeyRun {
  int64_t first, count, position;
};

class Relative : public Score {
 public:
  using Options = RelativeOptions;
  Relative(const RelativeOptions& options, const LayerSpec& layer_spec) : options_(options) {
    if (layer_spec.width % 2 != 0)
      throw Error(Exit::usage,
                  Problem{"model.width", "an even width with score 'relative'", str(layer_spec.width), ""});
  }

  void add_parameters(nn::ParameterList& parameters, const LayerSpec& s) override {
    const auto first = nn::Init::normal(0.02);
    const nn::HeadAxis axis{0, s.heads, HeadSide::score};
    weight_ =
        &parameters.add(s.name + ".relative.weight", {s.heads * s.key_size, s.width}, {first, true, true, {axis}});
    const std::string owner = options_.shared_biases ? s.name.substr(0, s.name.find('.')) : s.name;
    auto bias = [&](const char* part) {
      const std::string name = owner + part;
      if (const nn::Parameter* existing = parameters.find(name);
          existing != nullptr && existing->master().sizes() != at::IntArrayRef({s.heads, s.key_size}))
        throw Error(Exit::usage,
                    Problem{s.name,
                            "head counts and sizes equal to those of the other layers, since the layers share the "
                            "biases of score 'relative'",
                            str(s.heads, " heads of size ", s.key_size), "set attention.relative.shared_biases=false"});
      return &parameters.share(name, {s.heads, s.key_size}, {first, false, false, {axis}});
    };
    content_ = bias(".relative.content_bias");
    position_ = bias(".relative.position_bias");
  }

  // A layer with pruned heads does not share biases with other layers.
  std::shared_ptr<StageOptions> options_after_pruning(const KeptHeads& kept, const LayerSpec& s) const override {
    if (static_cast<int64_t>(kept.score.size()) == s.heads) return nullptr;
    auto left = std::make_shared<RelativeOptions>(options_);
    left->shared_biases = false;
    return left;
  }

  // Distances to the end of a block change with the length of the block, that is, in every decoding step.
  Capabilities capabilities() const override {
    Capabilities p;
    p.cross = false;
    p.incremental = options_.distances == Distances::exact;
    return p;
  }
  std::string why_not_fused() const override {
    return options_.distances == Distances::exact ? "" : "the distances are measured to the end of the block";
  }

  bool has_relative_positions() const override { return true; }
  bool prefers_composed(const Context& c, std::string* why) const override {
    if (!has_few_queries(c)) return false;
    if (why != nullptr)
      *why = str("relative positions with fewer queries in a batch than head_size ", c.layer_spec.key_size,
                 ", for which the composed path is faster");
    return true;
  }
  void set_relative_positions(const Context& c, RelativePositions& p) override {
    const int64_t queries = c.q.size(2);
    std::vector<at::Tensor> parts;
    int64_t rows = 0;
    for (const KeyRun& run : runs(c.mask, c.k.size(2))) {
      int64_t seen = run.count;  // keys of the run that the first query sees; < 0 if the query precedes the run
      if (c.mask.causal) seen = std::min(seen, c.mask.offset - run.first + 1);
      const int64_t count = std::max<int64_t>(1, queries + seen - 1), largest = queries - 1 - run.position;
      parts.push_back(embedded(c, largest - count + 1, count));
      p.runs.push_back({run.first, run.count, rows});
      rows += count;
    }
    p.u = content_->value(), p.v = position_->value();
    p.r = parts.size() == 1 ? parts[0] : at::cat(parts, 1);
  }

  void score(Context& c) override {
    const int64_t queries = c.q.size(2), keys = c.k.size(2);
    const double scale = 1 / std::sqrt(static_cast<double>(c.layer_spec.key_size));
    auto with_bias = [&](const nn::Parameter* b) {
      return (c.q + b->value().to(c.q.scalar_type()).unsqueeze(1)) * scale;  // (h, dk) -> (h, 1, dk)
    };
    const at::Tensor x = with_bias(content_), y = with_bias(position_);
    std::vector<at::Tensor> parts;
    for (const KeyRun& run : runs(c.mask, keys)) {
      const at::Tensor k = c.k.narrow(2, run.first, run.count);
      CausalOffset offset = c.mask.causal_offset();
      if (offset) *offset -= run.first;
      if (options_.distances == Distances::exact) {
        const int64_t count = distances_needed(queries, run.count, offset), largest = queries - 1 - run.position;
        const auto [by, r] = distances(c, y, largest - count + 1, count);
        parts.push_back(relative_product(x, k, by, r, offset));
      } else {
        const auto [by, r] = distances(c, y, queries - run.position - run.count, run.count);
        parts.push_back(product_with_keys(x, k, offset) + at::matmul(by, r.transpose(-1, -2)));
      }
    }
    c.logits = parts.size() == 1 ? parts[0] : at::cat(parts, -1);
  }

 private:
  static std::vector<KeyRun> runs(const Mask& mask, int64_t keys) {
    if (!mask.key_positions.defined()) return {{0, keys, -mask.offset}};
    const at::Tensor positions = mask.key_positions.to(at::kCPU, at::kLong).contiguous();
    const auto* p = positions.const_data_ptr<int64_t>();
    std::vector<KeyRun> found;
    for (int64_t s = 0; s < keys; ++s) {
      if (s > 0 && p[s] == p[s - 1] + 1) ++found.back().count;
      else found.push_back({s, 1, p[s]});
    }
    return found;
  }

  // Returns two factors of the products y · r[δ] for the distances δ from lowest + count - 1 down to lowest: y (B, h,
  // Tq, dk) and r (h, count, dk), or y W^R (B, h, Tq, d) and S (1, count, d).
  std::pair<at::Tensor, at::Tensor> distances(const Context& c, const at::Tensor& y, int64_t lowest, int64_t count) {
    // With few queries (decoding) and many distances, projecting the queries by W^R takes a small fraction of the time
    // of projecting all distances.
    if (!has_few_queries(c)) return {y, embedded(c, lowest, count)};
    at::Tensor w = weight_->value().view({c.layer_spec.heads, c.layer_spec.key_size, c.layer_spec.width});
    if (!c.key_heads.empty()) w = w.index_select(0, nn::cached_constant(w.device(), c.key_heads));
    return {at::matmul(y, w), sinusoids_of(c, lowest, count).to(y.scalar_type()).unsqueeze(0)};
  }

  static bool has_few_queries(const Context& c) { return c.q.size(0) * c.q.size(2) < c.layer_spec.key_size; }

  // Returns r (h, count, dk) for the distances from lowest + count - 1 down to lowest.
  at::Tensor embedded(const Context& c, int64_t lowest, int64_t count) {
    at::Tensor r = nn::linear(sinusoids_of(c, lowest, count), weight_->value(), {})
                       .view({count, c.layer_spec.heads, c.layer_spec.key_size})
                       .transpose(0, 1);
    return c.key_heads.empty() ? r : r.index_select(0, nn::cached_constant(r.device(), c.key_heads));
  }

  // Returns S (count, d), with dropout, for the distances from lowest + count - 1 down to lowest.
  at::Tensor sinusoids_of(const Context& c, int64_t lowest, int64_t count) {
    const at::Tensor s = table(lowest, count, c.q.device());
    // Dropout of a distance drops the same elements in all layers and batch rows, as in the published model, where
    // layers and rows share one position embedding. The offset makes the row number of every distance non-negative.
    nn::ForwardContext whole = c.step;
    whole.row_offset = lowest + (int64_t{1} << 30);
    return nn::dropout(s, options_.dropout, whole, std::string(name_of(c.layer_spec.kind)) + ".relative", 0).flip(0);
  }

  // Returns S (count, d), without dropout, for the distances lowest, lowest + 1, … from the cached table.
  at::Tensor table(int64_t lowest, int64_t count, at::Device device) {
    if (!table_.defined() || lowest < table_first_ || lowest + count > table_first_ + table_.size(0)) {
      // The new table has more distances than requested, since a memory grows.
      int64_t first = std::min(lowest, int64_t{-1}), end = lowest + 2 * count;
      if (table_.defined()) first = std::min(first, table_first_), end = std::max(end, table_first_ + table_.size(0));
      table_ = sinusoids(first, end - first, device);
      table_first_ = first;
    }
    return table_.narrow(0, lowest - table_first_, count);
  }

  at::Tensor sinusoids(int64_t first, int64_t count, at::Device device) const {
    const int64_t width = weight_->master().size(1);
    const auto options = at::TensorOptions().dtype(at::kDouble);
    at::Tensor distance = at::arange(first, first + count, options);
    if (options_.clamp > 0) distance = distance.clamp(-options_.clamp, options_.clamp);
    at::Tensor frequency =
        at::exp(at::arange(width / 2, options) * (-2 * std::log(10000.0) / static_cast<double>(width)));
    at::Tensor angle = distance.unsqueeze(1) * frequency;
    return at::cat({angle.sin(), angle.cos()}, 1).to(at::kFloat).to(device);
  }

  RelativeOptions options_;
  nn::Parameter *weight_ = nullptr, *content_ = nullptr, *position_ = nullptr;
  at::Tensor table_;  // (distances, d): S of the distances table_first_, table_first_ + 1, …
  int64_t table_first_ = 0;
};

const Registration<Relative> relative_entry(
    scores(), "relative",
    "dot products of queries with keys and with embeddings of relative positions (Transformer-XL)");

}  // namespace
}  // namespace mh::attention
