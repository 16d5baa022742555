#include "common/job.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace mh {

bool run_selected(const Jobs& jobs) {
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job)
    if (job->app->parsed()) return job->run(), true;
  return false;
}

void refuse_misspelling(const CLI::App& tool, const std::string& model) {
  std::vector<std::string> names;
  for (const CLI::App* sub : tool.get_subcommands({})) names.push_back(sub->get_name());
  std::sort(names.begin(), names.end());
  const std::string suggestion = did_you_mean(model, names);
  if (suggestion.empty() || MappedFile::is_mappable(model)) return;
  refuse_usage("", (names.size() == 1 ? "a model or the subcommand " : "a model or a subcommand: ") + join(names, ", "),
               model, suggestion);
}

}  // namespace mh
