// The jobs of mh-eval.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/job.h"
#include "common/model_options.h"
#include "common/text_source.h"
#include "model/load.h"

namespace mh::eval {

// The options of mh-eval without a subcommand. Subcommands accept them, too, unless they exclude them.
struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention = "auto"; }
  std::vector<std::string> sets;
  std::string format = "table";
};

struct SharedOptions {
  CLI::Option* format = nullptr;
  std::vector<CLI::Option*> models;   // options that load a model: --set, --device and the like
  std::vector<CLI::Option*> scoring;  // options that only scoring uses
};

// Adds scoring of models on a shard, which runs without a subcommand; its options belong to `app`.
Job add_score(CLI::App& app, const std::shared_ptr<Arguments>& a, SharedOptions& shared);

void add_generate(CLI::App& app, const std::shared_ptr<Arguments>& a, const SharedOptions& shared, Jobs& jobs);
void add_translate(CLI::App& app, const std::shared_ptr<Arguments>& a, const SharedOptions& shared, Jobs& jobs);
void add_bleu(CLI::App& app, const std::shared_ptr<Arguments>& a, const SharedOptions& shared, Jobs& jobs);

// Makes the options invalid together with the subcommand.
void exclude(CLI::App& subcommand, const std::vector<CLI::Option*>& options);

// Loads the model with the device, attention path and precision of the arguments.
model::LoadedModel load(const Arguments& a, const std::string& path);

// Returns whether two paths, which need not exist, refer to the same file; false if one is empty.
bool same_file(const std::string& a, const std::string& b);

}  // namespace mh::eval
