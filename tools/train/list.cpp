// The tables of mh-train --list.
#include "list.h"

#include "base/error.h"
#include "base/text.h"
#include "common/train_setup.h"
#include "io/metadata_keys.h"
#include "model/tensor_list.h"
#include "train/run_config.h"
#include "train/train_state.h"

namespace mh::train_setup {

namespace {

template <class S>
std::string stages_of(const char* stage, const Registry<S>& registry) {
  std::string rows;
  for (const std::string& name : registry.names()) {
    std::vector<std::string> options;
    if (auto stage_options = registry.make(name, stage)->options()) {
      FieldLister lister;
      lister.section("", *stage_options);
      for (const auto& row : lister.rows()) options.push_back(str(row.key, "=", row.value));
    }
    rows += str(stage, '\t', name, '\t', registry.find(name, stage).help, '\t',
                options.empty() ? "-" : join(options, " "), '\n');
  }
  return rows;
}

template <class S>
std::string names_of(const char* heading, const Registry<S>& registry) {
  std::string rows = str(heading, "\tdoes\n");
  for (const std::string& name : registry.names()) rows += str(name, '\t', registry.find(name, heading).help, '\n');
  return rows;
}

template <class Keys>
std::string meanings_of(const Keys& keys) {
  std::string rows = "key\tmeaning\n";
  for (const auto& key : keys) rows += str(key.name, '\t', key.meaning, '\n');
  return rows;
}

std::string tensor_rows() {
  std::string rows = "of\ttensor\tshape\tsetting\n";
  for (const auto& t : model::list_tensors())
    rows += str(t.owner, '\t', t.name, '\t', t.shape, '\t', t.setting.empty() ? "-" : t.setting, '\n');
  return rows;
}

std::string list_text(const std::string& table) {
  if (table == "stages")
    return "stage\tname\tdoes\toptions\n" + stages_of("pairing", attention::pairings()) +
           stages_of("score", attention::scores()) + stages_of("normaliser", attention::normalisers()) +
           stages_of("mixer", attention::mixers()) + stages_of("combiner", attention::combiners());
  if (table == "backbones") return names_of("backbone", model::backbones());
  if (table == "procedures") return names_of("procedure", train::procedures());
  if (table == "regularisers") return names_of("regulariser", train::regularisers());
  if (table == "tensors") return tensor_rows();
  if (table == "metadata") return meanings_of(io::kMetadataKeys);
  if (table == "training") return meanings_of(train::training_keys());
  std::string text = "key\ttype\tdefault\tmeaning\n";
  for (const auto& row : train::all_keys()) {
    std::vector<std::string> choices = row.choices;
    for (std::string& choice : choices)
      if (choice.empty()) choice = "\"\"";
    const std::string valid_texts = choices.empty() ? "" : " (" + join(choices, ", ") + ")";
    text += str(row.key, '\t', row.type, '\t', row.value, '\t', row.help, valid_texts, '\n');
  }
  return text;
}

}  // namespace

const std::vector<std::string>& lists() {
  static const std::vector<std::string> names{"stages",       "keys",    "backbones", "procedures",
                                              "regularisers", "tensors", "metadata",  "training"};
  return names;
}

void list(const std::string& table) { print(list_text(table)); }

}  // namespace mh::train_setup
