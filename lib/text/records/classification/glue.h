// The tasks of GLUE (Wang et al. 2018, https://arxiv.org/abs/1804.07461): their files, labels, metrics, and the
// prediction files of its server. https://gluebenchmark.com
#pragma once

#include <string>
#include <vector>

#include "text/records/classification/examples.h"

namespace mh::text {

// Columns of a file by name, or by number from 1 if it has no header.
struct GlueForm {
  std::string first, second, label;  // second: may be empty; label: empty in test files
  bool header = true;
  size_t count = 0;  // number of columns if the file has no header
};

struct GlueTask {
  ExampleTask task;
  std::vector<GlueForm> forms;
};

const std::vector<GlueTask>& glue_tasks();
const GlueTask& glue_task(const std::string& name);  // Error(usage) with the nearest name
std::vector<std::string> glue_names();

// Columns that override a task's own; empty: those of the task.
struct GivenColumns {
  std::string first, second, label;
  bool header = true;
};
// Returns the columns of a file of the task, from its first line. A header with the texts but without the label is one
// of a test file; no other file may lack the label. Throws Error(input) with missing and existing columns.
ExampleColumns glue_columns(const GlueTask& task, const GivenColumns& given, const std::vector<std::string>& fields,
                            const std::string& where);
// Returns the given columns of any file; all that are not empty must exist.
ExampleColumns given_columns(const GivenColumns& given, const std::vector<std::string>& fields,
                             const std::string& where);

}  // namespace mh::text
