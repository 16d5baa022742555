// Masked language modelling: training on short documents in short rows, limits on the number of predicted words in a
// row, and training in two phases with different row lengths.
#include "text/records/masked_words.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "text/tokenizers.h"
#include "text/wordpiece.h"
#include "train/run_batches.h"

using namespace runs;

namespace {

constexpr int32_t kFirstWord = 5, kVocabularySize = 25;

std::unique_ptr<text::WordPieceTokenizer> make_tokenizer() {
  std::vector<text::Piece> pieces{{"[PAD]", 0}, {"[UNK]", 0}, {"[CLS]", 0}, {"[SEP]", 0}, {"[MASK]", 0}};
  for (int32_t i = kFirstWord; i < kVocabularySize; ++i) pieces.push_back({str("w", i), 0});
  return text::make_wordpiece_tokenizer(std::move(pieces), {}, "test");
}

using Documents = std::vector<std::vector<size_t>>;  // number of words, by document and sentence

void write_shard(const std::string& path, const Documents& documents) {
  const auto tokenizer = make_tokenizer();
  io::ShardHeader h = text::header_of(*tokenizer);
  h.set_kind(text::kDocumentsKind);
  auto sink = open_sink(path);
  io::ShardWriter writer(*sink, h);
  for (const auto& document : documents) {
    for (size_t length : document) {
      std::vector<int32_t> sentence(length);
      std::iota(sentence.begin(), sentence.end(), kFirstWord);
      writer.add_sequence(sentence);
    }
    writer.add_sequence({});
  }
  writer.finish();
  sink->close();
}

RunConfig run_config(const std::string& path, const std::string& extra_toml) {
  Config config;
  config.load_text(
      str("[model]\nbackbone = 'bert'\npositions = 'learned'\nmax_positions = 64\nbert.segments = 2\n"
          "bert.embedding_norm = true\nlayers = 1\nwidth = 8\nffn_dim = 8\n[attention]\nheads = 2\n[train]\n"
          "lr = 0.01\nbatch.rows = 4\nlength = '3u'\n[data]\ntrain = '",
          path, "'\nvalid = '", path, "'\n"),
      "test");
  config.load_text(extra_toml, "extra");
  return RunConfig::read(config);
}

// Returns the maximum number of predicted words over the rows of an update.
int64_t max_predicted_words_of(Batches& batches, int64_t update) {
  int64_t max_predictions = 0;
  for (const auto& micro_batch : batches.micro_batches(update)) {
    const data::Batch batch = batches.load(update, micro_batch);
    max_predictions = std::max(max_predictions, batch.targets.ge(0).slice(1, 1).sum(1).max().item<int64_t>());
  }
  return max_predictions;
}

}  // namespace

TEST_CASE("training on short documents runs without errors for all row lengths from the minimum to 8",
          "[masked-words]") {
  Folder folder;
  RandomSequence random(RandomStream(5, "short documents"));
  for (const bool next_sentence : {false, true})
    for (int64_t sequence_length = next_sentence ? 5 : 3; sequence_length < 9; ++sequence_length) {
      Documents documents(2 + random.uniform_below(4));
      for (auto& document : documents) {
        document.resize(1 + random.uniform_below(3));
        for (size_t& length : document) length = 1 + random.uniform_below(4);
      }
      documents.push_back({3});
      const std::string path = folder.file("t.mhs"), out = folder.file(str("run", next_sentence, "-", sequence_length));
      write_shard(path, documents);
      INFO("sequence length " << sequence_length << ", next_sentence " << next_sentence);
      runs::run(run_config(path, str("[model]\nbert.next_sentence = ", next_sentence ? "true" : "false",
                                     "\n[train]\nbatch.sequence_length = ", sequence_length,
                                     "\nbatch.tokens = 64\n[mlm]\nshort_fraction = 1.0\n")),
                out);
    }
}

TEST_CASE("long_predictions limits the predicted words of long rows; its default scales max_predictions by length",
          "[masked-words]") {
  Folder folder;
  const std::string path = folder.file("t.mhs");
  write_shard(path,
              Documents(40, std::vector<size_t>(20, 20)));  // 40 documents of 400 words, so that all rows are full
  const auto tokenizer = make_tokenizer();
  const auto max_predicted_words = [&](const std::string& extra_toml, int64_t update) {
    const RunConfig run = run_config(
        path,
        "[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nbatch.long_sequence_length = 64\nbatch.long_from "
        "= '2u'\n[mlm]\nshort_fraction "
        "= 0.0\nmask_fraction = 0.5\n" +
            extra_toml);
    text::Tokenizers tokenizers;
    const TrainShards train_shards = open_train_shards(run.data, text::kDocumentsKind, tokenizers);
    const auto batches = batches_of(run, train_shards, tokenizers);
    return max_predicted_words_of(*batches, update);
  };
  const std::string at_most_4 = "max_predictions = 4\n";
  CHECK(max_predicted_words(at_most_4, 1) == 4);
  CHECK(max_predicted_words(at_most_4, 2) == 16);  // scaled by the ratio of row lengths, 4 * 64 / 16
  CHECK(max_predicted_words(at_most_4 + "long_predictions = 7\n", 1) == 4);
  CHECK(max_predicted_words(at_most_4 + "long_predictions = 7\n", 2) == 7);
  CHECK(max_predicted_words("max_predictions = 5\n", 2) == 20);
  CHECK(max_predicted_words("max_predictions = 1000\n", 1) ==
        8);  // no effective limit: mask_fraction (0.5) of 16 tokens
  CHECK(max_predicted_words("max_predictions = 1000\n", 2) == 32);  // no effective limit: mask_fraction of 64 tokens
  CHECK(status_of([&] {
          RunConfig run = run_config(path, "[mlm]\nlong_predictions = 7\n");
          run.check_without_data();
        }) == 2);
}

TEST_CASE("both phases of training mix two shards by the same weights, and a resume in either phase is bit-identical",
          "[masked-words]") {
  Folder folder;
  const std::string first_path = folder.file("a.mhs"), second_path = folder.file("b.mhs");
  write_shard(first_path, Documents(6, {5, 7, 4}));
  write_shard(second_path, Documents(9, {3, 9}));
  const auto config = [&](int num_updates) {
    return run_config(first_path,
                      str("[data]\ntrain = ['", first_path, "', '", second_path,
                          "']\n[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nbatch.long_sequence_length = "
                          "32\nbatch.long_from = '4u'\nlength = '",
                          num_updates, "u'\nschedule.length = '8u'\n"));
  };
  const RunConfig run = config(8);
  text::Tokenizers tokenizers;
  const TrainShards train_shards = open_train_shards(run.data, text::kDocumentsKind, tokenizers);
  const auto batches = batches_of(run, train_shards, tokenizers);
  REQUIRE(batches->shard_shares().size() == 2);
  CHECK(batches->shard_epochs(0) == std::vector<double>{0, 0});
  for (size_t i = 0; i < 2; ++i) {  // the second phase adds to the epochs of the first
    CHECK(batches->shard_epochs(4)[i] > 0);
    CHECK(batches->shard_epochs(8)[i] > batches->shard_epochs(4)[i]);
  }
  const auto uninterrupted = runs::run(config(8), folder.file("whole"));
  for (const int stop : {2, 4, 6}) {
    const std::string out = folder.file(str("run", stop));
    runs::run(config(stop), out);
    const auto resumed = runs::run(config(8), out, true);
    for (const auto& p : uninterrupted.model->parameters().all())
      CHECK(at::equal(p.master(), resumed.model->parameters().find(p.name())->master()));
  }
}

TEST_CASE("a stored configuration without long_predictions applies max_predictions to long rows", "[masked-words]") {
  for (auto [text, expected] :
       {std::pair("[train]\nbatch.long_sequence_length = 64\nbatch.long_from = '2u'\n[mlm]\nmax_predictions = 20\n",
                  20),
        {"[train]\nbatch.long_sequence_length = 64\nbatch.long_from = '2u'\n[mlm]\nlong_predictions = 9\n", 9},
        {"[train]\nbatch.sequence_length = 64\n[mlm]\nmax_predictions = 20\n", 0}}) {
    Config config;
    config.load_text(text, "config.toml");
    set_legacy_defaults(config);
    text::PretrainingOptions mlm;
    config.read("mlm", mlm);
    CHECK(mlm.max_long_predictions == expected);
  }
}

TEST_CASE("the default limit of predicted words grows from 20 in rows of 128 to 80 in rows of 512", "[masked-words]") {
  RunConfig run;
  run.model.model.backbone = "bert";
  run.train.batch.sequence_length = 128, run.train.batch.long_sequence_length = 512;
  CHECK(text::PretrainingOptions().max_predictions == 20);
  CHECK(run.max_long_row_predictions() ==
        80);  // at least 0.15 * 512 = 76.8, so that mask_fraction (0.15) limits predictions
}
