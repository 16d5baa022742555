// The jobs of mh-spectrum.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/shard.h"
#include "model/load.h"
#include "model_options.h"
#include "task/scoring.h"

namespace mh::spectrum {

struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention = "auto"; }
  std::vector<std::string> files, sets;
  std::string of = "attention", format = "table", curves, plot, dump;
  bool summary = false;
  // Of experts.
  std::string model, data, show = "gates";
  int64_t tokens = 10, least = 5, random = 5;
};

void show(const Arguments& a, const task::ScoringOptions& given);
void show_experts(const Arguments& a, const task::ScoringOptions& given);

// A shard's tokens: read where they stand in a file, held in memory from a pipe.
class Data {
 public:
  explicit Data(const std::string& path);
  const io::ShardHeader& header() const { return file_ != nullptr ? file_->header() : piped_.header; }
  task::Text text(const io::Tokenizer& tokenizer) const;

 private:
  std::unique_ptr<io::ShardFile> file_;
  io::TokenText piped_;
};

// Refuses models of another vocabulary than the data's, as far as files show it before they are loaded.
void check_vocabularies(const std::vector<std::string>& models, const Data& data, const std::string& data_name);
// The model, on the device and path that the arguments ask for.
model::LoadedModel load(const Arguments& a, const std::string& path);
// The options, resolved for a model: its block in training where none is given.
task::ScoringOptions resolved(const task::ScoringOptions& given, model::LoadedModel& model, const task::Text& text);
// What of them changes figures, for every row.
void add_settings(nlohmann::ordered_json& row, const Arguments& a, const task::ScoringOptions& how);

}  // namespace mh::spectrum
