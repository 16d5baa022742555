// The task of masked words, for rows of any origin.
#pragma once

#include <memory>

#include "data/examples.h"
#include "task/task.h"

namespace mh::task {

// Returns the rows, whose targets are words and next sentences (text/records/example.h), as a dataset.
std::unique_ptr<Dataset> masked_words_of(data::Examples examples);

}  // namespace mh::task
