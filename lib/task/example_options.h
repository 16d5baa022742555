// How rows of examples are made of the records of a shard.
#pragma once

#include <string>
#include <vector>

#include "metrics/answers.h"
#include "task/examples.h"
#include "text/records/classification.h"
#include "text/records/masked_words.h"
#include "text/records/questions.h"

namespace mh::io {
class ShardFile;
struct ShardHeader;
}  // namespace mh::io
namespace mh::text {
struct Tokenizers;
}

namespace mh::task {

// Rows have `block` tokens at most, whatever the options of a kind say of it.
struct ExampleOptions {
  model::HeadTask head = model::HeadTask::words;
  int64_t classes = 0;
  std::vector<std::string> labels;  // of the classes, as the model has learnt them; none: not known
  int64_t segments = 2;             // that the model tells apart
  int64_t block = 512;
  uint64_t seed = 1;
  text::PretrainingOptions mlm;
  text::WindowOptions squad;
  metrics::AnswerOptions answers;
  // To train on: examples without a label are refused, questions whose answer does not stand in the paragraph have no
  // rows. Else rows of masked words are those of seed 1, so that any two models are asked the same.
  bool learn = false;
};

struct QuestionTask {
  text::Questions questions;
  metrics::AnswerOptions answers;
};

// Of a shard of the kind that the head reads; it must outlive them. Says in the log what was cut or left out.
// Error(input) for a damaged shard, one of another kind, one of other classes, and one without labels to learn from;
// Error(usage) for options that leave no room for rows, and for rows of two segments where the model knows one.
Examples examples_of(const io::ShardFile& shard, const text::Tokenizers& tokenizers, const ExampleOptions& options);

// Error(input) where none of them has a label or an answer.
void require_targets(const Examples& examples, const std::string& name);

// The kind of shards that a model learns from, and what mh-prep calls their making: "lm".
const char* kind_for(const model::ModelOptions& options);
const char* preparation_of(const std::string& kind);
// Assignments of keys that make a model's head one for this shard: "model.bert.head='classes'".
std::vector<std::string> head_keys(const io::ShardHeader& header, const std::string& name);

}  // namespace mh::task
