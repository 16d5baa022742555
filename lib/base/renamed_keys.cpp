#include "base/renamed_keys.h"

#include <map>

#include "base/error.h"

namespace mh {

namespace {

// Returns the table from old to present names of keys, and of sections, which end with a dot.
const std::map<std::string, std::string>& present_names() {
  static const std::map<std::string, std::string> table{
      {"train.only", "train.trainable"},
      {"train.record", "train.cuda_graph"},
      {"train.batching", "train.batch.order"},
      {"train.block", "train.batch.block"},
      {"train.batch_tokens", "train.batch.tokens"},
      {"train.batch_rows", "train.batch.rows"},
      {"train.micro_tokens", "train.batch.micro_tokens"},
      {"train.alike", "train.batch.bucket_updates"},
      {"train.long_block", "train.batch.long_block"},
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
      {"train.valid_block", "train.validation.block"},
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
      {"model.next_sentence", "model.bert.next_sentence"}};
  return table;
}

const std::string kAdam = "\"adam\"", kAdamW = "\"adamw\"", kEmptyTable = "{}";

// Returns whether `key` starts with `section` and ends with a dot and `name`.
bool matches_key(const std::string& key, const std::string& section, const std::string& name) {
  return key.starts_with(section) && key.ends_with("." + name);
}

// Converts the optimiser names of earlier versions, where adam and adamw were one update rule, with and without decay
// of norms and biases.
std::vector<Assignment> convert_optimizer_name(const std::string& section, const std::string& text) {
  return {{section + "rule", text == kAdam ? kAdamW : text},
          {section + "decay_norms_and_biases", text == kAdamW ? "false" : "true"}};
}

}  // namespace

std::vector<Assignment> convert_renamed(const Assignment& assignment, const std::string& origin) {
  const std::string section = assignment.key.substr(0, assignment.key.rfind('.') + 1);
  if (assignment.text == kEmptyTable) {
    const auto it = present_names().find(assignment.key + ".");
    return {
        {it == present_names().end() ? assignment.key : it->second.substr(0, it->second.size() - 1), assignment.text}};
  }
  if (assignment.key == "train.optimizer") return convert_optimizer_name("train.optimizer.", assignment.text);
  if (matches_key(assignment.key, "train.groups.", "optimizer"))
    return convert_optimizer_name(section, assignment.text);
  if ((assignment.key == "train.optimizer.rule" || matches_key(assignment.key, "train.groups.", "rule")) &&
      assignment.text == kAdam)
    throw Error(Exit::usage,
                Problem{origin, "the rule adamw, sgd or nag", assignment.key + " = " + assignment.text,
                        str("set ", assignment.key, " = ", kAdamW, ", and ", section,
                            "decay_norms_and_biases = true to decay all parameters (adam of earlier versions) or false "
                            "to leave norms and biases out (adamw of earlier versions)")});
  for (const char* stage : {"mae", "mixture-of-heads"}) {
    if (matches_key(assignment.key, "attention.", str(stage, ".of")))
      return {{section + "original_heads", assignment.text}};
    if (matches_key(assignment.key, "attention.", str(stage, ".kept")))
      return {{section + "kept_heads", assignment.text}};
  }
  if (matches_key(assignment.key, "attention.", "distances") && assignment.text == "\"true\"")
    return {{assignment.key, "\"exact\""}};
  if (const auto it = present_names().find(assignment.key); it != present_names().end())
    return {{it->second, assignment.text}};
  if (const auto it = present_names().find(section); it != present_names().end())
    return {{it->second + assignment.key.substr(section.size()), assignment.text}};
  return {assignment};
}

}  // namespace mh
