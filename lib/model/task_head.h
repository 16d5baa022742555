// The interface of task heads (model.bert.head), which make predictions from the last hidden states of an encoder. The
// files in heads/ implement one task head each.
#pragma once

#include <memory>

#include "base/registry.h"
#include "model/model_config.h"
#include "model/output.h"

namespace mh::model {

// Creates the output layer of one task head, and states which options of [model.bert] the task head accepts.
class TaskHead {
 public:
  virtual ~TaskHead() = default;
  // Returns whether the task head predicts vocabulary entries; with model.tied, its weight is then the token embedding.
  virtual bool scores_entries() const { return false; }
  virtual bool has_classes() const { return false; }        // whether model.bert.classes and model.bert.labels apply
  virtual bool has_next_sentence() const { return false; }  // whether model.bert.next_sentence applies
  // Whether model.bert.pooler applies, and whether model.bert.transform_bias does.
  virtual bool has_pooler(const BertOptions&) const { return true; }
  virtual bool has_transform() const { return true; }
  // Creates the output layer, whose parameters are named pooler.* (the pooler) and head.* (all others). `parameters`
  // must outlive the output layer.
  virtual std::unique_ptr<OutputLayer> make(nn::ParameterList& parameters, const ModelOptions& options,
                                            const TokenEmbedding& embedding, int64_t vocabulary_size) const = 0;
};
Registry<TaskHead>& task_heads();

// Creates the task head that options.head (model.bert.head) names. Throws Error(usage) for an unknown name.
std::unique_ptr<TaskHead> make_task_head(const BertOptions& options);

// Throws Error(usage) if an option of [model.bert] has an invalid value, or is set although the chosen task head does
// not accept the option.
void check_head(const BertOptions& options);

}  // namespace mh::model
