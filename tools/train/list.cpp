// The tables of mh-train --list, from which parts of the manual pages are generated.
#include "list.h"

#include "analysis/importance.h"
#include "analysis/rotation.h"
#include "analysis/spectrum_source.h"
#include "base/error.h"
#include "base/text.h"
#include "common/train_setup.h"
#include "huggingface/architecture.h"
#include "io/metadata_keys.h"
#include "io/record_kind.h"
#include "model/model_config.h"
#include "model/stage_list.h"
#include "model/task_head.h"
#include "model/tensor_list.h"
#include "task/task.h"
#include "text/added_tokens.h"
#include "text/records/glue.h"
#include "text/vocabulary_types.h"
#include "train/run_config.h"
#include "train/train_state.h"
#include "train/trainable_filter.h"

namespace mh::train_setup {

namespace {

const char* yes_or_no(bool value) { return value ? "yes" : "no"; }

// Returns a table with the names and help texts of the entries of a registry.
template <class S>
std::string table_of(const char* heading, const Registry<S>& registry) {
  std::string rows = str(heading, "\tdoes\n");
  for (const std::string& name : registry.names()) rows += str(name, '\t', registry.find(name, heading).help, '\n');
  return rows;
}

// Returns a table with the names and meanings of entries.
template <class Entries>
std::string meaning_table_of(const char* heading, const Entries& entries) {
  std::string rows = str(heading, "\tmeaning\n");
  for (const auto& entry : entries) rows += str(entry.name, '\t', entry.meaning, '\n');
  return rows;
}

std::string stage_rows() {
  std::string rows = "stage\tname\tdoes\toptions\tmixes\tfolds\n";
  for (const model::ListedStage& s : model::list_stages())
    rows += str(s.stage, '\t', s.name, '\t', s.help, '\t', s.options.empty() ? "-" : join(s.options, " "), '\t',
                yes_or_no(s.mixes_heads), '\t', yes_or_no(s.is_foldable), '\n');
  return rows;
}

const char* text_of(ResumeRule rule) {
  return rule == ResumeRule::changeable                  ? "may change"
         : rule == ResumeRule::fixed_with_validation_set ? "may change if the run has no validation"
                                                         : "fixed";
}

std::string key_rows() {
  std::string rows = "key\ttype\tdefault\tmeaning\tresume\n";
  for (const auto& field : train::all_keys()) {
    std::vector<std::string> choices = field.choices;
    for (std::string& choice : choices)
      if (choice.empty()) choice = "\"\"";
    const std::string choice_text = choices.empty() ? "" : " (" + join(choices, ", ") + ")";
    rows += str(field.key, '\t', field.type, '\t', field.value, '\t', field.help, choice_text, '\t',
                text_of(field.resume_rule), '\n');
  }
  return rows;
}

std::string procedure_rows() {
  std::string rows = "procedure\tdoes\tinherited\tmoves_weights\n";
  for (const std::string& name : train::procedures().names()) {
    const auto& entry = train::procedures().find(name, "procedure");
    const auto procedure = entry.make();
    rows += str(name, '\t', entry.help, '\t', yes_or_no(procedure->is_inherited_by_finetuning()), '\t',
                yes_or_no(procedure->moves_weights()), '\n');
  }
  return rows;
}

std::string regulariser_rows() {
  std::string rows = "regulariser\tdoes\tdepends_on_length\n";
  for (const std::string& name : train::regularisers().names()) {
    const auto& entry = train::regularisers().find(name, "regulariser");
    rows += str(name, '\t', entry.help, '\t', yes_or_no(entry.make()->depends_on_fraction()), '\n');
  }
  return rows;
}

// Returns a row for each value of train.schedule.rule: whether the rule, with the defaults of its options, depends on
// the length of training.
std::string schedule_rows() {
  train::ScheduleOptions schedule;
  FieldLister lister;
  lister.section("", schedule);
  std::string rows = "rule\tdepends_on_length\n";
  for (const auto& field : lister.descriptions())
    if (field.key == "rule")
      for (const std::string& rule : field.choices) {
        schedule.rule = rule;
        rows += str(rule, '\t', yes_or_no(schedule.decays_to_end()), '\n');
      }
  return rows;
}

// Returns a row for each head of an encoder, with the kind of records that train it.
std::string head_rows() {
  std::string rows = "head\tpredicts\trecords\n";
  for (const std::string& name : model::task_heads().names()) {
    model::ModelOptions options;
    options.backbone = "bert";
    options.bert.head = name;
    rows +=
        str(name, '\t', model::task_heads().find(name, "head").help, '\t', task::task_of(options)->record_kind(), '\n');
  }
  return rows;
}

std::string matrix_rows() {
  std::string rows = "matrices\tfrom\tdoes\n";
  for (const std::string& name : analysis::spectrum_sources().names()) {
    const auto source = analysis::spectrum_sources().make(name, "matrices");
    rows += str(name, source->needs_argument() ? ":NAME" : "", '\t', source->reads_text() ? "data" : "parameters", '\t',
                analysis::spectrum_sources().find(name, "matrices").help, '\n');
  }
  return rows;
}

// Returns a table of the scores that mh-eval prints, by the kind of the records.
std::string score_rows() {
  std::string rows = "records\tscore\tfrom\tmeaning\n";
  for (const std::string& kind : io::record_kind_names()) {
    const auto task = task::task_of_kind(kind, "--list scores");
    const auto add = [&](const auto& score, const char* from) {
      rows += str(kind, '\t', score.name, '\t', from, '\t', score.meaning, '\n');
    };
    if (task->traits().has_perplexity)
      for (const task::LikelihoodScore& score : task::likelihood_scores()) add(score, "log-probabilities");
    for (const task::ScoreSpec& score : task->scores())
      add(score, score.needs_decoding ? "translations" : "predictions");
  }
  return rows;
}

std::string glue_rows() {
  std::string rows = "task\ttexts\tlabel\tlabels\tmetrics\tpredictions\n";
  for (const auto& [task, layouts] : text::glue_tasks()) {
    const text::GlueFileLayout& layout = layouts.front();
    rows += str(task.name, '\t', layout.first_text, layout.second_text.empty() ? "" : ", " + layout.second_text, '\t',
                layout.label, '\t',
                task.is_number() ? str(task.min_label, " to ", task.max_label) : join(task.labels, ", "), '\t',
                join(task.metrics, ", "), '\t', task.prediction_file, '\n');
  }
  return rows;
}

std::string record_rows() {
  std::string rows = "kind\tfields\tmeaning\tmade_by\tscoring_keys\n";
  for (const std::string& name : io::record_kind_names()) {
    const io::RecordKind& kind = *io::record_kind(name);
    const auto task = task::task_of_kind(name, "--list records");
    rows += str(name, '\t', join(kind.field_names(), ", "), '\t', io::record_kinds().find(name, "kind").help, '\t',
                join(kind.preparations(), ", "), '\t', task->options_affect_scores() ? task->section() : "-", '\n');
  }
  return rows;
}

std::string vocabulary_rows() {
  std::string rows = "type\tmeaning\tentries\tmerges\tadded_tokens\n";
  for (const text::VocabularyType& type : text::vocabulary_types())
    rows += str(type.name, '\t', type.meaning, '\t', *type.entries == '\0' ? "-" : type.entries, '\t',
                yes_or_no(type.has_merges), '\t', yes_or_no(type.has_added_tokens), '\n');
  return rows;
}

std::string attribute_rows() {
  std::string rows = "attribute\tkind\n";
  for (const char* flag : text::kTokenFlags) rows += str(flag, "\tflag\n");
  for (const char* role : text::kTokenRoles) rows += str(role, "\trole\n");
  return rows + str(text::kAdditionalSpecialTokens, "\trole\n");
}

std::string tensor_rows() {
  std::string rows = "of\ttensor\tshape\tsetting\n";
  for (const auto& t : model::list_tensors())
    rows += str(t.owner, '\t', t.name, '\t', t.shape, '\t', t.setting.empty() ? "-" : t.setting, '\n');
  return rows;
}

struct NamedTable {
  const char* name;
  const char* meaning;
  std::string (*text)();  // returns the header and the rows
};

const std::vector<NamedTable>& tables() {
  static const std::vector<NamedTable> all_tables{
      {"stages",
       "Stages of attention layers, with their options and defaults; also, for each stage with default options, "
       "whether "
       "it mixes heads and whether --fold of mh-convert(1) removes it.",
       stage_rows},
      {"keys", "Keys of a configuration, with types, defaults, and whether a resume may change the key.", key_rows},
      {"backbones", "Values of model.backbone.", [] { return table_of("backbone", model::backbones()); }},
      {"procedures",
       "Sections of train.procedures, whether mh-finetune(1) inherits them from a checkpoint, and whether they move "
       "weights of the model.",
       procedure_rows},
      {"regularisers", "Sections of train.regularisers, and whether their terms depend on the length of training.",
       regulariser_rows},
      {"schedules", "Values of train.schedule.rule, and whether the learning rate depends on the length of training.",
       schedule_rows},
      {"heads",
       "Values of model.bert.head, the task head of an encoder, with the kind of records that trains the task head.",
       head_rows},
      {"trainable", "Words of train.trainable and of --train-only of mh-finetune(1).",
       [] { return meaning_table_of("word", train::trainable_words()); }},
      {"measures", "Measures of importance of mh-prune(1) and mh-swap(1).",
       [] { return table_of("measure", analysis::importance_measures()); }},
      {"selections", "Values of --mode of mh-swap(1).",
       [] { return meaning_table_of("mode", analysis::kPairSelections); }},
      {"matrices", "Matrices that mh-spectrum(1) can analyse: the values of its option --of.", matrix_rows},
      {"scores",
       "Scores of mh-eval(1) for each kind of records, with the outputs of the model from which each score is "
       "computed.",
       score_rows},
      {"glue", "Tasks of mh-prep glue, with the columns of their files.", glue_rows},
      {"records",
       "Kinds of records in shards, see mh-shard(5), the subcommands of mh-prep(1) that make them, and the section of "
       "the keys that affect their scores.",
       record_rows},
      {"vocabularies", "Types of vocabularies, see mh-vocab(5).", vocabulary_rows},
      {"attributes", "Flags and roles of added tokens, see mh-vocab(5).", attribute_rows},
      {"architectures", "Models of Hugging Face that mh-convert(1) reads.",
       [] { return table_of("architecture", huggingface::architectures()); }},
      {"tensors", "Tensors of backbones and stages in a checkpoint, with their shapes.", tensor_rows},
      {"metadata", "Metadata of a checkpoint, see mh-checkpoint(5).",
       [] { return meaning_table_of("key", io::kMetadataKeys); }},
      {"training", "Training state in a checkpoint.", [] { return meaning_table_of("key", train::training_keys()); }},
      {"tables", "Tables of --list.", [] { return meaning_table_of("table", tables()); }},
  };
  return all_tables;
}

}  // namespace

const std::vector<std::string>& list_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> table_names;
    for (const NamedTable& table : tables()) table_names.emplace_back(table.name);
    return table_names;
  }();
  return names;
}

void print_list(const std::string& name) {
  for (const NamedTable& table : tables())
    if (name == table.name) print_text(table.text());
}

}  // namespace mh::train_setup
