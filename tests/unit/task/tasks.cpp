// Properties of every registered task that other modules rely on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/config.h"
#include "base/json_types.h"
#include "fixtures/folder.h"
#include "fixtures/models.h"
#include "fixtures/status.h"
#include "fixtures/words.h"
#include "io/record_kind.h"
#include "io/shard.h"
#include "model/load.h"
#include "model/task_head.h"
#include "task/task.h"
#include "task/task_options.h"
#include "text/records/classification.h"
#include "text/records/language_modelling.h"
#include "text/records/masked_words.h"
#include "text/records/questions.h"
#include "text/records/translation.h"
#include "text/tokenizers.h"
#include "text/wordpiece.h"
#include "train/run_config.h"

using namespace mh;

namespace {

constexpr int32_t kFirstWord = 5;  // first token after the special tokens

std::unique_ptr<text::Tokenizer> wordpiece_tokenizer() {
  std::vector<text::Piece> pieces{{"[PAD]", 0}, {"[UNK]", 0}, {"[CLS]", 0}, {"[SEP]", 0}, {"[MASK]", 0}};
  for (int32_t i = kFirstWord; i < 20; ++i) pieces.push_back({str("w", i), 0});
  return text::make_wordpiece_tokenizer(std::move(pieces), {}, "test");
}

std::unique_ptr<text::Tokenizer> word_tokenizer() { return words::word_tokenizer({"a", "b", "c", "d"}); }

using Sequences = std::vector<std::vector<int32_t>>;

// The content of a shard of one record kind, and a model for its task.
struct Sample {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::function<void(io::ShardHeader&)> set_kind;
  Sequences sequences;
  std::string model;  // TOML lines of [model]
};

const char* kBert = "backbone = 'bert'\nbert.segments = 2\nlayers = 1\nwidth = 8\nffn_dim = 8\n";
const char* kSmall = "layers = 1\nwidth = 8\nffn_dim = 8\n";

std::vector<int32_t> bytes(const std::string& text) {
  std::vector<int32_t> numbers;
  for (const char c : text) numbers.push_back(static_cast<unsigned char>(c));
  return numbers;
}

// Returns one sample per record kind, by the name of the kind. A new task needs a sample of its record kind here.
std::map<std::string, Sample> samples() {
  std::map<std::string, Sample> samples;
  const auto kind = [](const char* name) { return [name](io::ShardHeader& h) { h.set_kind(name); }; };
  samples[text::kTextKind] = {word_tokenizer(), kind(text::kTextKind), {{2, 3, 0}, {4, 5, 2, 0}}, kSmall};
  samples[text::kPairsKind] = {word_tokenizer(),
                               kind(text::kPairsKind),
                               {{2, 0}, {3, 0}, {4, 5, 0}, {2, 3, 0}},
                               str("backbone = 'encoder-decoder'\n", kSmall)};
  samples[text::kDocumentsKind] = {wordpiece_tokenizer(),
                                   kind(text::kDocumentsKind),
                                   {{5, 6, 7}, {8, 9}, {}, {10, 11, 12}, {}},
                                   str(kBert, "bert.next_sentence = true\n")};
  const text::ExampleTask task{"any", 1, {"no", "yes"}, 0, 0, {"accuracy", "f1", "matthews"}, "any.tsv"};
  samples[text::kExamplesKind] = {wordpiece_tokenizer(),
                                  [task](io::ShardHeader& h) { text::set_examples_header(h, task); },
                                  {{5, 6}, {}, {1}, {7}, {}, {0}},
                                  str(kBert, "bert.head = 'classes'\nbert.classes = 2\n")};
  const std::string answers_json =
      R"({"id": "q", "impossible": false, "answers": [{"text": "w7", "begin": 3, "end": 5}]})";
  samples[text::kQuestionsKind] = {
      wordpiece_tokenizer(),
      [](io::ShardHeader& h) {
        h.task = R"({"unanswerable": false})";
        h.set_kind(text::kQuestionsKind, {h.vocabulary_size, h.vocabulary_size, 1 << 10, 1 << 10, 256, 256});
      },
      {{5}, {6, 7, 8}, {0, 3, 6}, {2, 5, 8}, bytes("w6 w7 w8"), bytes(answers_json)},
      str(kBert, "bert.head = 'span'\n")};
  return samples;
}

void write_shard(const std::string& path, const Sample& sample) {
  io::ShardHeader header = text::header_of(*sample.tokenizer);
  sample.set_kind(header);
  auto sink = open_sink(path);
  io::ShardWriter writer(*sink, header);
  for (const auto& sequence : sample.sequences) writer.add_sequence(sequence);
  writer.finish();
  sink->close();
}

}  // namespace

TEST_CASE("each task reads a registered record kind that no other task reads", "[tasks]") {
  std::set<std::string> kinds;
  for (const std::string& name : task::tasks().names()) {
    INFO(name);
    const auto task = task::tasks().make(name, "task");
    CHECK(io::record_kind(task->record_kind()) != nullptr);
    CHECK(kinds.insert(task->record_kind()).second);
    CHECK(std::string(task::task_of_kind(task->record_kind(), "t.mhs")->prediction_noun()) == task->prediction_noun());
    CHECK(task->clone()->record_kind() == std::string(task->record_kind()));
  }
  CHECK(status_of([] { task::task_of_kind("other", "t.mhs"); }) == 3);
}

TEST_CASE("all scores have distinct names, and tasks that share a score declare the same label, digits and properties",
          "[tasks]") {
  const std::vector<std::string> names = task::names_of(task::all_scores());
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
  for (const std::string& name : task::tasks().names())
    for (const task::ScoreSpec& score : task::tasks().make(name, "task")->scores()) {
      INFO(name << ", " << score.name);
      CHECK(std::find(names.begin(), names.end(), score.name) != names.end());
      const task::ScoreSpec spec = task::score_spec(score.name);
      CHECK(spec.label == score.label);
      CHECK(spec.digits == score.digits);
      CHECK(spec.needs_decoding == score.needs_decoding);
    }
  CHECK(task::score_spec("loss").label == "loss");
  CHECK(!task::score_spec("loss").needs_decoding);
  CHECK(task::decoded_score_names() == std::vector<std::string>{"bleu"});
}

TEST_CASE("every combination of a backbone and a task head belongs to exactly one task", "[tasks]") {
  for (const std::string& backbone : model::backbones().names())
    for (const std::string& head : model::task_heads().names()) {
      INFO(backbone << ", " << head);
      model::ModelOptions options;
      options.backbone = backbone, options.bert.head = head;
      int num_tasks = 0;
      for (const std::string& name : task::tasks().names())
        num_tasks += task::tasks().make(name, "task")->serves(options);
      CHECK(num_tasks == 1);
    }
}

TEST_CASE("a model with fewer segments than the rows of a shard is refused with both numbers", "[tasks]") {
  task::DatasetOptions options;
  options.bert.segments = 1;
  CHECK(refusal([&] { task::require_segments(1, options, "t.mhs"); }) == "");
  CHECK(refusal([&] { task::require_segments(2, options, "t.mhs"); }) ==
        "model.bert.segments: expected at least 2, since a row of t.mhs has 2 segments; found 1; use a model with "
        "model.bert.segments=2");
  options.bert.segments = 0;
  CHECK(refusal([&] {
          task::require_segments(1, options, "t.mhs");
        }).find("at least 1, since a row of t.mhs has 1 segment;") != std::string::npos);
}

TEST_CASE("evaluation returns a finite loss and only scores that the task names", "[tasks]") {
  const auto all_samples = samples();
  for (const std::string& name : task::tasks().names()) {
    INFO(name);
    const auto task = task::tasks().make(name, "task");
    REQUIRE(all_samples.contains(task->record_kind()));
    const Sample& sample = all_samples.at(task->record_kind());
    const Folder folder;
    write_shard(folder.file("t.mhs"), sample);
    const io::ShardFile shard(folder.file("t.mhs"));
    const auto tokenizers = text::tokenizers_of(shard.header(), shard.name());
    const model::ModelConfig config =
        models::parse_model_config(str("[model]\n", sample.model, "[attention]\nheads = 2\n"));
    REQUIRE(task->serves(config.model));
    auto model = model::build_language_model(config, model::vocabulary_sizes_of(tokenizers), at::kCPU);
    model->parameters().initialise(1);
    const auto dataset = task->open(text::FileRecords(shard), tokenizers, {config.model.bert, 96, 1, false});
    dataset->require_targets();
    dataset->check(*model);
    CHECK(dataset->corpus().num_targets() > 0);
    task::EvaluationOptions options;
    if (task->traits().has_text_order) options.scoring.sequence_length = 4;
    const std::vector<std::string> task_scores = task::names_of(task->scores()),
                                   dataset_scores = dataset->score_names();
    for (const std::string& score : dataset_scores) {
      CHECK(std::find(task_scores.begin(), task_scores.end(), score) != task_scores.end());
      options.metric = score;
      const auto evaluation = dataset->evaluate(*model, options);
      CHECK(std::isfinite(evaluation.loss));
      CHECK(evaluation.num_scored > 0);
      CHECK(std::isfinite(task::score_named(evaluation.scores, score)));
      CHECK(dataset->score(*model, score, options) == task::score_named(evaluation.scores, score));
    }
    // With the metric "loss", evaluation returns only scores that the dataset names.
    options.metric = "loss";
    const auto evaluation = dataset->evaluate(*model, options);
    CHECK(std::isfinite(evaluation.loss));
    for (const auto& [score, value] : evaluation.scores)
      CHECK(std::find(dataset_scores.begin(), dataset_scores.end(), score) != dataset_scores.end());
    const int expected_status = task->record_kind() == std::string(text::kPairsKind) ? 0 : 2;
    CHECK(status_of([&] { dataset->require_pairs("--beam", "t.mhs"); }) == expected_status);
    std::set<std::string> output_files;
    for (const auto& [file, contents] : evaluation.output_files)
      if (!contents().empty()) output_files.insert(file);
    const std::vector<std::string> expected_files = dataset->output_files();
    CHECK(output_files == std::set<std::string>(expected_files.begin(), expected_files.end()));
  }
}

TEST_CASE("options of a task are accepted only for models of that task, and a copy of TaskOptions keeps the options",
          "[tasks]") {
  for (const std::string& name : task::tasks().names()) {
    const auto task = task::tasks().make(name, "task");
    if (std::string(task->section()).empty()) continue;
    INFO(name);
    FieldLister lister;
    lister.section(task->section(), *task);
    REQUIRE(!lister.descriptions().empty());
    const std::string key = lister.descriptions()[0].key;
    const auto read = [&](const model::ModelOptions& model) {
      Config config;
      config.set(str(key, "=", lister.descriptions()[0].value));
      task::TaskOptions options;
      options.read(config, model);
      TomlWriter writer;
      task::TaskOptions(options).describe(writer, model);
      return writer.text();
    };
    CHECK(status_of([&] { read({}); }) == 2);  // default options: a decoder, which does not have this task
    model::ModelOptions model;
    model.backbone = "bert";
    for (const std::string& head : model::task_heads().names())
      if (model.bert.head = head; task->serves(model))
        CHECK(read(model).find(str("[", task->section(), "]")) != std::string::npos);
  }
}
