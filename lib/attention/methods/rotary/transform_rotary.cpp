// Rotary positions (Su et al. 2021): the first r elements of a query or key form pairs (j, j + r / 2), and each pair
// rotates by an angle that is proportional to the position p,
//
//   x[j] ← (x[j] cos(p w_j) - x[j + r/2] sin(p w_j)) m,   x[j + r/2] ← (x[j + r/2] cos(p w_j) + x[j] sin(p w_j)) m,
//   w_j = base^(-2j / r),   j < r / 2,
//
// so that the dot product of a query and a key depends on their distance, not on their positions. The elements from r
// on stay unchanged. Scalings change w_j, and yarn and longrope also m, which otherwise is 1 (frequencies.h).
//
// The paper pairs elements 2j and 2j + 1; models that pair them, such as GPT-J, differ by a permutation of the rows of
// the query and key weights of each head.
//
// Length n of the scalings dynamic and longrope: the last position of the present forward pass plus 1, padding
// included. A step of incremental decoding thus rotates its new queries and keys with the frequencies of the length so
// far, while the cached keys keep the frequencies of the steps that appended them, as in the forward pass of
// transformers. If a text grows beyond original_length while it is decoded, its later outputs therefore differ from
// the outputs of one forward pass over the whole text. generate() of transformers avoids the difference for longrope
// only, by a second prefill.
#include <algorithm>
#include <memory>

#include "attention/methods/rotary/frequencies.h"
#include "attention/methods/rotary/rotary_options.h"
#include "attention/methods/rotary/rotary_table.h"
#include "attention/methods/rotary/rotate.h"
#include "attention/stage.h"
#include "nn/device.h"

namespace mh::attention {
namespace {

class Rotary : public Transform {
 public:
  using Options = RotaryOptions;
  Rotary(const RotaryOptions& options, const LayerSpec& layer_spec) : options_(options) { options.check(layer_spec); }

  // Adds no parameters; stores the device of the model, on which its table is.
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    table_ = shared_rotary_table(options_, options_.rotary_size(layer_spec.key_size), parameters.device());
  }

  // Queries and keys of cross-attention have positions in different texts. A memory of earlier segments has no length
  // of a text, on which the frequencies could depend.
  Capabilities capabilities() const override {
    Capabilities result;
    result.supports_cross_attention = false;
    result.supports_memory = !depends_on_length(options_);
    return result;
  }
  // The same elements rotate after padding, with the same frequencies; the appended zeros do not rotate.
  std::shared_ptr<StageOptions> options_after_padding(const LayerSpec& layer_spec) const override {
    if (options_.scaling == RotaryScaling::proportional)
      refuse_usage(layer_spec.name + ", transform 'rotary'", "frequencies that do not depend on the head size",
                   "attention.rotary.scaling='proportional', whose pairs and frequencies depend on the head size",
                   "do not change the head size of models with this scaling");
    auto new_options = std::make_shared<RotaryOptions>(options_);
    new_options->size = options_.rotary_size(layer_spec.key_size);
    return new_options;
  }
  bool adds_positions() const override { return true; }
  std::string why_not_fused() const override { return ""; }

  void transform(Context& c) override {
    const int64_t num_queries = c.q.size(2), num_keys = c.k.size(2);
    // Without a cache, all keys of the pass rotate in this pass, and logits depend only on distances: positions
    // relative to the first query keep the angles small, where fp32 is precise, and the table short, however long the
    // text.
    const int64_t first_position = c.stage_states != nullptr ? c.mask.first_position : 0;
    const int64_t length = c.mask.first_position + num_queries;
    // The positions of the keys, relative to the first query: a range that begins at first_key, or a list.
    int64_t first_key = num_queries - num_keys, end_key = num_queries;
    at::Tensor key_positions;
    if (c.mask.key_positions.defined() && num_keys > 0) {
      const at::Tensor& all = c.mask.key_positions;
      key_positions = all.narrow(0, all.size(0) - num_keys, num_keys).to(at::kCPU, at::kLong).contiguous();
      const auto* p = key_positions.const_data_ptr<int64_t>();
      const auto [least, largest] = std::minmax_element(p, p + num_keys);
      const bool is_range =
          std::adjacent_find(p, p + num_keys, [](int64_t a, int64_t b) { return b != a + 1; }) == p + num_keys;
      first_key = *least, end_key = *largest + 1;
      if (is_range) key_positions.reset();
    }
    const int64_t begin = std::min<int64_t>(first_key, 0), end = std::max(end_key, num_queries);
    const RotaryRows all_rows =
        table_->rows({first_position + begin, first_position + end, length, c.forward_context.training});
    const auto narrow = [&](int64_t first, int64_t count) {
      return RotaryRows{all_rows.cosines.narrow(0, first - begin, count),
                        all_rows.sines.narrow(0, first - begin, count)};
    };
    RotaryRows key_rows;
    if (key_positions.defined()) {
      const at::Tensor indices = nn::to_device(key_positions - begin, c.k.device());
      key_rows = {all_rows.cosines.index_select(0, indices), all_rows.sines.index_select(0, indices)};
    } else {
      key_rows = narrow(first_key, num_keys);
    }
    c.mixing_query = c.q;
    auto [q, k, v] = rotate({c.q, c.k, c.v}, narrow(0, num_queries), key_rows);
    c.q = q, c.k = k, c.v = v;
  }

 private:
  const RotaryOptions options_;
  std::shared_ptr<RotaryTable> table_;
};

const Registration<Rotary> rotary_entry(
    transforms(), "rotary",
    "rotation of pairs of elements of queries and keys by angles proportional to their positions");

}  // namespace
}  // namespace mh::attention
