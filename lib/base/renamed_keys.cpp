#include "base/renamed_keys.h"

#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace mh {

namespace {

// Returns the table from old to new names of keys and sections. The name of a section ends with a dot.
const std::map<std::string, std::string>& new_key_names() {
  static const std::map<std::string, std::string> table{
      {"train.only", "train.trainable"},
      {"train.record", "train.cuda_graph"},
      {"train.batching", "train.batch.order"},
      {"train.block", "train.batch.sequence_length"},
      {"train.batch_tokens", "train.batch.tokens"},
      {"train.batch_rows", "train.batch.rows"},
      {"train.micro_tokens", "train.batch.micro_tokens"},
      {"train.alike", "train.batch.bucket_updates"},
      {"train.long_block", "train.batch.long_sequence_length"},
      {"train.long_from", "train.batch.long_from"},
      {"train.betas", "train.optimizer.betas"},
      {"train.epsilon", "train.optimizer.epsilon"},
      {"train.bias_correction", "train.optimizer.bias_correction"},
      {"train.momentum", "train.optimizer.momentum"},
      {"train.weight_decay", "train.optimizer.weight_decay"},
      {"train.clip", "train.optimizer.clip_norm"},
      {"train.schedule", "train.schedule.rule"},
      {"train.horizon", "train.schedule.length"},
      {"train.decay_from", "train.schedule.decay_from"},
      {"train.warmup", "train.schedule.warmup"},
      {"train.warmup_share", "train.schedule.warmup_ratio"},
      {"train.warmup_lr", "train.schedule.warmup_lr"},
      {"train.min_lr", "train.schedule.min_lr"},
      {"train.period", "train.schedule.period"},
      {"train.period_growth", "train.schedule.period_growth"},
      {"train.period_shrink", "train.schedule.period_shrink"},
      {"train.valid_block", "train.validation.sequence_length"},
      {"train.valid_memory", "train.validation.memory"},
      {"train.validate_every", "train.validation.every"},
      {"train.validate_by", "train.validation.metric"},
      {"train.patience", "train.validation.patience"},
      {"train.min_improvement", "train.validation.min_improvement"},
      {"train.decode.", "train.validation.decode."},
      {"train.save_every", "train.checkpoint.every"},
      {"train.keep", "train.checkpoint.retain"},
      {"train.keep_by", "train.checkpoint.retain_by"},
      {"model.encoder_layers", "model.encoder-decoder.encoder_layers"},
      {"model.shared_embedding", "model.encoder-decoder.shared_embedding"},
      {"model.source_rows", "model.encoder-decoder.source_rows"},
      {"model.memory", "model.transformer-xl.memory"},
      {"model.same_length", "model.transformer-xl.same_length"},
      {"model.initial_memory", "model.transformer-xl.initial_memory"},
      {"model.segments", "model.bert.segments"},
      {"model.embedding_norm", "model.bert.embedding_norm"},
      {"model.head", "model.bert.head"},
      {"model.classes", "model.bert.classes"},
      {"model.labels", "model.bert.labels"},
      {"model.next_sentence", "model.bert.next_sentence"},
      {"model.ffn", "model.ffn_dim"},
      {"model.project_head", "model.first_band_projection"},
      {"mlm.mask_share", "mlm.mask_fraction"},
      {"mlm.short_share", "mlm.short_fraction"},
      {"squad.best", "squad.num_best_answers"},
      {"squad.longest", "squad.max_answer_tokens"},
      {"squad.question", "squad.max_question_tokens"},
      {"train.batch.block", "train.batch.sequence_length"},
      {"train.batch.long_block", "train.batch.long_sequence_length"},
      {"train.validation.block", "train.validation.sequence_length"},
      {"train.procedures.block-coordinate.first", "train.procedures.block-coordinate.first_gate_epoch"}};
  return table;
}

constexpr const char* kEmptyTable = "{}";

// An assignment of this version.
struct NewAssignment {
  const char* name;             // name of the key in the section of the old key
  const char* value = nullptr;  // TOML; null: the old value
};

// The refusal of a value whose meaning differed between earlier versions. In this version a flag in the section of the
// key selects the meaning.
struct AmbiguousValue {
  const char* expected;     // for the message
  const char* new_value;    // TOML; value of the same key in this version
  const char* flag_advice;  // for the message: the flag, and what each of its values means
};

// The replacement of a value of an earlier version.
struct RenamedValue {
  const char* key_pattern;  // key of the value; `*` matches any number of names, or none
  const char* old_value;    // TOML; null: any value
  std::vector<NewAssignment> new_assignments;
  std::optional<AmbiguousValue> refusal = {};
  const char* section_type = nullptr;  // type of the section, as returned by type_of_section(); null: any type
};

// Returns the table of renamed values, and of renamed keys in the sections of all attention layers. The first row that
// matches an assignment applies.
const std::vector<RenamedValue>& renamed_values() {
  // In earlier versions `adam` and `adamw` named the same update rule, but only `adam` decayed norms and biases.
  static const AmbiguousValue ambiguous_adam{
      "the rule adamw, sgd or nag", "\"adamw\"",
      "decay_norms_and_biases = true to decay all parameters (adam of earlier versions) or false to leave norms and "
      "biases out (adamw of earlier versions)"};
  static const std::vector<RenamedValue> table{
      {"train.optimizer", "\"adam\"", {{"optimizer.rule", "\"adamw\""}, {"optimizer.decay_norms_and_biases", "true"}}},
      {"train.optimizer", "\"adamw\"", {{"optimizer.rule"}, {"optimizer.decay_norms_and_biases", "false"}}},
      {"train.optimizer", nullptr, {{"optimizer.rule"}, {"optimizer.decay_norms_and_biases", "true"}}},
      {"train.groups.*.optimizer", "\"adam\"", {{"rule", "\"adamw\""}, {"decay_norms_and_biases", "true"}}},
      {"train.groups.*.optimizer", "\"adamw\"", {{"rule"}, {"decay_norms_and_biases", "false"}}},
      {"train.groups.*.optimizer", nullptr, {{"rule"}, {"decay_norms_and_biases", "true"}}},
      {"train.optimizer.rule", "\"adam\"", {}, ambiguous_adam},
      {"train.groups.*.rule", "\"adam\"", {}, ambiguous_adam},
      {"attention.*.mae.of", nullptr, {{"original_heads"}}},
      {"attention.*.mae.kept", nullptr, {{"kept_heads"}}},
      {"attention.*.mixture-of-heads.of", nullptr, {{"original_heads"}}},
      {"attention.*.mixture-of-heads.kept", nullptr, {{"kept_heads"}}},
      {"attention.*.distances", "\"true\"", {{"distances", "\"exact\""}}},
      {"attention.*.mixhead-a.dropout", "\"before\"", {{"dropout_before_mixing", "true"}}},
      {"attention.*.mixhead-a.dropout", "\"after\"", {{"dropout_before_mixing", "false"}}},
      {"attention.*.mixhead-a.on", nullptr, {{"mixer_input"}}},
      {"attention.*.mixhead-b.dropout", "\"before\"", {{"dropout_before_mixing", "true"}}},
      {"attention.*.mixhead-b.dropout", "\"after\"", {{"dropout_before_mixing", "false"}}},
      {"attention.*.mixhead-b.on", nullptr, {{"mixer_input"}}},
      {"attention.*.talking-heads.inside", nullptr, {{"inner_heads"}}},
      {"attention.*.mae.drop", nullptr, {{"omitted_heads"}}},
      {"attention.*.mixture-of-heads.shared", nullptr, {{"shared_heads"}}},
      {"attention.*.mixture-of-heads.chosen", nullptr, {{"chosen_heads"}}},
      {"train.regularisers.*.of", nullptr, {{"property"}}, {}, "disagreement"},
      {"train.regularisers.*.of", nullptr, {{"matrix_source"}}, {}, "orthogonal-mixing"},
      {"train.regularisers.*.of", nullptr, {{"subspace"}}, {}, "subspace-overlap"}};
  return table;
}

// Returns whether the key matches the pattern. The dots before and after `*` may be the same dot of the key.
bool matches_key(const std::string& key, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return key == pattern;
  return key.starts_with(pattern.substr(0, star)) && key.ends_with(pattern.substr(star + 1));
}

// Returns the value of the key `type` in the section, or else the last name of the section. `section` ends with a dot.
std::string type_of_section(const std::string& section, const FindValue& find_value) {
  const std::string quoted_type = find_value(section + "type");
  if (quoted_type.size() > 2) return quoted_type.substr(1, quoted_type.size() - 2);
  const std::string path = section.substr(0, section.size() - 1);
  return path.substr(path.rfind('.') + 1);
}

}  // namespace

std::vector<Assignment> convert_renamed(const Assignment& assignment, const std::string& origin,
                                        const FindValue& find_value) {
  const std::string section = assignment.key.substr(0, assignment.key.rfind('.') + 1);
  if (assignment.text == kEmptyTable) {
    const auto it = new_key_names().find(assignment.key + ".");
    return {
        {it == new_key_names().end() ? assignment.key : it->second.substr(0, it->second.size() - 1), assignment.text}};
  }
  for (const RenamedValue& row : renamed_values()) {
    if (!matches_key(assignment.key, row.key_pattern)) continue;
    if (row.old_value != nullptr && assignment.text != row.old_value) continue;
    if (row.section_type != nullptr && type_of_section(section, find_value) != row.section_type) continue;
    if (row.refusal)
      refuse_usage(
          origin, row.refusal->expected, assignment.key + " = " + assignment.text,
          str("set ", assignment.key, " = ", row.refusal->new_value, ", and ", section, row.refusal->flag_advice));
    std::vector<Assignment> assignments;
    for (const auto& [name, value] : row.new_assignments)
      assignments.push_back({section + name, value != nullptr ? value : assignment.text});
    return assignments;
  }
  if (const auto it = new_key_names().find(assignment.key); it != new_key_names().end())
    return {{it->second, assignment.text}};
  if (const auto it = new_key_names().find(section); it != new_key_names().end())
    return {{it->second + assignment.key.substr(section.size()), assignment.text}};
  return {assignment};
}

std::string key_of_foreign_name(const std::string& name) {
  static const std::map<std::string, std::string> keys{{"learning_rate", "train.lr"},
                                                       {"batch_size", "train.batch.rows"},
                                                       {"max_tokens", "train.batch.tokens"},
                                                       {"max_steps", "train.length"},
                                                       {"max_update", "train.length"},
                                                       {"epochs", "train.length"},
                                                       {"num_train_epochs", "train.length"},
                                                       {"warmup_steps", "train.schedule.warmup"},
                                                       {"warmup_updates", "train.schedule.warmup"},
                                                       {"max_grad_norm", "train.optimizer.clip_norm"},
                                                       {"hidden_size", "model.width"},
                                                       {"d_model", "model.width"},
                                                       {"num_hidden_layers", "model.layers"},
                                                       {"num_layers", "model.layers"},
                                                       {"intermediate_size", "model.ffn_dim"},
                                                       {"num_attention_heads", "attention.heads"},
                                                       {"num_heads", "attention.heads"},
                                                       {"num_key_value_heads", "attention.key_value_heads"}};
  const auto it = keys.find(name);
  return it == keys.end() ? "" : it->second;
}

std::string new_option_name(const std::string& option) {
  static const std::map<std::string, std::string> new_names{{"--block", "--sequence-length"},
                                                            {"--missing-share", "--missing-fraction"}};
  const auto it = new_names.find(option);
  return it == new_names.end() ? "" : it->second;
}

}  // namespace mh
