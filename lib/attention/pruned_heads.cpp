// Checks the original head indices of a pruned layer, and selects the weights of its heads.
#include "attention/pruned_heads.h"

#include <ATen/ops/tensor.h>

#include <numeric>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "nn/device.h"

namespace mh::attention {

void OriginalHeads::describe(Fields& f) {
  f.field("original_heads", count, "number of heads before pruning; 0: the layer is not pruned", between(0, 1 << 16));
  f.field("kept_heads", remaining_heads,
          "indices before pruning, from 0, of the remaining heads; empty: the layer is not pruned", at_least(0));
}

OriginalHeads OriginalHeads::resolve_for(const LayerSpec& layer_spec, const std::string& section) const {
  OriginalHeads result = *this;
  const std::string count_key = str("attention.", section, ".original_heads");
  auto refuse_remaining_heads = [&](const std::string& expected, const std::string& found, const std::string& advice) {
    refuse_usage(str(layer_spec.name, ", attention.", section, ".kept_heads"), expected, found, advice);
  };
  if (count == 0) {
    if (!remaining_heads.empty())
      refuse_remaining_heads(str("no indices, since ", count_key, " is 0"), str(remaining_heads.size(), " indices"),
                             str("set ", count_key, " to the number of heads before pruning, or leave kept_heads out"));
    result.count = layer_spec.value_heads;
    result.remaining_heads.resize(static_cast<size_t>(result.count));
    std::iota(result.remaining_heads.begin(), result.remaining_heads.end(), 0);
    return result;
  }
  if (static_cast<int64_t>(remaining_heads.size()) != layer_spec.value_heads)
    refuse_remaining_heads(str("one index for each of the layer's ", count_of(layer_spec.value_heads, "head")),
                           str(remaining_heads.size(), " indices"), "list the indices of these heads before pruning");
  const std::set<int64_t> distinct_heads(remaining_heads.begin(), remaining_heads.end());
  if (distinct_heads.size() != remaining_heads.size())
    refuse_remaining_heads("each head once", "a repeated index", "replace the index by the index of another head");
  if (*distinct_heads.rbegin() >= count)
    refuse_remaining_heads(str("head indices from 0 to ", count - 1), str(*distinct_heads.rbegin()),
                           str("correct the index, or raise ", count_key));
  return result;
}

OriginalHeads OriginalHeads::select(const std::vector<int64_t>& value_heads) const {
  OriginalHeads result{count, {}};
  for (const int64_t head : value_heads) result.remaining_heads.push_back(remaining_heads[static_cast<size_t>(head)]);
  return result;
}

at::Tensor OriginalHeads::select_remaining_heads(const at::Tensor& w) const {
  return is_pruned() ? w.index_select(-1, nn::cached_constant(w.device(), remaining_heads)) : w;
}

nn::HeadAxis OriginalHeads::axis(int64_t dim) const {
  return {dim, static_cast<int64_t>(remaining_heads.size()), HeadSide::value, true, count, remaining_heads};
}

}  // namespace mh::attention
