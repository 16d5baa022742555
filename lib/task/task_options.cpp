#include "task/task_options.h"

#include <algorithm>

#include "base/config.h"
#include "base/error.h"

namespace mh::task {

TaskOptions::TaskOptions() {
  for (const std::string& name : tasks().names()) tasks_.push_back(tasks().make(name, "task"));
}

TaskOptions::TaskOptions(const TaskOptions& other) {
  for (const auto& task : other.tasks_) tasks_.push_back(task->clone());
}

TaskOptions& TaskOptions::operator=(const TaskOptions& other) { return *this = TaskOptions(other); }

void TaskOptions::read(Config& config, const model::ModelOptions& model_options) {
  for (const auto& task : tasks_) {
    const std::string section = task->section();
    if (section.empty()) continue;
    config.read(section, *task);
    if (const auto keys = config.keys_below(section); !keys.empty() && !task->serves(model_options))
      refuse_usage(str(section, ".", keys[0]), str("a model that predicts ", task->prediction_noun()),
                   model::example_type_of(model_options) == model::ExampleType::examples
                       ? str("model.bert.head='", model_options.bert.head, "'")
                       : str("model.backbone='", model_options.backbone, "'"),
                   str("leave ", section, ".", keys[0], " out"));
  }
}

void TaskOptions::describe(Fields& f) {
  for (const auto& task : tasks_)
    if (const std::string section = task->section(); !section.empty()) f.section(section, *task);
}

void TaskOptions::describe(Fields& f, const model::ModelOptions& model_options) {
  for (const auto& task : tasks_)
    if (const std::string section = task->section(); !section.empty() && task->serves(model_options))
      f.section(section, *task);
}

const Task& TaskOptions::serving_task(const model::ModelOptions& model_options) const {
  const auto it =
      std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& task) { return task->serves(model_options); });
  if (it == tasks_.end()) throw std::logic_error("no task for model.backbone='" + model_options.backbone + "'");
  return **it;
}

void TaskOptions::replace(std::unique_ptr<Task> task) {
  for (auto& stored_task : tasks_)
    if (std::string(stored_task->record_kind()) == task->record_kind()) return stored_task.swap(task);
}

}  // namespace mh::task
