#include "analysis/additive_observer.h"

#include <cstring>

#include "base/error.h"
#include "nn/aten.h"

namespace mh::analysis {

std::string LayerLabel::text() const { return str(static_cast<int>(kind), " ", layer); }

LayerLabel LayerLabel::parse(const std::string& text) {
  return {static_cast<attention::AttentionKind>(std::stoi(text)), std::stoll(text.substr(text.find(' ') + 1))};
}

void AdditiveObserver::contribute(const std::string& label, const Tensors& tensors) {
  if (!is_recording_) return add_contribution(label, tensors);
  const at::Tensor label_bytes = at::empty({static_cast<int64_t>(label.size())}, at::kByte);
  std::memcpy(label_bytes.mutable_data_ptr(), label.data(), label.size());
  recorded_.push_back(label_bytes);
  recorded_.push_back(at::full({}, static_cast<int64_t>(tensors.size()), at::kLong));
  for (const at::Tensor& tensor : tensors) recorded_.push_back(tensor.detach().to(at::kCPU));
}

void AdditiveObserver::add_recorded(const distributed::OrderedWork::Results& recorded_results) {
  for (size_t i = 0; i < recorded_results.size();) {
    const std::string label(static_cast<const char*>(recorded_results[i].const_data_ptr()),
                            recorded_results[i].nbytes());
    const auto begin = recorded_results.begin() + static_cast<int64_t>(i) + 2,
               end = begin + recorded_results[i + 1].item<int64_t>();
    add_contribution(label, Tensors(begin, end));
    i = static_cast<size_t>(end - recorded_results.begin());
  }
}

}  // namespace mh::analysis
