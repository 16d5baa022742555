// What the jobs of mh-spectrum share.
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "io/checkpoint.h"
#include "spectrum.h"

namespace mh::spectrum {

void check_vocabularies(const std::vector<std::string>& models, const TextSource& data) {
  for (const std::string& model : models)
    if (model != "-")
      io::require_vocabulary(data.header(), data.name(), io::Checkpoint(model).entry(io::kFingerprintKey), model);
}

void add_settings(nlohmann::ordered_json& row, const Arguments& a, const task::ScoringOptions& how) {
  row.update(settings_of(how, a.precision));
  row["set"] = join(a.sets, " ");
}

}  // namespace mh::spectrum
