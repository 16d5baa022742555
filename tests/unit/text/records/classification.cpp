// Examples: labels, columns of GLUE's files, what becomes a record, rows and how they are truncated, predictions.
#include "text/records/classification.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "base/text.h"
#include "fixtures/folder.h"
#include "fixtures/status.h"
#include "text/bert_vocabulary.h"
#include "text/records/classification/examples.h"
#include "text/records/classification/glue.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;
using Words = std::vector<std::string>;
using Ids = std::vector<int32_t>;

namespace {

const WordPieceTokenizer& vocabulary() {
  static const auto made = [] {
    std::vector<Piece> pieces;
    for (const char* piece : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "\"", "index", "sentence"})
      pieces.push_back({piece, 0});
    return make_wordpiece_tokenizer(std::move(pieces), {}, "test");
  }();
  return *made;
}

ExampleTask pairs() { return {"any", 2, {"no", "yes"}, 0, 0, {"accuracy"}, "any.tsv"}; }
ExampleTask number() { return {"any", 2, {}, 0, 5, {"pearson"}, "any.tsv"}; }

// What files of these texts become.
struct Encoded {
  WholeShard text;
  ExampleSummary summary;
  int status = 0;
};
Encoded encoded(const Words& texts, const ExampleTask& task, const text::GivenColumns& given, bool drop = false,
                int threads = 1) {
  Folder folder;
  Words files;
  for (const std::string& text : texts) {
    files.push_back(folder.file(std::to_string(files.size())));
    write_file_atomically(files.back(), text);
  }
  Encoded out;
  out.status = status_of([&] {
    TextBatches batches(files, LineEnds::refuse_crlf, nullptr);
    ShardHeader header = header_of(vocabulary());
    hold_examples(header, task);
    auto sink = open_sink(folder.file("x.mhs"));
    ShardWriter writer(*sink, header);
    const auto find = [&](const Words& fields, const std::string& where) {
      return text::given_columns(given, fields, where);
    };
    out.summary = encode_examples(batches, find, task, drop, vocabulary(), threads, writer);
    writer.finish();
    sink->close();
    out.text = read_whole_shard(folder.file("x.mhs"), kExamplesKind);
  });
  return out;
}

Ids run(const WholeShard& text, size_t record, size_t field) {
  const auto tokens = text.run(record, field);
  return {tokens.begin(), tokens.end()};
}

// Column numbers from 0 of a file of GLUE whose first line this is.
std::vector<size_t> columns_of(const std::string& task, const std::string& line, const text::GivenColumns& given = {}) {
  const ExampleColumns c = text::glue_columns(text::glue_task(task), given, split(line, '\t'), "file:1");
  return {c.first, c.second, c.label, c.count, size_t{c.header}};
}

constexpr size_t kNone = ExampleColumns::kNone;

}  // namespace

TEST_CASE("labels are words or numbers within bounds", "[examples]") {
  CHECK(pairs().label_of("no") == 0);
  CHECK(pairs().label_of("yes") == 1);
  for (const char* text : {"", "Yes", "yes ", "2", "1"}) CHECK(!pairs().label_of(text));
  CHECK(pairs().limit() == 2);
  CHECK(pairs().text_of(1) == "yes");
  CHECK(number().label_of("0") == 0);
  CHECK(number().label_of("5.000") == 5000);
  CHECK(number().label_of("3.8") == 3800);
  CHECK(number().label_of("1.53333333333333") == 1533);
  CHECK(number().label_of("0.0009") == 1);
  for (const char* text : {"", "-0.1", "5.0001", "nan", "inf", "3,8", "3.8 ", "x"}) CHECK(!number().label_of(text));
  CHECK(number().limit() == 5001);
  CHECK(number().text_of(3800) == "3.800");
}

TEST_CASE("a shard's header tells the task", "[examples]") {
  for (const auto& glue : text::glue_tasks()) {
    ShardHeader header;
    header.vocabulary = 100;
    hold_examples(header, glue.task);
    CHECK(task_of(header, "x.mhs") == glue.task);
  }
  const auto refused = [](const std::string& task, int64_t limit) {
    ShardHeader header;
    header.vocabulary = 100;
    header.hold(kExamplesKind, {100, 100, limit});
    header.task = task;
    CHECK(status_of([&] { task_of(header, "x.mhs"); }) == 3);
  };
  const std::string rest = R"("name":"x","metrics":[],"file":"x.tsv",)";
  refused("", 2);
  refused("{}", 2);
  refused("{" + rest + R"("sentences":3,"labels":["a","b"]})", 2);
  refused("{" + rest + R"("sentences":1,"labels":["a","b"]})", 3);
  refused("{" + rest + R"("sentences":1})", 2);
  refused("{" + rest + R"("sentences":1,"labels":[]})", 1);
  refused("{" + rest + R"("sentences":1,"number":[0]})", 2);
  refused("{" + rest + R"("sentences":1,"number":[5,0]})", 2);
  refused("{" + rest + R"("sentences":1,"number":[-1,5]})", 2);
  refused("{" + rest + R"("sentences":1,"number":[0,5]})", 5002);
  ShardHeader other;
  other.vocabulary = 100;
  CHECK(status_of([&] { task_of(other, "x.mhs"); }) == 3);
}

TEST_CASE("columns of GLUE's files are found by their names", "[examples]") {
  using Found = std::vector<size_t>;
  CHECK(columns_of("cola", "gj04\t1\t\tOur friends") == Found{3, kNone, 1, 4, 0});
  CHECK(columns_of("cola", "index\tsentence") == Found{1, kNone, kNone, 2, 1});
  CHECK(columns_of("sst2", "sentence\tlabel") == Found{0, kNone, 1, 2, 1});
  CHECK(columns_of("sst2", "label\tsentence") == Found{1, kNone, 0, 2, 1});
  CHECK(columns_of("sst2", "index\tsentence") == Found{1, kNone, kNone, 2, 1});
  CHECK(columns_of("mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String") == Found{3, 4, 0, 5, 1});
  CHECK(columns_of("mrpc", "index\t#1 ID\t#2 ID\t#1 String\t#2 String") == Found{3, 4, kNone, 5, 1});
  const std::string stsb = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2";
  CHECK(columns_of("stsb", stsb + "\tscore") == Found{7, 8, 9, 10, 1});
  CHECK(columns_of("stsb", stsb) == Found{7, 8, kNone, 9, 1});
  CHECK(columns_of("qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate") == Found{3, 4, 5, 6, 1});
  CHECK(columns_of("qqp", "id\tquestion1\tquestion2") == Found{1, 2, kNone, 3, 1});
  const std::string mnli =
      "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
      "sentence2_parse\tsentence1\tsentence2";
  CHECK(columns_of("mnli", mnli + "\tlabel1\tgold_label") == Found{8, 9, 11, 12, 1});
  CHECK(columns_of("mnli-mm", mnli + "\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label") == Found{8, 9, 15, 16, 1});
  CHECK(columns_of("mnli", mnli) == Found{8, 9, kNone, 10, 1});
  CHECK(columns_of("qnli", "index\tquestion\tsentence\tlabel") == Found{1, 2, 3, 4, 1});
  CHECK(columns_of("rte", "index\tsentence1\tsentence2\tlabel") == Found{1, 2, 3, 4, 1});
  CHECK(columns_of("wnli", "index\tsentence1\tsentence2") == Found{1, 2, kNone, 3, 1});
  CHECK(columns_of("ax", "index\tsentence1\tsentence2") == Found{1, 2, kNone, 3, 1});
  // Given ones, by name and by number; without a header any number of columns.
  CHECK(columns_of("sst2", "label\tcontent", {"content", "", ""}) == Found{1, kNone, 0, 2, 1});
  CHECK(columns_of("sst2", "label\tcontent", {"2", "", "1"}) == Found{1, kNone, 0, 2, 1});
  CHECK(columns_of("stsb", "a\tb\tc\td\t1\tx\ty\tz", {"6", "7", "5", false}) == Found{5, 6, 4, 0, 0});
  CHECK(columns_of("mrpc", "x\ty", {"1", "2", "", false}) == Found{0, 1, kNone, 0, 0});
  const auto refused = [](const std::string& task, const std::string& line, const text::GivenColumns& given = {}) {
    CHECK(status_of([&] { columns_of(task, line, given); }) == 3);
  };
  refused("sst2", "label\tcontent");
  refused("cola", "gj04\t1\tOur friends");
  refused("mrpc", "Quality\t#1 String");
  refused("mrpc", "1\t2\t3\tone\ttwo");
  refused("sst2", "sentence\tlabel", {"", "", "class"});  // a label that was asked for
  refused("sst2", "sentence\tlabel", {"3", "", ""});
  refused("sst2", "sentence\tlabel", {"sentence", "", "", false});
  CHECK(status_of([] { text::glue_task("mnil"); }) == 2);
  CHECK(status_of([] { text::glue_task(""); }) == 2);
}

TEST_CASE("lines become records, but for headers, marks and what is left out", "[examples]") {
  const text::GivenColumns three{"x", "y", "z"};
  // A byte order mark, quotes that are text, an empty second, a header in each file and columns elsewhere.
  const Encoded some = encoded({"\xEF\xBB\xBFx\ty\tz\n\"a b\tc\tyes\na\t\tno\n", "z\ty\tx\nno\tb\tc"}, pairs(), three);
  REQUIRE(some.status == 0);
  CHECK(some.text.tokens == Ids{8, 5, 6, 7, 1, 5, 0, 7, 6, 0});
  CHECK(some.text.ends == std::vector<uint64_t>{3, 4, 5, 6, 6, 7, 8, 9, 10});
  CHECK(some.summary.examples == 3);
  CHECK(some.summary.labelled == 3);
  CHECK(some.summary.tokens == 7);
  const Encoded unlabelled = encoded({"x\ty\na\tz\n"}, pairs(), {"x", "y", ""});
  CHECK(unlabelled.text.ends == std::vector<uint64_t>{1, 2, 2});
  CHECK(unlabelled.summary.labelled == 0);
  CHECK(unlabelled.summary.unknown == 1);
  const Encoded bare = encoded({"\xEF\xBB\xBF"
                                "1.5\ta\tb\n2\tb\tc\td\n"},
                               number(), {"2", "3", "1", false});
  CHECK(run(bare.text, 0, 2) == Ids{1500});
  CHECK(run(bare.text, 1, 1) == Ids{7});
  CHECK(run(bare.text, 0, 0) == Ids{5});
  // What is no record.
  CHECK(encoded({"1.5\ta\tb\n2\tb\n"}, number(), {"2", "3", "1", false}).status == 3);
  const std::string broken = "x\ty\tz\na\tb\nb\tc\tno\na\tb\tc\tno\n";
  CHECK(encoded({broken}, pairs(), three).status == 3);
  const Encoded dropped = encoded({broken}, pairs(), three, true);
  CHECK(dropped.summary.malformed == 2);
  CHECK(dropped.text.counts.dropped == (std::map<std::string, uint64_t>{{"malformed", 2}}));
  CHECK(run(dropped.text, 0, 0) == Ids{6});
  CHECK(encoded({"x\ty\na\n"}, pairs(), {"x", "y", ""}, true).status == 3);  // predictions go by number
  CHECK(encoded({"x\ty\tz\na\tb\tmaybe\n"}, pairs(), three, true).status == 3);
  CHECK(encoded({"x\ty\tz\na\tb\t6\n"}, number(), three).status == 3);
  CHECK(encoded({"x\ty\tz\na\tb\xff\tno\n"}, pairs(), three).status == 3);
  CHECK(encoded({"x\tz\n"}, pairs(), three).status == 3);
  CHECK(encoded({"x\ty\tz\r\n"}, pairs(), three).status == 3);
  CHECK(encoded({"x\ty\tz\n", "a\tb\tno\n"}, pairs(), three).status == 3);  // each file has its header
}

TEST_CASE("any number of threads makes the same records", "[examples]") {
  std::string text = "x\ty\tz\n";
  for (int i = 0; i < 120000; ++i)
    text += std::string(i % 7 + 1, 'a') + " b\tc a b\t" + (i % 3 > 0 ? "yes" : "no") + "\n";
  const Encoded one = encoded({text, text}, pairs(), {"x", "y", "z"}, false, 1);
  const Encoded three = encoded({text, text}, pairs(), {"x", "y", "z"}, false, 3);
  REQUIRE(one.summary.examples == 240000);
  CHECK(one.text.tokens == three.text.tokens);
  CHECK(one.text.ends == three.text.ends);
}

TEST_CASE("of two sentences the longer one is truncated first", "[examples]") {
  using Kept = std::pair<int64_t, int64_t>;
  CHECK(text::kept_of(3, 4, 7) == Kept{3, 4});
  CHECK(text::kept_of(3, 10, 7) == Kept{3, 4});
  CHECK(text::kept_of(10, 3, 7) == Kept{4, 3});
  CHECK(text::kept_of(10, 10, 7) == Kept{3, 4});
  CHECK(text::kept_of(11, 10, 7) == Kept{4, 3});
  CHECK(text::kept_of(0, 10, 7) == Kept{0, 7});
  CHECK(rc::check([] {
    const int64_t first = *rc::gen::inRange<int64_t>(0, 60), second = *rc::gen::inRange<int64_t>(0, 60);
    const int64_t room = *rc::gen::inRange<int64_t>(1, 70);
    const auto [a, b] = text::kept_of(first, second, room);
    RC_ASSERT(a >= 0 && a <= first && b >= 0 && b <= second);
    RC_ASSERT(a + b == std::min(room, first + second));
    if (a < first) RC_ASSERT(a + 1 >= b);
    if (b < second) RC_ASSERT(b + 1 >= a);
  }));
}

TEST_CASE("rows are sentences with their special tokens", "[examples]") {
  const Encoded two = encoded({"x\ty\tz\na b c\ta b\tyes\na\t\tno\n"}, pairs(), {"x", "y", "z"});
  const text::Classification rows(text::sequences_of(two.text), pairs(), vocabulary(), 8);
  REQUIRE(rows.size() == 2);
  CHECK(rows.truncated() == 0);
  CHECK(rows.make(0).tokens == Ids{2, 5, 6, 7, 3, 5, 6, 3});
  CHECK(rows.make(0).first == 5);
  CHECK(rows.make(0).targets == std::vector<int64_t>{1});
  CHECK(rows.make(1).tokens == Ids{2, 5, 3, 3});
  CHECK(rows.make(1).targets == std::vector<int64_t>{0});
  const text::Classification shorter(text::sequences_of(two.text), pairs(), vocabulary(), 6);
  CHECK(shorter.truncated() == 1);
  CHECK(shorter.make(0).tokens == Ids{2, 5, 6, 3, 5, 3});
  CHECK(shorter.length(0) == 6);
  CHECK(shorter.length(1) == 4);
  CHECK(status_of([&] { text::Classification(text::sequences_of(two.text), pairs(), vocabulary(), 3); }) == 2);
  ExampleTask single = pairs();
  single.sentences = 1;
  const Encoded one = encoded({"x\na b c\n"}, single, {"x", "", ""});
  const text::Classification alone(text::sequences_of(one.text), single, vocabulary(), 4);
  CHECK(alone.make(0).tokens == Ids{2, 5, 6, 3});
  CHECK(alone.make(0).first == 4);
  CHECK(alone.make(0).targets == std::vector<int64_t>{-1});
  CHECK(alone.unlabelled() == 1);
  CHECK(alone.truncated() == 1);
}

TEST_CASE("predictions are written as GLUE's server takes them", "[examples]") {
  Folder folder;
  const auto written = [&](const ExampleTask& task, const std::vector<double>& predictions) {
    auto sink = open_sink(folder.file("x.tsv"));
    text::write_predictions(*sink, task, predictions);
    sink->close();
    return read_text_file(folder.file("x.tsv"));
  };
  const auto glue = [](const char* name) { return text::glue_task(name).task; };
  CHECK(written(glue("rte"), {1, 0}) == "index\tprediction\n0\tnot_entailment\n1\tentailment\n");
  CHECK(written(glue("mnli"), {0, 1, 2}) == "index\tprediction\n0\tentailment\n1\tneutral\n2\tcontradiction\n");
  CHECK(written(glue("cola"), {1}) == "index\tprediction\n0\t1\n");
  CHECK(written(glue("stsb"), {3.14159, 0, 4.9999}) == "index\tprediction\n0\t3.142\n1\t0.000\n2\t5.000\n");
  CHECK(glue("mnli").file == "MNLI-m.tsv");
}

TEST_CASE("the vocabulary for BERT is a file of ours, a model's or vocab.txt", "[examples]") {
  Folder folder;
  write_file_atomically(folder.file("v"), vocabulary().serialize());
  write_file_atomically(folder.file("vocab.txt"), write_wordpieces(vocabulary().pieces()));
  Tokenizers tokenizers{parse_tokenizer(vocabulary().serialize(), "v"), nullptr};
  const auto model = [&](const std::string& name, const Tokenizers& of) {
    Metadata metadata = entries_of(of);
    metadata[kFormatKey] = "1";
    auto sink = open_sink(folder.file(name));
    write_checkpoint(*sink, {}, metadata);
    sink->close();
  };
  model("m.safetensors", tokenizers);
  for (const char* name : {"v", "m.safetensors"}) {
    BertVocabulary given;
    given.vocab = folder.file(name);
    CHECK(given.load()->fingerprint() == vocabulary().fingerprint());
  }
  BertVocabulary given;
  given.wordpiece = folder.file("vocab.txt");
  CHECK(given.load()->text() == BertText{true, true});
  given.cased = true;
  CHECK(given.load()->text() == BertText{false, false});
  given.strip_accents = "yes";
  CHECK(given.load()->text() == BertText{false, true});
  tokenizers.target = make_byte_tokenizer();
  model("bytes.safetensors", tokenizers);
  const auto status = [&](const std::string& vocab, const std::string& wordpiece) {
    BertVocabulary b;
    b.vocab = vocab.empty() ? "" : folder.file(vocab), b.wordpiece = wordpiece.empty() ? "" : folder.file(wordpiece);
    return status_of([&] { b.load(); });
  };
  CHECK(status("bytes.safetensors", "") == 3);
  CHECK(status("vocab.txt", "") == 3);
  CHECK(status("none", "") == 3);
  CHECK(status("", "v") == 3);
  CHECK(status("", "") == 2);
  CHECK(status("v", "vocab.txt") == 2);
}
