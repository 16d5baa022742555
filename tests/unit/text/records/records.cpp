// Tests of shards of documents and shards of examples, in which each record has one token sequence per field:
// round trips, limits of fields, and refusal of sequences that the record kind does not allow.
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "fixtures/corrupt_shards.h"
#include "fixtures/folder.h"
#include "fixtures/shards.h"
#include "fixtures/status.h"
#include "io/record_kind.h"
#include "io/shard.h"
#include "text/records/classification.h"
#include "text/records/language_modelling.h"
#include "text/records/masked_words.h"
#include "text/records/preparation.h"
#include "text/records/record_text.h"
#include "text/records/sequence_check.h"
#include "text/records/sequences.h"
#include "text/records/translation.h"
#include "text/records/whole_shard.h"
#include "text/tokenizer.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;
using shards::read_pairs;
using shards::read_tokens;

namespace {

using SequenceList = std::vector<std::vector<int32_t>>;

ShardHeader header_of(const std::string& kind, std::vector<int64_t> limits = {}) {
  const auto bytes = make_byte_tokenizer();
  ShardHeader h = header_of(*bytes);
  h.set_kind(kind, std::move(limits));
  return h;
}

void write_shard(const std::string& path, const ShardHeader& h, const SequenceList& sequences) {
  auto sink = open_sink(path);
  ShardWriter writer(*sink, h);
  for (const auto& sequence : sequences) writer.add_sequence(sequence);
  writer.finish();
  sink->close();
}

// Checks that every reader of the shard at `path` returns the token sequences `sequences`.
void check_readers_return(const std::string& path, const std::string& kind, const SequenceList& sequences) {
  const WholeShard shard = read_whole_shard(path, kind);
  const ShardFile file(path);
  verify(file);
  const text::Sequences file_sequences = text::sequences_of(file), shard_sequences = text::sequences_of(shard);
  const size_t num_fields = shard.header.field_names.size();
  RC_ASSERT(shard.size() == sequences.size() / num_fields);
  RC_ASSERT(shard.ends.size() == sequences.size());
  RC_ASSERT(file_sequences.ends == shard.ends);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto sequence = shard.sequence(i / num_fields, i % num_fields);
    RC_ASSERT(std::vector<int32_t>(sequence.begin(), sequence.end()) == sequences[i]);
    RC_ASSERT(file_sequences.sequence(i) == sequences[i]);
    RC_ASSERT(shard_sequences.sequence(i) == sequences[i]);
  }
}

auto random_tokens(int32_t limit, size_t max_length) {
  return rc::gen::resize(static_cast<int>(max_length),
                         rc::gen::container<std::vector<int32_t>>(rc::gen::inRange<int32_t>(0, limit)));
}

}  // namespace

TEST_CASE("each record kind has subcommands of mh-prep that make its shards, and a RecordText that prints them",
          "[records]") {
  for (const std::string& kind : record_kind_names()) {
    INFO(kind);
    CHECK(!record_kind(kind)->preparations().empty());
    for (const std::string& preparation : record_kind(kind)->preparations())
      CHECK(status_of([&] { preparations().find(preparation, "mh-prep"); }) == 0);
    CHECK(status_of([&] { record_texts().find(kind, "x.mhs"); }) == 0);
  }
  CHECK(prep_commands_for(kExamplesKind) == "mh-prep glue or mh-prep examples");
  CHECK(prep_commands_for("other") == "mh-prep");
  CHECK(status_of([] { refuse_unknown_kind("other", "x.mhs"); }) == 3);
}

TEST_CASE("documents read back equal, sentence by sentence", "[records]") {
  Folder folder;
  CHECK(rc::check([&] {
    SequenceList sequences;
    for (int document = *rc::gen::inRange(0, 5); document > 0; --document) {
      for (int sentence = *rc::gen::inRange(1, 5); sentence > 0; --sentence)
        sequences.push_back(*rc::gen::nonEmpty(random_tokens(256, 20)));
      sequences.emplace_back();
    }
    write_shard(folder.file("x.mhs"), header_of(kDocumentsKind), sequences);
    check_readers_return(folder.file("x.mhs"), kDocumentsKind, sequences);
  }));
}

TEST_CASE("examples read back equal with labels above the vocabulary size", "[records]") {
  Folder folder;
  CHECK(rc::check([&] {
    const int32_t num_labels = *rc::gen::element<int32_t>(2, 5001, 70000);
    ShardHeader h = header_of(kExamplesKind, {256, 256, num_labels});
    RC_ASSERT(h.token_bytes == (num_labels > 65536 ? 4 : 2));
    h.task = R"({"labels":["no","yes"],"name":"any"})";
    SequenceList sequences;
    for (int record = *rc::gen::inRange(0, 20); record > 0; --record) {
      sequences.push_back(*random_tokens(256, 10));
      sequences.push_back(*random_tokens(256, 10));
      sequences.push_back(*rc::gen::elementOf(std::vector<std::vector<int32_t>>{{}, {0}, {num_labels - 1}}));
    }
    write_shard(folder.file("x.mhs"), h, sequences);
    check_readers_return(folder.file("x.mhs"), kExamplesKind, sequences);
    const ShardHeader actual = ShardFile(folder.file("x.mhs")).header();
    RC_ASSERT(actual.limits == h.limits);
    RC_ASSERT(actual.task == h.task);
    RC_ASSERT(actual.limit_of(2) == num_labels);
  }));
}

TEST_CASE("ShardWriter refuses token sequences and headers that the record kind does not allow", "[records]") {
  Folder folder;
  auto sink = open_sink(folder.file("x.mhs"));
  const auto check_write_fails = [&](const ShardHeader& h, const SequenceList& sequences) {
    CHECK(status_of([&] {
            ShardWriter writer(*sink, h);
            for (const auto& sequence : sequences) writer.add_sequence(sequence);
            writer.finish();
          }) == 1);
  };
  const ShardHeader documents = header_of(kDocumentsKind), examples = header_of(kExamplesKind, {256, 200, 3});
  check_write_fails(documents, {{}});                      // document without sentences
  check_write_fails(documents, {{1}, {}, {}});             // second document without sentences
  check_write_fails(documents, {{1}, {}, {2}});            // second document without an end
  check_write_fails(examples, {{1}, {2}, {0, 0}});         // two labels
  check_write_fails(examples, {{1}, {2}, {3}});            // label outside its limit
  check_write_fails(examples, {{1}, {200}, {2}});          // second sentence outside its limit
  check_write_fails(examples, {{256}, {2}, {2}});          // first sentence outside its limit
  check_write_fails(examples, {{1}, {2}, {2}, {1}, {1}});  // incomplete record
  const auto check_header_refused = [&](const ShardHeader& h) {
    CHECK(status_of([&] { ShardWriter writer(*sink, h); }) == 2);
    CHECK(status_of([&] { decode_header(encode_header(h), "x.mhs"); }) == 3);
  };
  check_header_refused(header_of(kExamplesKind, {256, 256}));
  // largest_limit() accepts a header with fewer limits than its kind has fields.
  CHECK(header_of(kExamplesKind, {256, 300}).largest_limit() == 300);
  check_header_refused(header_of(kExamplesKind, {256, 256, 2, 2}));
  check_header_refused(header_of(kExamplesKind, {256, 256, 0}));
  check_header_refused(header_of(kExamplesKind, {256, 257, 2}));
  check_header_refused(header_of(kExamplesKind, {256, 256, int64_t{1} << 40}));
  check_header_refused(header_of(kDocumentsKind, {256}));  // documents have no limits
  check_header_refused(header_of(kTextKind, {256}));
  check_header_refused(header_of(kPairsKind, {256, 256}));
  ShardHeader h = header_of(kDocumentsKind);
  h.field_names = {"tokens"};
  check_header_refused(h);
  h = header_of(kExamplesKind);
  h.task = "[]";
  check_header_refused(h);
  h.token_bytes = 2, h.task.clear(), h.limits = {256, 256, 70000};
  CHECK(status_of([&] { ShardWriter writer(*sink, h); }) == 2);
  CHECK(status_of([&] { h.set_kind("any"); }) == 2);
}

TEST_CASE("all readers refuse a shard that has valid checksums but token sequences that its kind does not allow",
          "[records]") {
  Folder folder;
  const std::string path = folder.file("x.mhs");
  const auto check_sequences = [&](const ShardHeader& kind_header, const SequenceList& sequences, bool is_accepted) {
    ShardHeader h = kind_header;
    h.kind = "any", h.limits.clear();
    write_shard(path, h, sequences);
    replace_header(path, kind_header);
    CHECK(status_of([&] { verify(ShardFile(path)); }) == (is_accepted ? 0 : 3));
    CHECK(status_of([&] { read_whole_shard(path, kind_header.kind); }) == (is_accepted ? 0 : 3));
  };
  const ShardHeader documents = header_of(kDocumentsKind), examples = header_of(kExamplesKind, {256, 200, 3});
  check_sequences(documents, {{1, 2}, {3}, {}, {4}, {}}, true);
  check_sequences(documents, {}, true);
  check_sequences(documents, {{1, 2}, {3}, {}, {4}}, false);
  check_sequences(documents, {{1}, {}, {}}, false);
  check_sequences(documents, {{}, {1}, {}}, false);
  check_sequences(examples, {{255}, {199}, {2}, {}, {}, {}, {}, {}, {1}}, true);
  check_sequences(examples, {{1}, {}, {3}}, false);
  check_sequences(examples, {{1}, {200}, {}}, false);
  check_sequences(examples, {{}, {}, {}, {1}, {200}, {2}}, false);
  check_sequences(examples, {{1}, {2}, {1, 1}}, false);
  ShardHeader altered_header = examples;
  altered_header.fingerprint = "another";
  check_sequences(altered_header, {{1}, {}, {}}, false);
  altered_header = examples;
  altered_header.tokenizer = "not a vocabulary";
  check_sequences(altered_header, {{1}, {}, {}}, false);
  // The readers of other kinds refuse a shard of documents.
  write_shard(path, documents, {{1}, {}});
  CHECK(status_of([&] { read_whole_shard(path, kExamplesKind); }) == 3);
  CHECK(status_of([&] { read_pairs(path); }) == 3);
  CHECK(status_of([&] { read_tokens(path); }) == 3);
}
