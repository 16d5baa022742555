// What the tools share that ask models about a text.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "common/model_options.h"
#include "io/shard.h"
#include "model/load.h"
#include "task/example_options.h"
#include "task/scoring.h"
#include "text/records/whole_shard.h"

namespace mh {

// A shard: a file stays where it is; of a text or of pairs a pipe ("-") is held. Opened and checked by its header at
// once.
class TextSource {
 public:
  explicit TextSource(const std::string& path);
  TextSource(const TextSource&) = delete;  // what text_for() gives reads from it
  TextSource& operator=(const TextSource&) = delete;
  const io::ShardHeader& header() const;
  const io::ShardCounts& counts() const;
  const std::string& name() const { return name_; }
  bool holds_pairs() const { return header().kind == io::kPairsKind; }
  bool holds_examples() const { return !holds_pairs() && header().kind != io::kTextKind; }
  // Error(input) for a shard of another vocabulary than the model's, or of a kind that it does not read.
  task::Corpus text_for(const model::LoadedModel& m) const;
  // The same, to measure a loss by: for one without labels too.
  task::Corpus measure_for(const model::LoadedModel& m) const;
  // The same refusals, of a model that is not loaded yet.
  void require_for(const io::Checkpoint& checkpoint) const;

 private:
  void require(const model::ModelOptions& model, const text::Tokenizers& tokenizers, const std::string& name) const;
  std::string name_;
  std::variant<std::unique_ptr<io::ShardFile>, text::TokenText, text::PairText> data_;
};

// The model on the device, path and precision that the arguments ask for; with keys of the model set, and of squad.
model::LoadedModel load_as(const ModelArguments& a, const io::Checkpoint& checkpoint,
                           const std::vector<std::string>& sets = {});

// How rows of examples are made for a model: as in its training, but for keys of squad that were set since.
task::ExampleOptions example_options(const model::LoadedModel& m);

// How a model scores a text: what was not given is as in its training. Warns of blocks longer than those.
task::ScoringOptions scoring_for(const model::LoadedModel& m, const task::ScoringOptions& given,
                                 const task::Corpus& corpus);

// What of the options changes a figure, as columns: block, context, memory, blocks, seed, precision.
nlohmann::ordered_json settings_of(const task::ScoringOptions& how, const std::string& precision);

// " by taylor in blocks of 32 tokens, all of them; seed 1": what chose heads, for a message.
std::string measured_by(const std::string& measure, const task::ScoringOptions& how);

// Reports to a progress bar that begins with the first report.
std::function<void(int64_t done, int64_t all)> progress_bar(const std::string& label, const std::string& unit);

}  // namespace mh
