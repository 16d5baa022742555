// The tasks of GLUE (Wang et al. 2018, https://arxiv.org/abs/1804.07461): files, labels, metrics, and the prediction
// files of GLUE's server, https://gluebenchmark.com.
#pragma once

#include <string>
#include <vector>

#include "text/records/classification.h"

namespace mh::text {

// The columns of one layout of a task's files: names, or numbers from 1 if the file has no header.
struct GlueFileLayout {
  std::string first_text, second_text, label;  // `second_text` is empty for a task of one sentence
  bool has_header = true;
  size_t num_columns = 0;  // number of columns of a file without header
};

struct GlueTask {
  ExampleTask example_task;
  std::vector<GlueFileLayout> layouts;  // layouts of the task's files; the first one has a header
};

const std::vector<GlueTask>& glue_tasks();
// Returns the task `name`. Throws Error(usage), with the most similar name, for an unknown task.
const GlueTask& glue_task(const std::string& name);
std::vector<std::string> glue_names();

// Columns that the user selects by name or by number. An empty name selects the column of the GLUE task; without a GLUE
// task, or without a header, an empty name selects no column.
struct ColumnChoice {
  std::string first_text, second_text, label;
  bool has_header = true;
};
// Returns the columns of a file of the task, determined from `fields`, the fields of the file's first line. If
// choice.label is empty, a header with the text columns but without the label column belongs to a test file, which has
// no labels. A first line without the text columns is an example if `choice` names no text column and a layout without
// header has the line's number of columns; otherwise throws Error(input) that lists the expected and the existing
// columns. `where`: file and line for messages.
ExampleColumns glue_columns(const GlueTask& task, const ColumnChoice& choice, const std::vector<std::string>& fields,
                            const std::string& where);
// Returns the columns that `choice` selects in a file whose first line has the fields `fields`. Throws Error(input) if
// a selected column does not exist or if several columns have its name.
ExampleColumns select_columns(const ColumnChoice& choice, const std::vector<std::string>& fields,
                              const std::string& where);

}  // namespace mh::text
