// Relative positions of Transformer-XL (Dai et al. 2019, section 3.3). For query t and key s at distance δ = t - s,
//
//   A_i[t, s] = ((q_i[t] + u_i) · k_i[s] + (q_i[t] + v_i) · r_i[δ]) / √dk,   r_i[δ] = W^R_i S(δ),
//   S(δ) = (sin(δ w_0) … sin(δ w_{d/2-1}), cos(δ w_0) … cos(δ w_{d/2-1})),   w_k = 10000^(-2k/d).
//
// u and v belong to the query head. If query head i reads the keys of head π(i), it also reads r_π(i).
//
// Distances are computed from mask.key_positions, so they are exact in a memory with gaps (a training pass that skips a
// layer leaves a gap in the layer's memory). Keys are processed in ranges of consecutive positions, with one relative
// shift for each range.
//
// With distances = "block_end", as in the code of "Skip Cross-Head Transformer-XL", δ is the distance from the key to
// the end of the block, and thus the same for every query.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/fused/attention_spec.h"
#include "attention/key_distances.h"
#include "attention/methods/relative/relative_product.h"
#include "attention/stage.h"
#include "base/error.h"
#include "base/text.h"
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
    f.field("shared_biases", shared_biases,
            "use the same two query biases, u and v, in all layers of an encoder or decoder");
    f.choice(
        "distances", distances, {{Distances::exact, "exact"}, {Distances::block_end, "block_end"}},
        "distances that logits depend on; exact: between query and key; block_end: between key and end of the block");
    f.field("clamp", clamp, "maximum distance, to which larger distances are clamped; 0: unlimited",
            between(0, 1 << 24));
    f.field("dropout", dropout, "dropout rate of the position embeddings", between(0, 0.999));
  }
};

class RelativeScore : public Score {
 public:
  using Options = RelativeOptions;
  RelativeScore(const RelativeOptions& options, const LayerSpec& layer_spec) : options_(options) {
    if (layer_spec.width % 2 != 0)
      refuse_usage("model.width", "an even width with score 'relative'", str(layer_spec.width),
                   "set model.width to an even number");
  }

  void add_parameters(nn::ParameterList& parameters, const LayerSpec& s) override {
    const auto init = nn::Init::normal(0.02);
    const nn::HeadAxis axis{0, s.heads, HeadSide::score};
    weight_ = &parameters.add(s.name + ".relative.weight", {s.heads * s.key_size, s.width}, {init, true, true, {axis}});
    const std::string prefix = options_.shared_biases ? s.name.substr(0, s.name.find('.')) : s.name;
    auto share_bias = [&](const char* suffix) {
      const std::string name = prefix + suffix;
      if (const nn::Parameter* existing_parameter = parameters.find(name);
          existing_parameter != nullptr &&
          existing_parameter->master().sizes() != at::IntArrayRef({s.heads, s.key_size}))
        refuse_usage(s.name,
                     str(count_of(existing_parameter->master().size(0), "head"), " of size ",
                         existing_parameter->master().size(1),
                         ", as in the first layer, since all layers share the biases of score 'relative'"),
                     str(count_of(s.heads, "head"), " of size ", s.key_size),
                     "set attention.relative.shared_biases=false");
      return &parameters.share(name, {s.heads, s.key_size}, {init, false, false, {axis}});
    };
    content_bias_ = share_bias(".relative.content_bias");
    position_bias_ = share_bias(".relative.position_bias");
  }

  // A layer with pruned heads does not share biases with other layers.
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec& s) const override {
    if (static_cast<int64_t>(remaining_heads.score.size()) == s.heads) return nullptr;
    auto new_options = std::make_shared<RelativeOptions>(options_);
    new_options->shared_biases = false;
    return new_options;
  }

  // With distances = "block_end", decoding is not supported, since the distances to the end of the block change in
  // every step.
  Capabilities capabilities() const override {
    Capabilities result;
    result.supports_cross_attention = false;
    result.supports_incremental_decoding = options_.distances == Distances::exact;
    return result;
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
  void set_relative_positions(const Context& c, RelativePositions& relative_positions) override {
    const int64_t num_queries = c.q.size(2);
    std::vector<at::Tensor> embeddings;
    int64_t num_rows = 0;
    for (const PositionRange& range : position_ranges(c.mask, c.k.size(2))) {
      // Number of keys in the range that are visible to the first query; 0 or negative if the range begins after this
      // query.
      int64_t num_visible = range.num_keys;
      if (c.mask.causal) num_visible = std::min(num_visible, c.mask.offset - range.first_key + 1);
      const int64_t count = std::max<int64_t>(1, num_queries + num_visible - 1),
                    max_distance = range.max_distance(num_queries);
      embeddings.push_back(embed_distances(c, max_distance - count + 1, count));
      relative_positions.key_ranges.push_back({range.first_key, range.num_keys, num_rows});
      num_rows += count;
    }
    relative_positions.u = content_bias_->value(), relative_positions.v = position_bias_->value();
    relative_positions.r = embeddings.size() == 1 ? embeddings[0] : nn::cat(embeddings, 1);
  }

  void score(Context& c) override {
    const int64_t num_queries = c.q.size(2), num_keys = c.k.size(2);
    const double scale = c.layer_spec.scale();
    auto add_bias_and_scale = [&](const nn::Parameter* b) {
      return (c.q + b->value().to(c.q.scalar_type()).unsqueeze(1)) * scale;  // b: (h, dk) -> (h, 1, dk)
    };
    const at::Tensor x = add_bias_and_scale(content_bias_), y = add_bias_and_scale(position_bias_);
    std::vector<at::Tensor> range_logits;
    for (const PositionRange& range : position_ranges(c.mask, num_keys)) {
      const at::Tensor k = c.k.narrow(2, range.first_key, range.num_keys);
      CausalOffset offset = c.mask.causal_offset();
      if (offset) *offset -= range.first_key;
      if (options_.distances == Distances::exact) {
        const int64_t count = num_distances(num_queries, range.num_keys, offset),
                      max_distance = range.max_distance(num_queries);
        const auto [query_factor, distance_factor] = distance_factors(c, y, max_distance - count + 1, count);
        range_logits.push_back(relative_product(x, k, query_factor, distance_factor, offset));
      } else {
        const auto [query_factor, distance_factor] =
            distance_factors(c, y, num_queries - range.first_position - range.num_keys, range.num_keys);
        range_logits.push_back(product_with_keys(x, k, offset) +
                               at::matmul(query_factor, distance_factor.transpose(-1, -2)));
      }
    }
    c.logits = range_logits.size() == 1 ? range_logits[0] : nn::cat(range_logits, -1);
  }

 private:
  // Returns the two factors of the products y · r[δ] for the distances δ from min_distance + count - 1 down to
  // min_distance: y (B, h, Tq, dk) and r (h, count, dk), or with few queries y W^R (B, h, Tq, d) and S (1, count, d).
  std::pair<at::Tensor, at::Tensor> distance_factors(const Context& c, const at::Tensor& y, int64_t min_distance,
                                                     int64_t count) {
    // With few queries (decoding) and many distances, projecting the queries by W^R takes a small fraction of the time
    // of projecting all distances.
    if (!has_few_queries(c)) return {y, embed_distances(c, min_distance, count)};
    at::Tensor w = weight_->value().view({c.layer_spec.heads, c.layer_spec.key_size, c.layer_spec.width});
    if (!c.kv_head_of.empty()) w = w.index_select(0, nn::to_device(at::tensor(c.kv_head_of), w.device()));
    return {at::matmul(y, w), sinusoids_of(c, min_distance, count).to(y.scalar_type()).unsqueeze(0)};
  }

  static bool has_few_queries(const Context& c) { return c.q.size(0) * c.q.size(2) < c.layer_spec.key_size; }

  // Returns the projected embeddings r (h, count, dk) of the distances from min_distance + count - 1 down to
  // min_distance.
  at::Tensor embed_distances(const Context& c, int64_t min_distance, int64_t count) {
    at::Tensor r = nn::linear(sinusoids_of(c, min_distance, count), weight_->value(), {})
                       .view({count, c.layer_spec.heads, c.layer_spec.key_size})
                       .transpose(0, 1);
    return c.kv_head_of.empty() ? r : r.index_select(0, nn::to_device(at::tensor(c.kv_head_of), r.device()));
  }

  // Returns the sinusoids S (count, d), with dropout, of the distances from min_distance + count - 1 down to
  // min_distance.
  at::Tensor sinusoids_of(const Context& c, int64_t min_distance, int64_t count) {
    const at::Tensor s = cached_sinusoids(min_distance, count, c.q.device());
    // Dropout of a distance drops the same elements in all layers and batch rows, as in the published model, where
    // layers and rows share one position embedding. `row_offset` makes the row index of every distance non-negative.
    // The table has no padding, so its elements can be consecutive in the random stream.
    nn::ForwardContext table_context = c.forward_context;
    table_context.dropout_index = nn::DropoutIndex::padded;
    table_context.row_offset = min_distance + (int64_t{1} << 30);
    return nn::dropout(s, options_.dropout, table_context, std::string(name_of(c.layer_spec.kind)) + ".relative", 0)
        .flip(0);
  }

  // Returns, from the cached table, the sinusoids S (count, d) of the distances min_distance, min_distance + 1, …,
  // without dropout.
  at::Tensor cached_sinusoids(int64_t min_distance, int64_t count, at::Device device) {
    if (!sinusoid_table_.defined() || min_distance < table_min_distance_ ||
        min_distance + count > table_min_distance_ + sinusoid_table_.size(0)) {
      // The new table has more distances than requested, since a growing memory needs more distances in later calls.
      int64_t begin = std::min(min_distance, int64_t{-1}), end = min_distance + 2 * count;
      if (sinusoid_table_.defined())
        begin = std::min(begin, table_min_distance_),
        end = std::max(end, table_min_distance_ + sinusoid_table_.size(0));
      sinusoid_table_ = sinusoids(begin, end - begin, device);
      table_min_distance_ = begin;
    }
    return sinusoid_table_.narrow(0, min_distance - table_min_distance_, count);
  }

  at::Tensor sinusoids(int64_t min_distance, int64_t count, at::Device device) const {
    const int64_t width = weight_->value().size(1);
    const auto options = at::TensorOptions().dtype(at::kDouble);
    at::Tensor distances = at::arange(min_distance, min_distance + count, options);
    if (options_.clamp > 0) distances = distances.clamp(-options_.clamp, options_.clamp);
    at::Tensor frequencies =
        at::exp(at::arange(width / 2, options) * (-2 * std::log(10000.0) / static_cast<double>(width)));
    at::Tensor angles = distances.unsqueeze(1) * frequencies;
    return nn::cat({angles.sin(), angles.cos()}, 1).to(at::kFloat).to(device);
  }

  RelativeOptions options_;
  nn::Parameter *weight_ = nullptr, *content_bias_ = nullptr, *position_bias_ = nullptr;
  at::Tensor sinusoid_table_;  // (n, d): S of the n distances from table_min_distance_ on
  int64_t table_min_distance_ = 0;
};

const Registration<RelativeScore> relative_score_entry(
    scores(), "relative",
    "dot products of queries with keys and with embeddings of relative positions (Transformer-XL)");

}  // namespace
}  // namespace mh::attention
