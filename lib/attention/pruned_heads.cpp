// Checks the original head indices of a pruned layer, and selects the weights of its heads.
#include "attention/pruned_heads.h"

#include <ATen/ops/tensor.h>

#include <numeric>
#include <set>

#include "base/error.h"
#include "nn/device.h"

namespace mh::attention {

void OriginalHeads::describe(Fields& f) {
  f.field("original_heads", count, "number of heads before pruning; 0: the layer is not pruned", between(0, 1 << 16));
  f.field("kept_heads", kept, "indices before pruning, from 0, of the remaining heads; empty: the layer is not pruned",
          at_least(0));
}

OriginalHeads OriginalHeads::resolve_for(const LayerSpec& layer_spec, const std::string& where) const {
  OriginalHeads result = *this;
  auto refuse = [&](const char* key, const std::string& expected, const std::string& found) {
    throw Error(Exit::usage, Problem{str(layer_spec.name, ", attention.", where, ".", key), expected, found, ""});
  };
  if (count == 0) {
    if (!kept.empty()) refuse("kept_heads", "0 indices, since original_heads is 0", str(kept.size()));
    result.count = layer_spec.value_heads;
    result.kept.resize(static_cast<size_t>(result.count));
    std::iota(result.kept.begin(), result.kept.end(), 0);
    return result;
  }
  if (static_cast<int64_t>(kept.size()) != layer_spec.value_heads)
    refuse("kept_heads", str("one index for each of the layer's ", layer_spec.value_heads, " heads"), str(kept.size()));
  const std::set<int64_t> distinct_heads(kept.begin(), kept.end());
  if (distinct_heads.size() != kept.size()) refuse("kept_heads", "each head once", "a head twice");
  if (*distinct_heads.rbegin() >= count)
    refuse("kept_heads", str("head indices from 0 to ", count - 1), str(*distinct_heads.rbegin()));
  return result;
}

OriginalHeads OriginalHeads::select(const std::vector<int64_t>& value_heads) const {
  OriginalHeads result{count, {}};
  for (const int64_t head : value_heads) result.kept.push_back(kept[static_cast<size_t>(head)]);
  return result;
}

at::Tensor OriginalHeads::select_kept(const at::Tensor& w) const {
  return is_pruned() ? w.index_select(-1, nn::cached_constant(w.device(), kept)) : w;
}

nn::HeadAxis OriginalHeads::axis(int64_t dim) const {
  return {dim, static_cast<int64_t>(kept.size()), HeadSide::value, true, count, kept};
}

}  // namespace mh::attention
