#include "io/shard_format.h"

#include <xxhash.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"
#include "io/record_kind.h"

namespace mh::io {

using nlohmann::json;

namespace {

constexpr const char* kRemakeAdvice = "make the shard again with mh-prep, or copy it again";

// Returns a payload: the tag, the length of `text`, `text` (JSON), `tail`, and the XXH64 of all these bytes.
// Throws Error(usage) for more JSON than decode_payload() accepts.
std::string encode_payload(std::string_view tag, const std::string& text, const std::string& tail) {
  if (text.size() > kMaxJson)
    throw Error(Exit::usage,
                Problem{"shard", str("at most ", kMaxJson, " bytes of names of inputs, options and counts"),
                        str(text.size()), "name fewer inputs, or concatenate them"});
  std::string payload(tag);
  store64(payload, text.size());
  payload += text;
  payload += tail;
  store64(payload, XXH64(payload.data(), payload.size(), 0));
  return payload;
}

// Checks the tag and the checksum of a payload that encode_payload() made; returns the JSON and the bytes between the
// JSON and the checksum.
std::pair<json, std::string_view> decode_payload(std::string_view payload, std::string_view tag,
                                                 const std::string& name) {
  const std::string where = str(name, tag == kHeaderTag ? ": header" : ": trailer");
  if (payload.size() < 24 || payload.substr(0, 8) != tag)
    throw_damaged(where, str("the tag ", tag), "'" + std::string(payload.substr(0, 8)) + "'");
  const auto* bytes = reinterpret_cast<const uint8_t*>(payload.data());
  size_t body = payload.size() - 8;
  if (XXH64(bytes, body, 0) != load64(bytes + body))
    throw_damaged(where, "content that matches its checksum", "different content");
  uint64_t length = load64(bytes + 8);
  const uint64_t limit = std::min<uint64_t>(body - 16, kMaxJson);
  if (length > limit) throw_damaged(where, str("at most ", limit, " bytes of JSON"), str(length));
  const std::string_view text = payload.substr(16, length);
  require_sound_json(text, where, str("the shard is damaged; ", kRemakeAdvice));
  json header_json = json::parse(text, nullptr, false);
  if (!header_json.is_object()) throw_damaged(where, "a JSON object", "other text");
  return {std::move(header_json), payload.substr(16 + length, body - 16 - length)};
}

}  // namespace

void throw_damaged(const std::string& where, const std::string& expected, const std::string& found) {
  throw Error(Exit::input, Problem{where, expected, found, str("the shard is damaged; ", kRemakeAdvice)});
}
void throw_damaged(const std::string& name, uint64_t offset, const std::string& expected, const std::string& found) {
  throw_damaged(str(name, ": byte ", offset), expected, found);
}

void throw_truncated(const std::string& name, uint64_t offset, const std::string& expected) {
  throw Error(Exit::input, Problem{str(name, ": byte ", offset), expected, "the end of the file",
                                   str("the shard is truncated; ", kRemakeAdvice)});
}

namespace {

// Returns a description of the fault of the limits of a header, or "" if they are valid.
std::string limits_fault(const ShardHeader& h, const RecordKind* kind) {
  if (h.limits.empty()) return "";
  bool limits_valid = kind != nullptr && kind->num_token_fields < h.fields.size() && h.limits.size() == h.fields.size();
  for (size_t i = 0; limits_valid && i < h.limits.size(); ++i)
    limits_valid = h.limits[i] > 0 && h.limits[i] <= (i < kind->num_token_fields ? h.vocabulary : INT32_MAX);
  return limits_valid ? "" : str("the limits ", json(h.limits).dump(), " in a shard of the kind ", h.kind);
}

}  // namespace

std::string header_fault(const ShardHeader& h) {
  if ((h.token_bytes != 2 && h.token_bytes != 4) || h.vocabulary < 1 || h.vocabulary > INT32_MAX || h.fields.empty())
    return str(h.token_bytes, " bytes per token, ", h.vocabulary, " vocabulary entries, ", h.fields.size(), " fields");
  const RecordKind* kind = record_kind(h.kind);
  if (kind != nullptr && h.fields != kind->fields)
    return str("the kind ", h.kind, " with the fields ", join(h.fields, ", "));
  if (std::string fault = limits_fault(h, kind); !fault.empty()) return fault;
  if (!h.task.empty() && !json::parse(h.task, nullptr, false).is_object()) return "a task that is not a JSON object";
  if (h.shares_vocabulary() != h.source_tokenizer.empty() || h.shares_vocabulary() != h.source_fingerprint.empty() ||
      h.source_vocabulary < 0 || h.source_vocabulary > INT32_MAX ||
      (!h.shares_vocabulary() && h.side_of(0) != Side::source))
    return str("a source vocabulary of ", h.source_vocabulary, " entries with the fingerprint '", h.source_fingerprint,
               "' and a tokenizer of ", h.source_tokenizer.size(), " bytes, in a shard of the kind ", h.kind);
  return "";
}

int64_t ShardHeader::largest_limit() const {
  // Does not check the limits; header_fault() checks that each field has one.
  return limits.empty() ? std::max(vocabulary, source_vocabulary) : *std::ranges::max_element(limits);
}

void ShardHeader::set_kind(const std::string& name, std::vector<int64_t> field_limits) {
  const RecordKind* record = record_kind(name);
  if (record == nullptr) throw Error(Exit::usage, "shards have no kind " + name);
  kind = name;
  fields = record->fields;
  limits = std::move(field_limits);
  token_bytes = largest_limit() <= 65536 ? 2 : 4;
}

std::string encode_header(const ShardHeader& h) {
  json j = {{"kind", h.kind},
            {"fields", h.fields},
            {"token_bytes", h.token_bytes},
            {"vocabulary", h.vocabulary},
            {"fingerprint", h.fingerprint},
            {"provenance", json::parse(h.provenance)}};
  if (!h.shares_vocabulary()) {
    j["source_vocabulary"] = h.source_vocabulary;
    j["source_fingerprint"] = h.source_fingerprint;
    j["source_tokenizer_bytes"] = h.source_tokenizer.size();
  }
  if (!h.limits.empty()) j["limits"] = h.limits;
  if (!h.task.empty()) j["task"] = json::parse(h.task);
  return encode_payload(kHeaderTag, j.dump(-1, ' ', false, json::error_handler_t::replace),
                        h.tokenizer + h.source_tokenizer);
}

ShardHeader decode_header(std::string_view payload, const std::string& name) {
  auto [j, tail] = decode_payload(payload, kHeaderTag, name);
  ShardHeader h;
  uint64_t source_bytes = 0;
  try {
    h.kind = j.at("kind").get<std::string>();
    h.fields = j.at("fields").get<std::vector<std::string>>();
    h.token_bytes = j.at("token_bytes").get<int>();
    h.vocabulary = j.at("vocabulary").get<int64_t>();
    h.fingerprint = j.at("fingerprint").get<std::string>();
    h.provenance = j.at("provenance").dump();
    if (j.contains("limits")) h.limits = j.at("limits").get<std::vector<int64_t>>();
    if (j.contains("task")) h.task = j.at("task").dump();
    if (j.contains("source_vocabulary")) {
      h.source_vocabulary = j.at("source_vocabulary").get<int64_t>();
      h.source_fingerprint = j.at("source_fingerprint").get<std::string>();
      source_bytes = j.at("source_tokenizer_bytes").get<uint64_t>();
    }
  } catch (const json::exception& error) {
    throw_damaged(str(name, ": header"), "all keys of the header", error.what());
  }
  if (source_bytes > tail.size())
    throw_damaged(str(name, ": header"), str("a source tokenizer within ", tail.size(), " bytes"), str(source_bytes));
  h.tokenizer = std::string(tail.substr(0, tail.size() - source_bytes));
  h.source_tokenizer = std::string(tail.substr(tail.size() - source_bytes));
  if (std::string fault = header_fault(h); !fault.empty())
    throw_damaged(str(name, ": header"),
                  "2 or 4 bytes per token, a vocabulary, and the fields, limits and sides of the record kind", fault);
  return h;
}

std::string encode_trailer(const Trailer& t) {
  json j = {{"tokens", t.counts.tokens},       {"records", t.counts.records},     {"text_bytes", t.counts.text_bytes},
            {"content_xxh64", t.content_hash}, {"lengths_xxh64", t.lengths_hash}, {"runs", t.num_sequences},
            {"lengths_bytes", t.lengths_bytes}};
  if (!t.counts.dropped.empty()) j["dropped"] = t.counts.dropped;
  return encode_payload(kTrailerTag, j.dump(), "");
}

Trailer decode_trailer(std::string_view payload, const std::string& name) {
  auto [j, tail] = decode_payload(payload, kTrailerTag, name);
  Trailer t;
  try {
    t.counts.tokens = j.at("tokens").get<uint64_t>();
    t.counts.records = j.at("records").get<uint64_t>();
    t.counts.text_bytes = j.at("text_bytes").get<uint64_t>();
    t.content_hash = j.at("content_xxh64").get<uint64_t>();
    t.lengths_hash = j.at("lengths_xxh64").get<uint64_t>();
    t.num_sequences = j.at("runs").get<uint64_t>();
    t.lengths_bytes = j.at("lengths_bytes").get<uint64_t>();
    if (j.contains("dropped")) t.counts.dropped = j.at("dropped").get<std::map<std::string, uint64_t>>();
  } catch (const json::exception& error) {
    throw_damaged(str(name, ": trailer"), "all keys of the trailer", error.what());
  }
  return t;
}

void decode_lengths(const std::string& varints, const Trailer& t, const std::string& name,
                    std::vector<uint32_t>* lengths) {
  if (varints.size() != t.lengths_bytes || XXH64(varints.data(), varints.size(), 0) != t.lengths_hash)
    throw_damaged(name, "sequence lengths with a matching checksum", "a different checksum");
  if (lengths != nullptr) lengths->reserve(t.num_sequences <= varints.size() ? t.num_sequences : 0);
  uint64_t num_sequences = 0, sum = 0, value = 0;
  int shift = 0;
  for (char c : varints) {
    auto byte = static_cast<uint8_t>(c);
    value |= uint64_t{byte & 0x7FU} << shift;
    shift += 7;
    if ((byte & 0x80) != 0) {
      if (shift > 28) throw_damaged(name, "sequence lengths below 2^32", "a larger length");
      continue;
    }
    if (value > UINT32_MAX) throw_damaged(name, "sequence lengths below 2^32", str(value));
    if (lengths != nullptr) lengths->push_back(static_cast<uint32_t>(value));
    ++num_sequences;
    sum += value;
    value = 0;
    shift = 0;
  }
  if (num_sequences != t.num_sequences || sum != t.counts.tokens)
    throw_damaged(name, str(t.num_sequences, " sequences, in total ", t.counts.tokens, " tokens"),
                  str(num_sequences, " sequences, total length ", sum));
}

}  // namespace mh::io
