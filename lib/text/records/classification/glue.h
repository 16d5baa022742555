// The tasks of GLUE (Wang et al. 2018, https://arxiv.org/abs/1804.07461): their files, labels, metrics, and the files
// that its server takes. https://gluebenchmark.com
#pragma once

#include <string>
#include <vector>

#include "text/records/classification/examples.h"

namespace mh::text {

// Columns of a file by name, or, where it has no header, by number from 1.
struct GlueForm {
  std::string first, second, label;  // second: none; label: none in files of tests
  bool header = true;
  size_t count = 0;  // of columns, where no header tells it
};

struct GlueTask {
  ExampleTask task;
  std::vector<GlueForm> forms;
};

const std::vector<GlueTask>& glue_tasks();
const GlueTask& glue_task(const std::string& name);  // Error(usage) with the nearest name
std::vector<std::string> glue_names();

// Columns that are given instead of a task's own; empty: as the task has them.
struct GivenColumns {
  std::string first, second, label;
  bool header = true;
};
// Of a file of the task, by its first line. A header with the texts but no label is one of a test; without a label no
// file is taken for another. Error(input) names what is missing and what is there.
ExampleColumns glue_columns(const GlueTask& task, const GivenColumns& given, const std::vector<std::string>& fields,
                            const std::string& where);
// Of any file; all of `given` that is not empty must be there.
ExampleColumns given_columns(const GivenColumns& given, const std::vector<std::string>& fields,
                             const std::string& where);

}  // namespace mh::text
