// What the jobs of mh-spectrum share.
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "spectrum.h"

namespace mh::spectrum {

void add_settings(nlohmann::ordered_json& row, const Arguments& a, const task::ScoringOptions& how) {
  row.update(settings_of(how, a.precision));
  row["set"] = join(a.sets, " ");
}

}  // namespace mh::spectrum
