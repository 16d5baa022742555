// The options of all tasks in the configuration of a run: one section for each task with options.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "task/task.h"

namespace mh::task {

// Copies are independent.
class TaskOptions {
 public:
  TaskOptions();
  TaskOptions(const TaskOptions& other);
  TaskOptions& operator=(const TaskOptions& other);
  TaskOptions(TaskOptions&&) = default;
  TaskOptions& operator=(TaskOptions&&) = default;
  ~TaskOptions() = default;

  // Reads the sections. Throws Error(usage) for a key of a task that models with these options do not have.
  void read(Config& config, const model::ModelOptions& model);
  void describe(Fields& f);  // visits all sections
  // Visits the section of the task of these models, if it has one.
  void describe(Fields& f, const model::ModelOptions& model);
  // Returns the task of these models, with its options. Throws std::logic_error if there is none.
  const Task& of(const model::ModelOptions& model) const;
  // Replaces the task of the same kind of records.
  void replace(std::unique_ptr<Task> task);

 private:
  std::vector<std::unique_ptr<Task>> tasks_;  // all tasks, in the order of their names
};

}  // namespace mh::task
