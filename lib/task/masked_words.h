// The dataset of the task "masked-words", for examples from any source.
#pragma once

#include <memory>

#include "data/examples.h"
#include "task/task.h"

namespace mh::task {

// Returns a dataset of examples whose targets are masked words and next-sentence classes (text/records/example.h).
std::unique_ptr<Dataset> masked_words_of(data::Examples examples);

}  // namespace mh::task
