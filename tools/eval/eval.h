// The jobs of mh-eval.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/job.h"
#include "common/model_options.h"
#include "common/subject.h"
#include "model/load.h"

namespace mh::eval {

// Options of mh-eval itself, which hold for its subcommands too unless they exclude them.
struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention = "auto"; }
  std::vector<std::string> sets;
  std::string format = "table";
};

struct SharedOptions {
  CLI::Option* format = nullptr;
  std::vector<CLI::Option*> models;   // --set, --device and the like: how a model is loaded
  std::vector<CLI::Option*> scoring;  // of scores alone
};

// Of no subcommand: scores models on a shard. Returns its job, whose options are those of `app`.
Job add_score(CLI::App& app, const std::shared_ptr<Arguments>& a, SharedOptions& shared);

void add_generate(CLI::App& app, const std::shared_ptr<Arguments>& a, const SharedOptions& shared, Jobs& jobs);
void add_translate(CLI::App& app, const std::shared_ptr<Arguments>& a, const SharedOptions& shared, Jobs& jobs);
void add_bleu(CLI::App& app, const std::shared_ptr<Arguments>& a, const SharedOptions& shared, Jobs& jobs);

// The subcommand takes none of these options.
void exclude(CLI::App& subcommand, const std::vector<CLI::Option*>& options);

// The model, on the device and path that the arguments ask for.
model::LoadedModel load(const Arguments& a, const std::string& path);

// Whether two names of files, which need not be there, are one; none is the empty name.
bool same_place(const std::string& a, const std::string& b);

}  // namespace mh::eval
