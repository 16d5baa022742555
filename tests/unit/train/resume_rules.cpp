// The options that may change when a run is resumed. The test changes the value of each configuration key in turn.
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "train/resume.h"

using namespace mh;
using namespace mh::train;

namespace {

// Keys that a resume may change. Keys that are neither here nor in kChangeableWithoutValidationSet, and do not start
// with kDecoding, are fixed.
const std::set<std::string> kChangeable{"data.train",
                                        "data.valid",
                                        "data.valid_tokens",
                                        "train.length",
                                        "train.schedule.length",
                                        "train.attention_path",
                                        "train.recompute",
                                        "train.cuda_graph",
                                        "train.batch.micro_tokens",
                                        "train.lr",
                                        "train.optimizer.betas",
                                        "train.optimizer.epsilon",
                                        "train.optimizer.bias_correction",
                                        "train.optimizer.momentum",
                                        "train.optimizer.weight_decay",
                                        "train.optimizer.clip_norm",
                                        "train.label_smoothing",
                                        "train.schedule.rule",
                                        "train.schedule.decay_from",
                                        "train.schedule.warmup",
                                        "train.schedule.warmup_ratio",
                                        "train.schedule.warmup_lr",
                                        "train.schedule.min_lr",
                                        "train.schedule.period",
                                        "train.schedule.period_growth",
                                        "train.schedule.period_shrink",
                                        "train.schedule.restart",
                                        "train.schedule.restart_warmup",
                                        "train.validation.every",
                                        "train.checkpoint.every",
                                        "train.log_every",
                                        "train.timeout",
                                        "train.shard",
                                        "train.checkpoint.retain",
                                        "train.checkpoint.retain_by",
                                        "train.validation.patience",
                                        "train.validation.min_improvement"};
// Keys that a resume may change only in a run without a validation set. The same holds for keys that start with
// kDecoding.
const std::set<std::string> kChangeableWithoutValidationSet{"data.valid_checksum", "train.validation.sequence_length",
                                                            "train.validation.memory", "train.validation.metric"};
const std::string kDecoding = "train.validation.decode.";

ResumeRule resume_rule_of(const std::string& key) {
  if (kChangeable.count(key) > 0) return ResumeRule::changeable;
  return kChangeableWithoutValidationSet.count(key) > 0 || key.rfind(kDecoding, 0) == 0
             ? ResumeRule::fixed_with_validation_set
             : ResumeRule::fixed;
}

RunConfig read_run(const std::string& toml) {
  Config config;
  config.load_text(toml, "test");
  return RunConfig::read(config);
}

// Returns configurations that together contain all keys.
std::vector<std::string> all_run_tomls() {
  const std::string groups = "[train.groups.NAME]\nmatch = ['*']\n";
  std::vector<std::string> tomls{groups, groups + "rule = 'adamw'\n"};
  for (const char* backbone_lines :
       {"encoder-decoder'\n", "transformer-xl'\npositions = 'none'\n", "bert'\nbert.head = 'classes'\n",
        "bert'\nbert.head = 'words'\n", "bert'\nbert.head = 'span'\n"})
    tomls.push_back(str("[model]\nbackbone = '", backbone_lines));
  const auto add_stages = [&](const char* key, const std::vector<std::string>& names) {
    for (const std::string& name : names) tomls.push_back(str("[attention]\n", key, " = '", name, "'\n"));
  };
  tomls.push_back("[attention]\nkey_value_heads = 2\n");  // attention.group_sizes needs groups
  for (const std::string& name : attention::transforms().names())
    tomls.push_back(str("[attention]\ntransform = ['", name, "']\n"));
  add_stages("pairing", attention::pairings().names());
  add_stages("score", attention::scores().names());
  add_stages("position_bias", attention::position_biases().names());
  add_stages("normaliser", attention::normalisers().names());
  add_stages("mixer", attention::mixers().names());
  add_stages("combiner", attention::combiners().names());
  for (const std::string& name : regularisers().names()) tomls.push_back(str("[train.regularisers.", name, "]\n"));
  // A section whose type can change, since head-balance has the same options as hard-concrete-penalty.
  tomls.push_back("[train.regularisers.NAME]\ntype = 'hard-concrete-penalty'\n");
  for (const std::string& name : procedures().names()) tomls.push_back(str("[train.procedures.", name, "]\n"));
  return tomls;
}

// Returns TOML values of the field's type, as candidates to replace `value`; some may be invalid.
std::vector<std::string> candidate_values(const FieldDescription& field, const std::string& value) {
  if (field.type == "true/false") return {value == "true" ? "false" : "true"};
  if (field.type == "length") return {"'7u'", "'9u'"};
  if (field.type == "integers") return {"[5]", "[7]", "[5, 3]"};
  if (field.type == "numbers") return {"[0.5, 0.25]", "[0.25, 0.5]"};
  if (field.type == "texts") return {"['x']", "['y']", "['qk-norm']"};
  if (field.type == "number") return {"0.5", "0.25", "1.0", "1.5", "-0.5", "-0.25"};
  if (field.type == "integer") {
    const int64_t n = std::stoll(value);
    return {str(2 * n), str(n + 1), str(n - 1), str(n + 4)};
  }
  std::vector<std::string> texts{"'x'"};
  for (const std::string& choice : field.choices) texts.push_back("'" + choice + "'");
  for (const std::string& name : regularisers().names()) texts.push_back("'" + name + "'");
  return texts;
}

// Returns the run with another value of the field in line `index`; nullopt if no candidate gives a valid, different
// run.
std::optional<RunConfig> change_field(std::vector<std::string> lines, size_t index, const FieldDescription& field) {
  const size_t equals = lines[index].find(" = ");
  const std::string value = lines[index].substr(equals + 3), assignment = lines[index].substr(0, equals + 3);
  const std::string original = read_run(join(lines, "\n")).toml();
  for (const std::string& candidate : candidate_values(field, value)) {
    lines[index] = assignment + candidate;
    try {
      RunConfig run = read_run(join(lines, "\n"));
      if (run.toml() != original) return run;
    } catch (const Error&) {  // the candidate is invalid in this run
    }
  }
  return std::nullopt;
}

// Returns whether require_same_run() accepts the run as a resume of the configuration `stored_toml`. If it does not,
// checks that its error names the key.
bool resume_accepts(const RunConfig& run, const std::string& stored_toml, const std::string& key) {
  try {
    require_same_run(run, stored_toml, "config.toml");
    return true;
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(error.exit() == Exit::usage);
    CHECK(std::string(error.what()).find(key + ": ") != std::string::npos);
    return false;
  }
}

}  // namespace

TEST_CASE("resume accepts changes of exactly the listed options, and its error on any other change names the option",
          "[resume]") {
  std::map<std::string, FieldDescription> fields;
  for (const auto& field : all_keys()) fields.emplace(field.key, field);
  std::set<std::string> tested_keys;
  for (const bool has_validation_set : {false, true})
    for (const std::string& keys : all_run_tomls()) {
      const std::string common_toml =
          str("[data]\nweights = [1.0]\n",
              has_validation_set ? "valid_checksum = 'a'\n[train]\nvalidation.metric = 'bleu'\n" : "");
      const std::string stored_toml = read_run(common_toml + keys).toml();
      const std::vector<std::string> lines = split(stored_toml, '\n');
      std::string section;
      for (size_t i = 0; i < lines.size(); ++i) {
        const size_t equals = lines[i].find(" = ");
        if (!lines[i].empty() && lines[i][0] == '[') section = lines[i].substr(1, lines[i].size() - 2) + ".";
        const auto field = fields.find(section + lines[i].substr(0, equals));
        if (equals == std::string::npos || field == fields.end()) continue;
        const std::string& key = field->first;
        if (tested_keys.count(str(key, has_validation_set)) > 0) continue;
        const std::optional<RunConfig> run = change_field(lines, i, field->second);
        if (!run) continue;
        tested_keys.insert(str(key, has_validation_set));
        INFO(key << (has_validation_set ? ", of a run with a validation set" : ""));
        const ResumeRule rule = resume_rule_of(key);
        CHECK(field->second.resume_rule == rule);
        const bool expected =
            rule == ResumeRule::changeable || (rule == ResumeRule::fixed_with_validation_set && !has_validation_set);
        CHECK(resume_accepts(*run, stored_toml, key) == expected);
      }
    }
  for (const auto& [key, field] : fields) {
    INFO(key);
    CHECK(tested_keys.count(key + "0") + tested_keys.count(key + "1") == 2);
  }
}

TEST_CASE("a schedule without a length depends on train.length through decay, warm-up ratio and regularisers",
          "[resume]") {
  const auto depends = [](const std::string& train) { return depends_on_length(read_run("[train]\n" + train)); };
  for (const char* rule : {"constant", "inverse-sqrt", "cosine", "linear", "cyclic-cosine"}) {
    INFO(rule);
    const std::string schedule = str("schedule.rule = '", rule, "'\nschedule.period = '4u'\n");
    CHECK(depends(schedule) == (rule == std::string("linear")));
    CHECK(depends(schedule + "schedule.warmup_ratio = 0.1\n"));
    CHECK_FALSE(depends(schedule + "schedule.warmup_ratio = 0.1\nschedule.length = '8u'\n"));
    // The warm-up is then a fraction of the first schedule, which ends at the restart.
    CHECK(depends(schedule + "schedule.warmup_ratio = 0.1\nschedule.restart = '6u'\n") ==
          (rule == std::string("linear")));
  }
  CHECK(depends("schedule.rule = 'cosine'\n"));
  CHECK(depends("[train.regularisers.nuclear-growth]\nstart = 0.5\n"));
  CHECK_FALSE(depends("[train.regularisers.nuclear-growth]\nstart = 0.0\n"));
}
