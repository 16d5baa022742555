// Tests of examples for classification and regression: labels, columns of GLUE files, encoding of lines, input
// sequences and their truncation, and the sources of the vocabulary for BERT.
#include "text/records/classification.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "base/text.h"
#include "fixtures/folder.h"
#include "fixtures/status.h"
#include "text/bert_vocabulary_options.h"
#include "text/records/glue.h"
#include "text/records/language_modelling.h"
#include "text/records/whole_shard.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;
using Words = std::vector<std::string>;
using TokenIds = std::vector<int32_t>;

namespace {

const WordPieceTokenizer& vocabulary() {
  static const auto tokenizer = [] {
    std::vector<Piece> pieces;
    for (const char* piece : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "\"", "index", "sentence"})
      pieces.push_back({piece, 0});
    return make_wordpiece_tokenizer(std::move(pieces), {}, "test");
  }();
  return *tokenizer;
}

ExampleTask pair_task() { return {"any", 2, {"no", "yes"}, 0, 0, {"accuracy"}, "any.tsv"}; }
ExampleTask number_task() { return {"any", 2, {}, 0, 5, {"pearson"}, "any.tsv"}; }

// The result of encode_files(): the shard, the summary of encode_examples(), and the exit status.
struct EncodingResult {
  WholeShard shard;
  ExampleSummary summary;
  int status = 0;
};
EncodingResult encode_files(const Words& texts, const ExampleTask& task, const text::ColumnChoice& column_choice,
                            bool drop_malformed = false, int threads = 1) {
  Folder folder;
  Words files;
  for (const std::string& text : texts) {
    files.push_back(folder.file(std::to_string(files.size())));
    write_file_atomically(files.back(), text);
  }
  EncodingResult out;
  out.status = status_of([&] {
    TextBatches batches(files, LineEnds::refuse_crlf, nullptr);
    ShardHeader header = header_of(vocabulary());
    set_examples_header(header, task);
    auto sink = open_sink(folder.file("x.mhs"));
    ShardWriter writer(*sink, header);
    const auto find = [&](const Words& fields, const std::string& where) {
      return text::select_columns(column_choice, fields, where);
    };
    out.summary = encode_examples(batches, find, task, drop_malformed, vocabulary(), threads, writer);
    writer.finish();
    sink->close();
    out.shard = read_whole_shard(folder.file("x.mhs"), kExamplesKind);
  });
  return out;
}

TokenIds sequence(const WholeShard& shard, size_t record, size_t field) {
  const auto tokens = shard.sequence(record, field);
  return {tokens.begin(), tokens.end()};
}

// Returns the layout of a file of GLUE's task `task` whose first line is `line`: the indices of the columns of first
// sentence, second sentence and label (from 0; kNone: no such column), the number of columns (0: any), and 1 if the
// line is a header, else 0.
std::vector<size_t> columns_of(const std::string& task, const std::string& line,
                               const text::ColumnChoice& column_choice = {}) {
  const ExampleColumns c = text::glue_columns(text::glue_task(task), column_choice, split(line, '\t'), "file:1");
  return {c.first_text, c.second_text, c.label, c.num_columns, size_t{c.has_header}};
}

constexpr size_t kNone = ExampleColumns::kNone;

}  // namespace

TEST_CASE("labels are class names, or numbers within bounds", "[examples]") {
  CHECK(pair_task().label_of("no") == 0);
  CHECK(pair_task().label_of("yes") == 1);
  for (const char* text : {"", "Yes", "yes ", "2", "1"}) CHECK(!pair_task().label_of(text));
  CHECK(pair_task().label_limit() == 2);
  CHECK(pair_task().text_of(1) == "yes");
  CHECK(number_task().label_of("0") == 0);
  CHECK(number_task().label_of("5.000") == 5000);
  CHECK(number_task().label_of("3.8") == 3800);
  CHECK(number_task().label_of("1.53333333333333") == 1533);
  CHECK(number_task().label_of("0.0009") == 1);
  for (const char* text : {"", "-0.1", "5.0001", "nan", "inf", "3,8", "3.8 ", "x"})
    CHECK(!number_task().label_of(text));
  CHECK(number_task().label_limit() == 5001);
  CHECK(number_task().text_of(3800) == "3.800");
}

TEST_CASE("a shard header stores its task, and contradictory headers are refused", "[examples]") {
  for (const auto& glue : text::glue_tasks()) {
    ShardHeader header;
    header.vocabulary_size = 100;
    set_examples_header(header, glue.example_task);
    CHECK(task_of(header, "x.mhs") == glue.example_task);
  }
  const auto check_refused = [](const std::string& task, int64_t limit) {
    ShardHeader header;
    header.vocabulary_size = 100;
    header.set_kind(kExamplesKind, {100, 100, limit});
    header.task = task;
    CHECK(status_of([&] { task_of(header, "x.mhs"); }) == 3);
  };
  const std::string common_fields = R"("name":"x","metrics":[],"file":"x.tsv",)";
  check_refused("", 2);
  check_refused("{}", 2);
  check_refused("{" + common_fields + R"("sentences":3,"labels":["a","b"]})", 2);
  check_refused("{" + common_fields + R"("sentences":1,"labels":["a","b"]})", 3);
  check_refused("{" + common_fields + R"("sentences":1})", 2);
  check_refused("{" + common_fields + R"("sentences":1,"labels":[]})", 1);
  check_refused("{" + common_fields + R"("sentences":1,"number":[0]})", 2);
  check_refused("{" + common_fields + R"("sentences":1,"number":[5,0]})", 2);
  check_refused("{" + common_fields + R"("sentences":1,"number":[-1,5]})", 2);
  check_refused("{" + common_fields + R"("sentences":1,"number":[0,5]})", 5002);
  ShardHeader text_header;
  text_header.vocabulary_size = 100;
  text_header.set_kind(kTextKind);
  CHECK(status_of([&] { task_of(text_header, "x.mhs"); }) == 3);
}

TEST_CASE("columns of GLUE files are found by name", "[examples]") {
  using Columns = std::vector<size_t>;
  CHECK(columns_of("cola", "gj04\t1\t\tOur friends") == Columns{3, kNone, 1, 4, 0});
  CHECK(columns_of("cola", "index\tsentence") == Columns{1, kNone, kNone, 2, 1});
  CHECK(columns_of("sst2", "sentence\tlabel") == Columns{0, kNone, 1, 2, 1});
  CHECK(columns_of("sst2", "label\tsentence") == Columns{1, kNone, 0, 2, 1});
  CHECK(columns_of("sst2", "index\tsentence") == Columns{1, kNone, kNone, 2, 1});
  CHECK(columns_of("mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String") == Columns{3, 4, 0, 5, 1});
  CHECK(columns_of("mrpc", "index\t#1 ID\t#2 ID\t#1 String\t#2 String") == Columns{3, 4, kNone, 5, 1});
  const std::string stsb = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2";
  CHECK(columns_of("stsb", stsb + "\tscore") == Columns{7, 8, 9, 10, 1});
  CHECK(columns_of("stsb", stsb) == Columns{7, 8, kNone, 9, 1});
  CHECK(columns_of("qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate") == Columns{3, 4, 5, 6, 1});
  CHECK(columns_of("qqp", "id\tquestion1\tquestion2") == Columns{1, 2, kNone, 3, 1});
  const std::string mnli =
      "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
      "sentence2_parse\tsentence1\tsentence2";
  CHECK(columns_of("mnli", mnli + "\tlabel1\tgold_label") == Columns{8, 9, 11, 12, 1});
  CHECK(columns_of("mnli-mm", mnli + "\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label") ==
        Columns{8, 9, 15, 16, 1});
  CHECK(columns_of("mnli", mnli) == Columns{8, 9, kNone, 10, 1});
  CHECK(columns_of("qnli", "index\tquestion\tsentence\tlabel") == Columns{1, 2, 3, 4, 1});
  CHECK(columns_of("rte", "index\tsentence1\tsentence2\tlabel") == Columns{1, 2, 3, 4, 1});
  CHECK(columns_of("wnli", "index\tsentence1\tsentence2") == Columns{1, 2, kNone, 3, 1});
  CHECK(columns_of("ax", "index\tsentence1\tsentence2") == Columns{1, 2, kNone, 3, 1});
  // The user may select columns by name or by number from 1. A file without a header may then have any number of
  // columns.
  CHECK(columns_of("sst2", "label\tcontent", {"content", "", ""}) == Columns{1, kNone, 0, 2, 1});
  CHECK(columns_of("sst2", "label\tcontent", {"2", "", "1"}) == Columns{1, kNone, 0, 2, 1});
  CHECK(columns_of("stsb", "a\tb\tc\td\t1\tx\ty\tz", {"6", "7", "5", false}) == Columns{5, 6, 4, 0, 0});
  CHECK(columns_of("mrpc", "x\ty", {"1", "2", "", false}) == Columns{0, 1, kNone, 0, 0});
  const auto check_refused = [](const std::string& task, const std::string& line,
                                const text::ColumnChoice& column_choice = {}) {
    CHECK(status_of([&] { columns_of(task, line, column_choice); }) == 3);
  };
  check_refused("sst2", "label\tcontent");
  check_refused("cola", "gj04\t1\tOur friends");
  check_refused("mrpc", "Quality\t#1 String");
  check_refused("mrpc", "1\t2\t3\tone\ttwo");
  check_refused("sst2", "sentence\tlabel", {"", "", "class"});  // the selected label column is missing
  check_refused("sst2", "sentence\tlabel", {"3", "", ""});
  check_refused("sst2", "sentence\tlabel", {"sentence", "", "", false});
  CHECK(status_of([] { text::glue_task("mnil"); }) == 2);
  CHECK(status_of([] { text::glue_task(""); }) == 2);
}

TEST_CASE("every line after the header becomes a record; malformed lines are refused or dropped", "[examples]") {
  const text::ColumnChoice columns{"x", "y", "z"};
  // The first file has a byte order mark, a quotation mark as text and an empty second sentence. Each file has a
  // header, with the columns in different orders.
  const EncodingResult labelled_result =
      encode_files({"\xEF\xBB\xBFx\ty\tz\n\"a b\tc\tyes\na\t\tno\n", "z\ty\tx\nno\tb\tc"}, pair_task(), columns);
  REQUIRE(labelled_result.status == 0);
  CHECK(labelled_result.shard.tokens == TokenIds{8, 5, 6, 7, 1, 5, 0, 7, 6, 0});
  CHECK(labelled_result.shard.ends == std::vector<uint64_t>{3, 4, 5, 6, 6, 7, 8, 9, 10});
  CHECK(labelled_result.summary.num_examples == 3);
  CHECK(labelled_result.summary.num_labelled == 3);
  CHECK(labelled_result.summary.num_tokens == 7);
  const EncodingResult unlabelled_result = encode_files({"x\ty\na\tz\n"}, pair_task(), {"x", "y", ""});
  CHECK(unlabelled_result.shard.ends == std::vector<uint64_t>{1, 2, 2});
  CHECK(unlabelled_result.summary.num_labelled == 0);
  CHECK(unlabelled_result.summary.num_unknown == 1);
  const EncodingResult headerless_result = encode_files({"\xEF\xBB\xBF"
                                                         "1.5\ta\tb\n2\tb\tc\td\n"},
                                                        number_task(), {"2", "3", "1", false});
  CHECK(sequence(headerless_result.shard, 0, 2) == TokenIds{1500});
  CHECK(sequence(headerless_result.shard, 1, 1) == TokenIds{7});
  CHECK(sequence(headerless_result.shard, 0, 0) == TokenIds{5});
  // Malformed lines of a file with labels are refused unless `drop_malformed` is set.
  CHECK(encode_files({"1.5\ta\tb\n2\tb\n"}, number_task(), {"2", "3", "1", false}).status == 3);
  const std::string malformed = "x\ty\tz\na\tb\nb\tc\tno\na\tb\tc\tno\n";
  CHECK(encode_files({malformed}, pair_task(), columns).status == 3);
  const EncodingResult result_without_malformed = encode_files({malformed}, pair_task(), columns, true);
  CHECK(result_without_malformed.summary.num_malformed == 2);
  CHECK(result_without_malformed.shard.counts.num_dropped == (std::map<std::string, uint64_t>{{"malformed", 2}}));
  CHECK(sequence(result_without_malformed.shard, 0, 0) == TokenIds{6});
  // No line of a file without labels may be dropped, since predictions for the file are numbered by line.
  CHECK(encode_files({"x\ty\na\n"}, pair_task(), {"x", "y", ""}, true).status == 3);
  // Invalid labels, text and headers are always refused.
  CHECK(encode_files({"x\ty\tz\na\tb\tmaybe\n"}, pair_task(), columns, true).status == 3);
  CHECK(encode_files({"x\ty\tz\na\tb\t6\n"}, number_task(), columns).status == 3);
  CHECK(encode_files({"x\ty\tz\na\tb\xff\tno\n"}, pair_task(), columns).status == 3);
  CHECK(encode_files({"x\tz\n"}, pair_task(), columns).status == 3);
  CHECK(encode_files({"x\ty\tz\r\n"}, pair_task(), columns).status == 3);
  CHECK(encode_files({"x\ty\tz\n", "a\tb\tno\n"}, pair_task(), columns).status ==
        3);  // each file needs a header of its own
}

TEST_CASE("records of examples do not depend on the number of threads", "[examples]") {
  std::string text = "x\ty\tz\n";
  for (int i = 0; i < 120000; ++i)
    text += std::string(i % 7 + 1, 'a') + " b\tc a b\t" + (i % 3 > 0 ? "yes" : "no") + "\n";
  const EncodingResult single_threaded_result = encode_files({text, text}, pair_task(), {"x", "y", "z"}, false, 1);
  const EncodingResult multithreaded_result = encode_files({text, text}, pair_task(), {"x", "y", "z"}, false, 3);
  REQUIRE(single_threaded_result.summary.num_examples == 240000);
  CHECK(single_threaded_result.shard.tokens == multithreaded_result.shard.tokens);
  CHECK(single_threaded_result.shard.ends == multithreaded_result.shard.ends);
}

TEST_CASE("truncate_lengths() truncates the longer of two sentences first", "[examples]") {
  using Lengths = std::pair<int64_t, int64_t>;
  CHECK(text::truncate_lengths(3, 4, 7) == Lengths{3, 4});
  CHECK(text::truncate_lengths(3, 10, 7) == Lengths{3, 4});
  CHECK(text::truncate_lengths(10, 3, 7) == Lengths{4, 3});
  CHECK(text::truncate_lengths(10, 10, 7) == Lengths{3, 4});
  CHECK(text::truncate_lengths(11, 10, 7) == Lengths{4, 3});
  CHECK(text::truncate_lengths(0, 10, 7) == Lengths{0, 7});
  CHECK(rc::check([] {
    const int64_t first = *rc::gen::inRange<int64_t>(0, 60), second = *rc::gen::inRange<int64_t>(0, 60);
    const int64_t room = *rc::gen::inRange<int64_t>(1, 70);
    const auto [a, b] = text::truncate_lengths(first, second, room);
    RC_ASSERT(a >= 0 && a <= first && b >= 0 && b <= second);
    RC_ASSERT(a + b == std::min(room, first + second));
    if (a < first) RC_ASSERT(a + 1 >= b);
    if (b < second) RC_ASSERT(b + 1 >= a);
  }));
}

TEST_CASE("an input sequence consists of the sentences and special tokens, truncated to the maximum length",
          "[examples]") {
  const EncodingResult encoded_pairs =
      encode_files({"x\ty\tz\na b c\ta b\tyes\na\t\tno\n"}, pair_task(), {"x", "y", "z"});
  const text::ClassificationExamples rows(text::sequences_of(encoded_pairs.shard), pair_task(), vocabulary(), 8);
  REQUIRE(rows.size() == 2);
  CHECK(rows.num_truncated() == 0);
  CHECK(rows.make(0).tokens == TokenIds{2, 5, 6, 7, 3, 5, 6, 3});
  CHECK(rows.make(0).first_segment_length == 5);
  CHECK(rows.make(0).targets == std::vector<int64_t>{1});
  CHECK(rows.make(1).tokens == TokenIds{2, 5, 3, 3});
  CHECK(rows.make(1).targets == std::vector<int64_t>{0});
  const text::ClassificationExamples short_rows(text::sequences_of(encoded_pairs.shard), pair_task(), vocabulary(), 6);
  CHECK(short_rows.num_truncated() == 1);
  CHECK(short_rows.make(0).tokens == TokenIds{2, 5, 6, 3, 5, 3});
  CHECK(short_rows.length(0) == 6);
  CHECK(short_rows.length(1) == 4);
  CHECK(status_of([&] {
          text::ClassificationExamples(text::sequences_of(encoded_pairs.shard), pair_task(), vocabulary(), 3);
        }) == 2);
  ExampleTask single_task = pair_task();
  single_task.num_sentences = 1;
  const EncodingResult encoded_single = encode_files({"x\na b c\n"}, single_task, {"x", "", ""});
  const text::ClassificationExamples single_rows(text::sequences_of(encoded_single.shard), single_task, vocabulary(),
                                                 4);
  CHECK(single_rows.make(0).tokens == TokenIds{2, 5, 6, 3});
  CHECK(single_rows.make(0).first_segment_length == 4);
  CHECK(single_rows.make(0).targets == std::vector<int64_t>{-1});
  CHECK(single_rows.num_unlabelled() == 1);
  CHECK(single_rows.num_truncated() == 1);
}

TEST_CASE("the vocabulary for BERT is read from a vocabulary file, a checkpoint or vocab.txt", "[examples]") {
  Folder folder;
  write_file_atomically(folder.file("v"), vocabulary().serialize());
  write_file_atomically(folder.file("vocab.txt"), serialize_wordpieces(vocabulary().pieces()));
  Tokenizers tokenizers{parse_tokenizer(vocabulary().serialize(), "v"), nullptr};
  const auto write_model = [&](const std::string& name, const Tokenizers& model_tokenizers) {
    Metadata metadata = metadata_of(model_tokenizers);
    metadata[kFormatKey] = "1";
    auto sink = open_sink(folder.file(name));
    write_checkpoint(*sink, {}, metadata);
    sink->close();
  };
  write_model("m.safetensors", tokenizers);
  for (const char* name : {"v", "m.safetensors"}) {
    BertVocabularyOptions source;
    source.vocabulary_path = folder.file(name);
    CHECK(source.load()->fingerprint() == vocabulary().fingerprint());
  }
  BertVocabularyOptions source;
  source.wordpiece_path = folder.file("vocab.txt");
  CHECK(require_wordpiece(*source.load(), "v").normalisation() == BertNormalisation{true, true});
  source.cased = true;
  CHECK(require_wordpiece(*source.load(), "v").normalisation() == BertNormalisation{false, false});
  source.strip_accents = "yes";
  CHECK(require_wordpiece(*source.load(), "v").normalisation() == BertNormalisation{false, true});
  tokenizers.target = make_byte_tokenizer();
  write_model("bytes.safetensors", tokenizers);
  const auto status = [&](const std::string& vocab, const std::string& wordpiece) {
    BertVocabularyOptions bert_vocabulary;
    bert_vocabulary.vocabulary_path = vocab.empty() ? "" : folder.file(vocab),
    bert_vocabulary.wordpiece_path = wordpiece.empty() ? "" : folder.file(wordpiece);
    return status_of([&] { bert_vocabulary.load(); });
  };
  CHECK(status("bytes.safetensors", "") == 3);
  CHECK(status("vocab.txt", "") == 3);
  CHECK(status("none", "") == 3);
  CHECK(status("", "v") == 3);
  CHECK(status("", "") == 2);
  CHECK(status("v", "vocab.txt") == 2);
  BertVocabularyOptions cased, strip_accents;
  cased.cased = true;
  strip_accents.strip_accents = "no";
  for (const auto& [option, options] : {std::pair{"--cased", &cased}, {"--strip-accents", &strip_accents}}) {
    options->vocabulary_path = folder.file("v");
    CHECK_THAT(refusal([o = options] { o->check(); }),
               Catch::Contains(str(option,
                                   ": expected --wordpiece, since a vocabulary of --vocab states how text is "
                                   "normalised; found --vocab; leave ",
                                   option, " out")));
  }
}
