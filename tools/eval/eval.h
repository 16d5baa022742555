// The jobs of mh-eval: scoring, which needs no subcommand, and the subcommands generate, translate, bleu and curves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/job.h"
#include "common/model_options.h"
#include "common/shard_source.h"
#include "model/load.h"

namespace mh::eval {

// The options of mh-eval without a subcommand. Subcommands accept these options as well, except the options
// that they exclude.
struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention_path = "auto"; }
  std::vector<std::string> assignments;
  std::string format = "table";
};

struct SharedOptions {
  CLI::Option* format = nullptr;
  std::vector<CLI::Option*> model_options;    // --set, --device, --precision, --attention and --threads
  std::vector<CLI::Option*> scoring_options;  // options that apply only to scoring
};

// Returns the job that scores models on a shard, which runs if the command line has no subcommand. Adds the options of
// this job to `app` and stores them in `shared_options`.
Job make_score_job(CLI::App& app, const std::shared_ptr<Arguments>& args, SharedOptions& shared_options);

void add_generate_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args, const SharedOptions& shared_options,
                             Jobs& jobs);
void add_translate_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args,
                              const SharedOptions& shared_options, Jobs& jobs);
void add_bleu_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args, const SharedOptions& shared_options,
                         Jobs& jobs);
void add_curves_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args, const SharedOptions& shared_options,
                           Jobs& jobs);

// Makes it an error to use any of `options` together with the subcommand.
void exclude(CLI::App& subcommand, const std::vector<CLI::Option*>& options);

// Loads the checkpoint `path` with the device, attention path, precision and --set of the arguments, in bf16 without
// masters. `names_model`: whether the logged attention paths name the model, for several models.
model::LoadedModel load_checkpoint(const Arguments& args, const std::string& path, bool names_model = false);
// Loads the checkpoints `paths`, of which there is at least one, as load_checkpoint() does, and returns their ensemble;
// a single checkpoint is returned as a model, not an ensemble. Throws the errors of model::ensemble_of().
model::LoadedModel load_ensemble(const Arguments& args, const std::vector<std::string>& paths);

// Returns whether two paths, which need not exist, refer to the same file; false if one is empty.
bool is_same_file(const std::string& a, const std::string& b);

}  // namespace mh::eval
