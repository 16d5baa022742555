#include "list.h"

#include "base/error.h"
#include "base/text.h"
#include "common/train_setup.h"
#include "train/run_config.h"

namespace mh::train_setup {

namespace {

template <class S>
std::string stages_of(const char* stage, const Registry<S>& registry) {
  std::string rows;
  for (const std::string& name : registry.names()) {
    std::vector<std::string> options;
    if (auto given = registry.make(name, stage)->options()) {
      FieldLister lister;
      lister.section("", *given);
      for (const auto& row : lister.rows()) options.push_back(str(row.key, "=", row.value));
    }
    rows += str(stage, '\t', name, '\t', registry.find(name, stage).help, '\t',
                options.empty() ? "-" : join(options, " "), '\n');
  }
  return rows;
}

std::string listed(const std::string& what) {
  std::string text;
  if (what == "stages")
    return "stage\tname\tdoes\toptions\n" + stages_of("pairing", attention::pairings()) +
           stages_of("score", attention::scores()) + stages_of("normaliser", attention::normalisers()) +
           stages_of("mixer", attention::mixers()) + stages_of("combiner", attention::combiners());
  if (what == "backbones") {
    text = "backbone\tdoes\n";
    for (const std::string& name : model::backbones().names())
      text += str(name, '\t', model::backbones().find(name, "").help, '\n');
    return text;
  }
  text = "key\ttype\tdefault\tmeaning\n";
  for (const auto& row : train::all_keys()) {
    std::string choices = row.choices.empty() ? "" : " (" + join(row.choices, ", ") + ")";
    text += str(row.key, '\t', row.type, '\t', row.value, '\t', row.help, choices, '\n');
  }
  return text;
}

}  // namespace

void list(const std::string& what) { print(listed(what)); }

}  // namespace mh::train_setup
