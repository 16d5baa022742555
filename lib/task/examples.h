// Rows for an encoder with a head (model.bert.head): of documents to pre-train on, of classified sentences, of
// questions. example_options.h says how they are made of a shard.
#pragma once

#include <cstdint>
#include <memory>

#include "model/model_config.h"
#include "text/records/example.h"

namespace mh::text {
class Classification;  // records/classification.h
}

namespace mh::task {

struct QuestionTask;  // example_options.h

class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  // Rows of an epoch. Those of documents are drawn anew in each; of anything else they are the same in all.
  virtual int64_t rows(int64_t epoch) const = 0;
  // Tokens of a row; exactly those that make() gives.
  virtual int64_t length(int64_t epoch, int64_t row) const = 0;
  virtual text::Example make(int64_t epoch, int64_t row) const = 0;
};

struct Examples {
  std::shared_ptr<const ExampleSource> source;
  model::HeadTask head = model::HeadTask::words;
  int32_t padding = 0;                                          // what rows are filled up with
  std::shared_ptr<const text::Classification> classified = {};  // of classes and numbers
  std::shared_ptr<const QuestionTask> asked = {};               // of spans

  int64_t size() const { return source->rows(0); }
};

}  // namespace mh::task
