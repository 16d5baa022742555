#include "model/language_model.h"

#include <map>

#include "attention/layer.h"
#include "base/text.h"

namespace mh::model {

void LanguageModel::set_path(attention::Path path) {
  for (attention::AttentionLayer* layer : attention_layers()) layer->set_path(path);
}

void LanguageModel::require_fused(bool training) {
  for (const attention::AttentionLayer* layer : attention_layers()) layer->require_fused(training);
}

std::vector<std::string> LanguageModel::describe_paths(bool training) {
  std::map<std::pair<std::string, std::string>, int64_t> answers;
  for (const attention::AttentionLayer* layer : attention_layers())
    ++answers[{attention::name_of(layer->shape().kind), layer->describe_path(training)}];
  std::vector<std::string> lines;
  lines.reserve(answers.size());
  for (const auto& [answer, count] : answers)
    lines.push_back(str(answer.first, ", ", count, " layers: ", answer.second));
  return lines;
}

}  // namespace mh::model
