// The options of all tasks in a training configuration, with one section for each task that has options.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "task/task.h"

namespace mh::task {

// Owns one task of each kind with its options. Copies are independent of each other.
class TaskOptions {
 public:
  TaskOptions();
  TaskOptions(const TaskOptions& other);
  TaskOptions& operator=(const TaskOptions& other);
  TaskOptions(TaskOptions&&) = default;
  TaskOptions& operator=(TaskOptions&&) = default;
  ~TaskOptions() = default;

  // Reads the sections of all tasks. Throws Error(usage) for a key of a task that does not serve models with these
  // options.
  void read(Config& config, const model::ModelOptions& model_options);
  // Visits the sections of all tasks.
  void describe(Fields& f);
  // Visits the section of the task that serves models with these options, if the task has a section.
  void describe(Fields& f, const model::ModelOptions& model_options);
  // Returns the task that serves models with these options. Throws std::logic_error if there is none.
  const Task& serving_task(const model::ModelOptions& model_options) const;
  // Replaces the stored task that has the same Task::record_kind() as `task`.
  void replace(std::unique_ptr<Task> task);

 private:
  std::vector<std::unique_ptr<Task>> tasks_;  // all registered tasks, sorted by name
};

}  // namespace mh::task
