// Computes pairwise distances of head outputs, sequence by sequence.
#include "analysis/discrepancy.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <vector>

#include "nn/aten.h"

namespace mh::analysis {

namespace {

constexpr const char* kSequencesLabel = "sequences";

}  // namespace

at::Tensor DiscrepancyObserver::intercept_heads(attention::HeadSide side, const attention::LayerSpec& layer_spec,
                                                const at::Tensor& x) {
  if (side == attention::HeadSide::value) add_distances(layer_spec, x, false);
  if (side == attention::HeadSide::output) add_distances(layer_spec, x, true);
  return x;
}

void DiscrepancyObserver::begin_batch(const attention::Lengths& lengths) {
  lengths_ = lengths;
  contribute(kSequencesLabel, {(lengths.decoder.defined() ? lengths.decoder : lengths.encoder).gt(0).sum()});
}

void DiscrepancyObserver::add_distances(const attention::LayerSpec& layer_spec, const at::Tensor& z,
                                        bool is_after_combiner) {
  c10::NoGradGuard no_gradient;
  Sums sums;
  sums.num_heads = z.size(1);
  std::vector<double> distances;  // euclidean and cosine distance of each sequence, summed over pairs of heads
  const at::Tensor lengths = lengths_.queries(layer_spec.kind);  // undefined: no padding
  for (int64_t b = 0; b < z.size(0); ++b) {
    const int64_t length = lengths.defined() ? std::min(z.size(2), lengths[b].item<int64_t>()) : z.size(2);
    if (length == 0) continue;
    const at::Tensor heads = z[b].narrow(1, 0, length).to(at::kDouble).flatten(1);  // (heads, length · dv)
    // Mode 2 of cdist uses no matrix product, in which small distances would be lost to cancellation.
    constexpr int64_t kNoMatmul = 2;
    distances.push_back(at::cdist(heads, heads, 2, kNoMatmul).sum().item<double>());
    const at::Tensor norms = heads.norm(2, 1, true);
    const at::Tensor directions = heads / at::where(norms == 0, at::ones_like(norms), norms);
    const at::Tensor cosines = at::matmul(directions, directions.t());
    distances.push_back(sums.num_pairs() - (cosines.sum() - cosines.trace()).item<double>());
  }
  contribute(LayerLabel{layer_spec.kind, layer_spec.layer}.text(),
             {at::tensor({int64_t{is_after_combiner}, sums.num_heads}, at::kLong), at::tensor(distances, at::kDouble)});
}

void DiscrepancyObserver::add_contribution(const std::string& label, const Tensors& tensors) {
  if (label == kSequencesLabel) {
    num_sequences_ += tensors[0].item<int64_t>();
    return;
  }
  const LayerLabel layer_label = LayerLabel::parse(label);
  Layer& layer = sums_[layer_label.kind][layer_label.layer];
  Sums& sums = tensors[0][0].item<int64_t>() != 0 ? layer.after_combiner : layer.before_combiner;
  sums.num_heads = tensors[0][1].item<int64_t>();
  const auto* distances = tensors[1].const_data_ptr<double>();
  for (int64_t i = 0; i < tensors[1].numel(); i += 2) sums.euclidean += distances[i], sums.cosine += distances[i + 1];
}

std::map<AttentionKind, std::vector<DiscrepancyObserver::Layer>> DiscrepancyObserver::layers() const {
  std::map<AttentionKind, std::vector<Layer>> layers_by_kind;
  const double num_sequences = static_cast<double>(std::max<int64_t>(1, num_sequences_));
  for (const auto& [kind, layers] : sums_)
    for (auto [layer, sums] : layers) {
      for (Sums* s : {&sums.before_combiner, &sums.after_combiner})
        s->cosine /= num_sequences, s->euclidean /= num_sequences;
      auto& kind_layers = layers_by_kind[kind];
      kind_layers.resize(std::max(kind_layers.size(), static_cast<size_t>(layer) + 1));
      kind_layers[static_cast<size_t>(layer)] = sums;
    }
  return layers_by_kind;
}

}  // namespace mh::analysis
