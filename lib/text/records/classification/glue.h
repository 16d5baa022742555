// The tasks of GLUE (Wang et al. 2018, https://arxiv.org/abs/1804.07461): their files, labels, metrics, and the
// prediction files of its server. https://gluebenchmark.com
#pragma once

#include <string>
#include <vector>

#include "text/records/classification/examples.h"

namespace mh::text {

// The columns of one form of a task's files: names, or numbers from 1 if the file has no header.
struct GlueForm {
  std::string first, second, label;  // `second` may be empty; `label` is empty for test files
  bool header = true;
  size_t count = 0;  // number of columns of a file without header
};

struct GlueTask {
  ExampleTask task;
  std::vector<GlueForm> forms;
};

const std::vector<GlueTask>& glue_tasks();
// Throws Error(usage), with the most similar name, for an unknown task.
const GlueTask& glue_task(const std::string& name);
std::vector<std::string> glue_names();

// Columns given by the user. With a task, an empty name means the task's own column.
struct ColumnChoice {
  std::string first, second, label;
  bool header = true;
};
// Returns the columns of a file of the task, determined from its first line. A header with the columns of the texts but
// without the label's belongs to a test file; all other files must have the label. Throws Error(input) that lists the
// expected and the existing columns.
ExampleColumns glue_columns(const GlueTask& task, const ColumnChoice& given, const std::vector<std::string>& fields,
                            const std::string& where);
// Returns the columns `given` of a file; every non-empty one must exist.
ExampleColumns chosen_columns(const ColumnChoice& given, const std::vector<std::string>& fields,
                              const std::string& where);

}  // namespace mh::text
