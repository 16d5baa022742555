// Tests of batches of examples, which are input sequences with special tokens and targets: padding, shuffling,
// micro-batches, length bucketing, gradients, evaluation, and partial load.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "data/shared_batches.h"
#include "fixtures/corpora.h"
#include "fixtures/folder.h"
#include "fixtures/models.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "model/partial_load.h"
#include "task/task.h"
#include "text/records/masked_words.h"
#include "text/records/shard_records.h"
#include "text/tokenizers.h"
#include "text/wordpiece.h"
#include "train/batches.h"
#include "train/run_batches.h"

using namespace mh;

namespace {

// A source of examples in which every token of row r is r + 1. Epoch 0 has one row for each element of `lengths`. Each
// later epoch has `growth` more rows than the previous epoch and, unless `growth` is 0, rows that are one token longer.
class SyntheticRows : public data::ExampleSource {
 public:
  SyntheticRows(std::vector<int64_t> lengths, const std::string& head, int64_t growth = 0)
      : lengths_(std::move(lengths)), head_type_(head), growth_(growth) {}
  int64_t num_rows(int64_t epoch) const override { return static_cast<int64_t>(lengths_.size()) + epoch * growth_; }
  int64_t length(int64_t epoch, int64_t row) const override {
    return lengths_[static_cast<size_t>(row) % lengths_.size()] + (growth_ != 0 ? epoch : 0);
  }
  text::Example make(int64_t epoch, int64_t row) const override {
    text::Example e;
    e.tokens.assign(static_cast<size_t>(length(epoch, row)), static_cast<int32_t>(row + 1));
    e.first_segment_length = static_cast<int32_t>(e.tokens.size() / 2);
    if (head_type_ == "words") {
      e.targets.assign(e.tokens.size(), -1);
      e.targets[0] = row % 2;
      for (size_t t = 1; t < e.tokens.size(); t += 2) e.targets[t] = static_cast<int64_t>(t);
    } else if (head_type_ == "span") {
      e.targets = {1, 2};
    } else {
      e.targets = {row % 3};
    }
    return e;
  }
  bool needs_lengths() const override { return head_type_ == "span"; }
  // Targets of make(): the next-sentence class at token 0, and a word at every second token from token 1 on.
  double next_sentence_weight(int64_t epoch, std::span<const int64_t> update_rows) const override {
    if (head_type_ != "words") return 1;
    int64_t num_words = 0;
    for (const int64_t row : update_rows) num_words += length(epoch, row) / 2;
    return static_cast<double>(num_words) / static_cast<double>(update_rows.size());
  }

 private:
  std::vector<int64_t> lengths_;
  std::string head_type_;
  int64_t growth_;
};

// A source that records the rows it makes.
class RecordedRows : public SyntheticRows {
 public:
  using SyntheticRows::SyntheticRows;
  text::Example make(int64_t epoch, int64_t row) const override {
    made_rows.push_back(row);
    return SyntheticRows::make(epoch, row);
  }
  mutable std::vector<int64_t> made_rows;
};

data::Examples examples(std::vector<int64_t> lengths, const std::string& head, int64_t growth = 0,
                        int32_t padding = 0) {
  return data::Examples(std::make_shared<SyntheticRows>(std::move(lengths), head, growth), padding);
}

train::TrainOptions train_options(int64_t rows) {
  train::TrainOptions options;
  options.batch.sequence_length = 64, options.batch.rows = rows, options.batch.tokens = 64;
  return options;
}

// Returns the row numbers of an update in the order of its micro-batches; a row number is the first token of the row
// minus 1.
std::vector<int64_t> rows_of(train::Batches& batches, int64_t update) {
  std::vector<int64_t> rows;
  for (const auto& micro_batch : batches.micro_batches(update)) {
    const data::Batch batch = batches.load(update, micro_batch);
    for (int64_t b = 0; b < micro_batch.num_rows; ++b) rows.push_back(batch.input.tokens[b][0].item<int64_t>() - 1);
  }
  return rows;
}

// Returns the minimum cost over all divisions of rows, in order, into consecutive micro-batches. `widths`: tokens of
// each row, in descending order. A micro-batch costs data::kMicroBatchCost plus its tokens including padding, and 2^20
// more if it has several rows and more than `micro_tokens` tokens (0: no limit).
int64_t min_split_cost(const std::vector<int64_t>& widths, int64_t micro_tokens) {
  const auto num_rows = static_cast<int64_t>(widths.size());
  int64_t min_cost = INT64_MAX;
  for (uint32_t split_mask = 0; split_mask < 1U << (num_rows - 1); ++split_mask) {
    int64_t cost = 0, first = 0;
    for (int64_t row = 1; row <= num_rows; ++row) {
      if (row < num_rows && (split_mask >> (row - 1) & 1U) == 0) continue;
      const int64_t tokens = widths[static_cast<size_t>(first)] * (row - first);
      if (micro_tokens > 0 && tokens > micro_tokens && row > first + 1) cost += 1 << 20;
      cost += data::kMicroBatchCost + tokens;
      first = row;
    }
    min_cost = std::min(min_cost, cost);
  }
  return min_cost;
}

}  // namespace

TEST_CASE("examples are padded to the longest example of their batch", "[examples]") {
  for (const char* head : {"words", "classes", "span"}) {
    const data::Examples corpus = examples({4, 6}, head, 0, 9);
    const std::vector<text::Example> examples_of_batch{corpus.source().make(0, 0), corpus.source().make(0, 1)};
    const data::Batch batch = data::load_examples(corpus, examples_of_batch);
    CHECK(batch.input.tokens.equal(at::tensor({1, 1, 1, 1, 9, 9, 2, 2, 2, 2, 2, 2}, at::kLong).view({2, 6})));
    CHECK(batch.input.segments.equal(at::tensor({0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1}, at::kLong).view({2, 6})));
    CHECK(batch.input.lengths.encoder.equal(at::tensor({4, 6}, at::kLong)));
    if (std::string(head) == "words")
      CHECK(batch.targets.equal(at::tensor({0, 1, -1, 3, -1, -1, 1, 1, -1, 3, -1, 5}, at::kLong).view({2, 6})));
    if (std::string(head) == "classes") CHECK(batch.targets.equal(at::tensor({0, 1}, at::kLong).view({2, 1})));
    if (std::string(head) == "span")
      CHECK(batch.targets.equal(at::tensor({1, 2, -4, 1, 2, -6}, at::kLong).view({2, 3})));
  }
}

TEST_CASE("every example is in exactly one update per epoch, and the split into micro-batches has the minimum cost",
          "[examples]") {
  CHECK(rc::check([] {
    const auto lengths = *rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(2, 65)));
    train::TrainOptions options = train_options(*rc::gen::inRange<int64_t>(1, 12));
    options.batch.micro_tokens = *rc::gen::element<int64_t>(0, 64, 200);
    const auto corpus = examples(lengths, "classes");
    const auto batches = corpora::make_batches(corpus, options), same_batches = corpora::make_batches(corpus, options);
    std::vector<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<int64_t> order;
      for (int64_t u = 0; u < batches->updates_per_epoch(); ++u) {
        const int64_t update = epoch * batches->updates_per_epoch() + u;
        int64_t num_rows = 0, previous_width = 1 << 20, cost = 0;
        std::vector<int64_t> widths;
        for (const auto& micro_batch : batches->micro_batches(update)) {
          RC_ASSERT(micro_batch.first_row == num_rows);
          const data::Batch batch = batches->load(update, micro_batch);
          const int64_t width = batch.input.tokens.size(1);
          RC_ASSERT(options.batch.micro_tokens == 0 || width * micro_batch.num_rows <= options.batch.micro_tokens);
          RC_ASSERT(width <= previous_width);  // micro-batches are in order of falling width
          widths.insert(widths.end(), static_cast<size_t>(micro_batch.num_rows), 0);
          for (int64_t b = 0; b < micro_batch.num_rows; ++b)
            widths[static_cast<size_t>(micro_batch.first_row + b)] = batch.input.lengths.encoder[b].item<int64_t>();
          cost += data::kMicroBatchCost + width * micro_batch.num_rows;
          RC_ASSERT(batch.input.lengths.encoder.max().item<int64_t>() == width);
          previous_width = width, num_rows += micro_batch.num_rows;
        }
        RC_ASSERT(cost == min_split_cost(widths, options.batch.micro_tokens));
        const auto rows_of_update = rows_of(*batches, update);
        RC_ASSERT(static_cast<int64_t>(rows_of_update.size()) == num_rows);
        RC_ASSERT(num_rows == options.batch.rows || u + 1 == batches->updates_per_epoch());
        RC_ASSERT(rows_of_update == rows_of(*same_batches, update));
        order.insert(order.end(), rows_of_update.begin(), rows_of_update.end());
      }
      RC_ASSERT(std::set<int64_t>(order.begin(), order.end()).size() == lengths.size());
      RC_ASSERT(order.size() == lengths.size());
      orders.push_back(order);
    }
    if (lengths.size() > 20) RC_ASSERT(orders[0] != orders[1]);
  }));
}

TEST_CASE("with length bucketing, the updates of a bucket have length ranges that overlap in at most one length",
          "[examples]") {
  CHECK(rc::check([] {
    const auto lengths = *rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(2, 65)));
    train::TrainOptions options = train_options(*rc::gen::inRange<int64_t>(1, 6));
    options.batch.bucket_updates = *rc::gen::inRange<int64_t>(2, 5);
    const auto batches = corpora::make_batches(examples(lengths, "classes"), options);
    const int64_t num_updates = batches->updates_per_epoch();
    std::set<int64_t> rows;
    for (int64_t first = 0; first < num_updates; first += options.batch.bucket_updates) {
      std::vector<std::pair<int64_t, int64_t>> ranges;
      for (int64_t u = first; u < std::min(num_updates, first + options.batch.bucket_updates); ++u) {
        std::pair<int64_t, int64_t> range{1 << 20, 0};
        const auto rows_of_update = rows_of(*batches, u);
        for (int64_t row : rows_of_update) {
          const int64_t length = lengths[static_cast<size_t>(row)];
          range = {std::min(range.first, length), std::max(range.second, length)};
        }
        rows.insert(rows_of_update.begin(), rows_of_update.end());
        RC_ASSERT(static_cast<int64_t>(rows_of_update.size()) == options.batch.rows || u + 1 == num_updates);
        ranges.push_back(range);
      }
      std::sort(ranges.begin(), ranges.end());
      for (size_t i = 1; i < ranges.size(); ++i) RC_ASSERT(ranges[i - 1].second <= ranges[i].first);
    }
    RC_ASSERT(rows.size() == lengths.size());
  }));
  // The order of the updates of a bucket differs between epochs.
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 40; ++i) lengths.push_back(2 + i);
  train::TrainOptions options = train_options(4);
  options.batch.bucket_updates = 10;
  const auto batches = corpora::make_batches(examples(lengths, "classes"), options);
  std::vector<std::vector<int64_t>> orders(2);
  for (int64_t u = 0; u < 20; ++u) orders[static_cast<size_t>(u / 10)].push_back(rows_of(*batches, u)[0]);
  CHECK(orders[0] != orders[1]);
  std::sort(orders[0].begin(), orders[0].end());
  CHECK(orders[0] == std::vector<int64_t>{3, 7, 11, 15, 19, 23, 27, 31, 35, 39});
}

TEST_CASE("every epoch has as many rows as epoch 0, even if the source of examples has more or fewer", "[examples]") {
  for (const int64_t growth : {1, -1}) {
    const auto batches = corpora::make_batches(examples({5, 6, 7, 8, 9}, "classes", growth), train_options(2));
    REQUIRE(batches->updates_per_epoch() == 3);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> order;
      for (int64_t u = 0; u < 3; ++u)
        for (int64_t row : rows_of(*batches, 3 * epoch + u)) order.push_back(row);
      CHECK(order.size() == 5);
      const std::set<int64_t> distinct_rows(order.begin(), order.end());
      CHECK(static_cast<int64_t>(distinct_rows.size()) == std::min<int64_t>(5, 5 + epoch * growth));
    }
  }
}

TEST_CASE("the loss weight of a next-sentence target is the mean number of predicted words per row of the update",
          "[examples]") {
  train::TrainOptions options = train_options(3);
  const auto batches = corpora::make_batches(examples({5, 9, 120}, "words"), options);
  const auto micro_batches = batches->micro_batches(0);
  REQUIRE(micro_batches.size() > 1);
  for (const auto& micro_batch : micro_batches)
    CHECK(batches->load(0, micro_batch).next_sentence_weight == (2 + 4 + 60) / 3.0);
}

TEST_CASE("a process makes only the rows of the micro-batches that it loads, each once", "[examples]") {
  const auto source = std::make_shared<RecordedRows>(std::vector<int64_t>{5, 9, 120, 7, 60, 33, 8}, "words");
  std::set<int64_t> rows_of_all;
  for (const int rank : {0, 1, 2}) {
    const auto batches =
        data::share_batches(corpora::make_batches(data::Examples(source), train_options(7)), rank, 3, false);
    source->made_rows.clear();
    batches->row_costs(0);
    const auto micro_batches = batches->micro_batches(0);
    batches->describe_rows(0);
    CHECK(source->made_rows.empty());
    for (const auto& micro_batch : micro_batches) batches->load(0, micro_batch);
    CHECK(static_cast<int64_t>(source->made_rows.size()) == batches->own_rows(0).num_rows);
    rows_of_all.insert(source->made_rows.begin(), source->made_rows.end());
  }
  CHECK(rows_of_all.size() == 7);
}

TEST_CASE("the length of training on examples may be in updates or epochs, not in tokens", "[examples]") {
  const auto batches = corpora::make_batches(examples({5, 6, 7, 8, 9}, "classes"), train_options(2));
  CHECK(batches->to_updates({7, Length::Unit::updates}) == 7);
  CHECK(batches->to_updates({2, Length::Unit::epochs}) == 6);
  CHECK(refusal([&] {
          batches->to_updates({7, Length::Unit::tokens, "--set train.log_every"});
        }).find("--set train.log_every: expected a number of updates or epochs") != std::string::npos);
  CHECK(status_of([] { corpora::make_batches(examples({}, "classes"), train_options(2)); }) == 3);
}

TEST_CASE("without data, a length in tokens is converted for texts, unknown for pairs and refused for examples",
          "[examples]") {
  const auto updates = [](const char* backbone, const Length& length) {
    train::RunConfig run;
    run.model.model.backbone = backbone;
    run.train.batch.sequence_length = 16, run.train.batch.tokens = 64;
    return train::length_to_updates(length, run, nullptr);
  };
  for (const char* backbone : {"decoder", "encoder-decoder", "bert"}) {
    INFO(backbone);
    CHECK(updates(backbone, {7, Length::Unit::updates}) == 7);
    CHECK(updates(backbone, {7, Length::Unit::epochs}) == 0);
  }
  const Length length_in_tokens{1000, Length::Unit::tokens};
  CHECK(updates("decoder", length_in_tokens) == 16);
  CHECK(updates("encoder-decoder", length_in_tokens) == 0);
  CHECK(refusal([&] { updates("bert", length_in_tokens); }).find("updates or epochs") != std::string::npos);
}

namespace {

const char* const kBertConfig =
    "[model]\nbackbone = 'bert'\nnorm = 'post'\nlayers = 2\nwidth = 16\nffn_dim = 24\nbert.segments = "
    "2\nbert.embedding_norm = "
    "true\n";

// Writes a shard of documents over a vocabulary of 30 entries. `documents`: number of words, by document and sentence.
void write_documents(const std::string& path, const std::vector<std::vector<size_t>>& documents) {
  std::vector<text::Piece> pieces{{"[PAD]", 0}, {"[UNK]", 0}, {"[CLS]", 0}, {"[SEP]", 0}, {"[MASK]", 0}};
  for (int i = 5; i < 30; ++i) pieces.push_back({str("w", i), 0});
  const auto tokenizer = text::make_wordpiece_tokenizer(std::move(pieces), {}, "test");
  io::ShardHeader header = text::header_of(*tokenizer);
  header.set_kind(text::kDocumentsKind);
  auto sink = open_sink(path);
  io::ShardWriter writer(*sink, header);
  int32_t word = 0;  // the words of all sentences in turn
  for (const auto& document : documents) {
    for (const size_t length : document) {
      std::vector<int32_t> sentence(length);
      for (int32_t& token : sentence) token = 5 + word++ % 25;
      writer.add_sequence(sentence);
    }
    writer.add_sequence({});
  }
  writer.finish();
  sink->close();
}

}  // namespace

TEST_CASE("the gradient of an update of examples does not depend on its split into micro-batches", "[examples]") {
  for (const char* head :
       {"bert.next_sentence = true\n", "bert.head = 'classes'\nbert.classes = 3\n", "bert.head = 'span'\n"}) {
    const auto config = models::parse_model_config(str(kBertConfig, head, "[attention]\nheads = 4\n"));
    const auto corpus = examples({40, 41, 42, 40, 41, 5, 6}, config.model.bert.head);
    std::vector<at::Tensor> gradients[2];
    int64_t operations = 0;  // number of roundings in sequence in the computation of a gradient
    for (const int64_t micro_tokens : {0, 100}) {
      auto model = model::build_language_model(config, {60}, at::kCPU);
      model->parameters().initialise(1);
      train::TrainOptions options = train_options(7);
      options.batch.micro_tokens = micro_tokens;
      const auto batches = corpora::make_batches(corpus, options);
      const auto micro_batches = batches->micro_batches(0);
      CHECK(micro_batches.size() == (micro_tokens > 0 ? 4 : 2));
      for (const auto& micro_batch : micro_batches) {
        const data::Batch batch = batches->load(0, micro_batch);
        model->loss(model->hidden(batch.input, {}), batch.model_targets(), 0.1).smoothed.backward();
      }
      for (const nn::Parameter& p : model->parameters().all()) gradients[micro_tokens > 0].push_back(p.master().grad());
      operations = 2 * rounding::num_pass_roundings(*model, 42);
    }
    // A small gradient may be the difference of large numbers, so its error is relative to the largest gradient.
    double largest = 0;
    for (const at::Tensor& gradient : gradients[0])
      if (gradient.defined()) largest = std::max(largest, numbers::max_abs(gradient));
    for (size_t i = 0; i < gradients[0].size(); ++i)
      if (gradients[0][i].defined()) CHECK(rounding::agree(gradients[0][i], gradients[1][i], operations, largest));
  }
}

TEST_CASE("evaluation of examples in batches equals evaluation of each example separately", "[examples]") {
  c10::NoGradGuard no_gradient;
  const auto config =
      models::parse_model_config(str(kBertConfig, "bert.next_sentence = true\n[attention]\nheads = 4\n"));
  auto model = model::build_language_model(config, {30}, at::kCPU);
  model->parameters().initialise(3);
  const Folder folder;
  write_documents(folder.file("t.mhs"), {{3, 4}, {6, 2, 5}, {10, 9}, {1, 1}, {12, 7, 8}, {4, 4, 4}});
  const io::ShardFile shard(folder.file("t.mhs"));
  const text::FileRecords records(shard);
  const auto tokenizers = text::tokenizers_of(shard.header(), shard.name());
  constexpr int64_t kMaxLength = 30;
  const auto dataset =
      task::task_of(config.model)->open(records, tokenizers, {config.model.bert, kMaxLength, 1, false});
  const auto& corpus = dynamic_cast<const data::Examples&>(dataset->corpus());
  const int64_t num_rows = corpus.size();
  REQUIRE(num_rows >= 6);  // at least one row of each document; the documents differ in length
  const task::Evaluation evaluation = dataset->evaluate(*model, {});
  double words_nll = 0, next_nll = 0;
  int64_t num_words = 0, num_correct_words = 0, num_correct_next = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    const std::vector<text::Example> single_row{corpus.source().make(0, row)};
    const data::Batch batch = data::load_examples(corpus, single_row);
    const at::Tensor hidden = model->hidden(batch.input, {}), logits = model->logits(hidden)[0];
    const at::Tensor log_p = model->target_log_probabilities(hidden, batch.targets)[0];
    next_nll -= log_p[0].item<double>();
    num_correct_next += model->next_sentence_logits(hidden)[0].argmax().item<int64_t>() == single_row[0].targets[0];
    for (size_t t = 1; t < single_row[0].targets.size(); ++t) {
      if (single_row[0].targets[t] < 0) continue;
      ++num_words;
      words_nll -= log_p[static_cast<int64_t>(t)].item<double>();
      num_correct_words += logits[static_cast<int64_t>(t)].argmax().item<int64_t>() == single_row[0].targets[t];
    }
  }
  CHECK(evaluation.num_rows == num_rows);
  CHECK(evaluation.num_scored == num_words);
  const double loss = words_nll / static_cast<double>(num_words) + next_nll / static_cast<double>(num_rows);
  CHECK(evaluation.loss == rounding::within(loss, rounding::pass_bound(*model, kMaxLength) * loss));
  CHECK(task::score_named(evaluation.scores, "word_accuracy") ==
        rounding::fp64(static_cast<double>(num_correct_words) / static_cast<double>(num_words), 2));
  CHECK(task::score_named(evaluation.scores, "next_accuracy") ==
        rounding::fp64(static_cast<double>(num_correct_next) / static_cast<double>(num_rows), 2));
  CHECK(std::isnan(task::score_named(evaluation.scores, "f1")));
}

TEST_CASE(
    "a partial load copies shared parameters; only parameters of attention stages, pooler and task head may be absent "
    "from the checkpoint",
    "[examples]") {
  const Folder folder;
  const auto build = [](const std::string& toml) {
    auto model = model::build_language_model(models::parse_model_config(toml), {30}, at::kCPU);
    model->parameters().initialise(4);
    return model;
  };
  const std::string pretrained_toml = str(kBertConfig, "bert.next_sentence = true\n[attention]\nheads = 4\n");
  auto pretrained_model = build(pretrained_toml);
  pretrained_model->parameters().initialise(5);
  const std::string path = folder.file("m.safetensors");
  model::CheckpointTensors tensors;
  tensors.add(pretrained_model->parameters());
  {
    auto sink = open_sink(path);
    io::write_checkpoint(*sink, tensors.views(), {});
    sink->close();
  }
  const io::Checkpoint checkpoint(path);
  auto finetuned_model =
      build(str(kBertConfig, "bert.head = 'classes'\nbert.classes = 3\n[attention]\nheads = 4\nmixer = 'mixhead-b'\n"));
  const model::PartialLoad partial_load =
      model::compare_with_checkpoint(checkpoint, finetuned_model->parameters(), "--init");
  const std::set<std::string> added_parameters(partial_load.added_parameters.begin(),
                                               partial_load.added_parameters.end()),
      ignored_tensors(partial_load.ignored_tensors.begin(), partial_load.ignored_tensors.end());
  CHECK(added_parameters.count("head.classes.weight") == 1);
  CHECK(added_parameters.count("pooler.weight") == 0);
  CHECK(ignored_tensors.count("head.words.bias") == 1);
  CHECK(ignored_tensors.count("head.next.weight") == 1);
  for (const std::string& name : added_parameters)
    CHECK((name.rfind("head.", 0) == 0 || name.find(".mixer.") != std::string::npos));
  const at::Tensor initial_head = finetuned_model->parameters().find("head.classes.weight")->master().clone();
  model::load_matching_parameters(checkpoint, finetuned_model->parameters());
  CHECK(finetuned_model->parameters().find("head.classes.weight")->master().equal(initial_head));
  for (const nn::Parameter& p : finetuned_model->parameters().all())
    if (added_parameters.count(p.name()) == 0)
      CHECK(p.master().equal(pretrained_model->parameters().find(p.name())->master()));
  // A partial load is refused if a parameter outside attention stages, pooler and task head is absent from the
  // checkpoint or has another shape there.
  for (const char* change : {"[attention]\nheads = 4\nhead_size = 8\n", "ffn_dim = 32\n[attention]\nheads = 4\n",
                             "layers = 3\n[attention]\nheads = 4\n"}) {
    std::string toml = str(kBertConfig, change);
    if (const auto begin = toml.find("layers = 2\n"); std::string(change).find("layers") == 0) toml.erase(begin, 11);
    if (const auto begin = toml.find("ffn_dim = 24\n"); std::string(change).find("ffn") == 0) toml.erase(begin, 13);
    auto incompatible_model = build(toml);
    CHECK(refusal([&] {
            model::compare_with_checkpoint(checkpoint, incompatible_model->parameters(), "--init m");
          }).find("--init m") == 0);
  }
}
