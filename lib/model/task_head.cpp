// The registry of task heads, and the checks of their options.
#include "model/task_head.h"

#include "base/error.h"
#include "base/text.h"

namespace mh::model {

Registry<TaskHead>& task_heads() {
  static Registry<TaskHead> registry("head");
  return registry;
}

std::unique_ptr<TaskHead> make_task_head(const BertOptions& options) {
  return task_heads().make(options.head, "model.bert.head");
}

void check_head(const BertOptions& o) {
  const auto head = make_task_head(o);
  if (head->has_classes() && o.classes < 2)
    refuse_usage("model.bert.classes", str("2 or more, with model.bert.head='", o.head, "'"),
                 found_value(o.classes, BertOptions{}.classes), "set the number of classes");
  if (!head->has_classes() && o.classes > 0)
    refuse_usage("model.bert.classes", "0, or model.bert.head='classes'", str(o.classes),
                 "leave model.bert.classes out, or set model.bert.head='classes'");
  if (!o.labels.empty() && static_cast<int64_t>(o.labels.size()) != o.classes)
    refuse_usage("model.bert.labels", str("one name for each of the ", o.classes, " classes, or an empty list"),
                 join(o.labels, ", "), "change model.bert.labels or model.bert.classes");
  if (!head->has_next_sentence() && o.next_sentence)
    refuse_usage("model.bert.next_sentence", "false, or model.bert.head='words'", "true",
                 "leave model.bert.next_sentence out, or set model.bert.head='words'");
  if (!head->has_pooler(o) && o.pooler != PoolerKind::tanh)
    refuse_usage("model.bert.pooler", "tanh, the default, or a task head with a pooler, such as classes", "transform",
                 "leave model.bert.pooler out, or choose another model.bert.head");
  if (!head->has_transform() && !o.transform_bias)
    refuse_usage("model.bert.transform_bias",
                 "true, the default, or a task head with a dense layer before its output layer, such as words", "false",
                 "leave model.bert.transform_bias out, or choose another model.bert.head");
}

}  // namespace mh::model
