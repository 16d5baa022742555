#include "io/shard_format.h"

#include <xxhash.h>
#include <zstd_errors.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/json_integer.h"
#include "base/json_types.h"
#include "base/text.h"
#include "io/record_kind.h"

namespace mh::io {

using nlohmann::json;

namespace {

constexpr const char* kRemakeAdvice = "make the shard again with mh-prep, or copy the file again";

// Returns a payload: the tag, the length of `text`, `text` (JSON), `tail`, and the XXH64 of all these bytes.
// Throws Error(usage) for more JSON than decode_payload() accepts.
std::string encode_payload(std::string_view tag, const std::string& text, const std::string& tail) {
  if (text.size() > kMaxJsonBytes)
    refuse_usage("shard", str("at most ", kMaxJsonBytes, " bytes for the names of inputs, the options and the counts"),
                 count_of(text.size(), "byte"), "name fewer inputs, or concatenate the input files");
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
  // The last byte of a tag is the version of the format.
  if (payload.size() >= 24 && payload.substr(0, 8) != tag && payload.substr(0, 7) == tag.substr(0, 7))
    refuse_input(where, str("version ", tag.substr(7), " of the shard format"), quote_start(payload.substr(7, 1)),
                 "use a newer version of multihead, or make the shard again with mh-prep");
  if (payload.size() < 24 || payload.substr(0, 8) != tag)
    throw_damaged(where, str("the tag ", tag), "'" + std::string(payload.substr(0, 8)) + "'");
  const auto* bytes = reinterpret_cast<const uint8_t*>(payload.data());
  size_t checksum_offset = payload.size() - 8;
  if (XXH64(bytes, checksum_offset, 0) != load64(bytes + checksum_offset))
    throw_damaged(where, "content that matches its checksum", "different content");
  uint64_t length = load64(bytes + 8);
  const uint64_t limit = std::min<uint64_t>(checksum_offset - 16, kMaxJsonBytes);
  if (length > limit)
    throw_damaged(where, str("at most ", count_of(limit, "byte"), " of JSON"), count_of(length, "byte"));
  const std::string_view text = payload.substr(16, length);
  require_sound_json(text, where, str("the shard is damaged; ", kRemakeAdvice));
  json payload_json = json::parse(text, nullptr, false);
  if (!payload_json.is_object()) throw_damaged(where, "a JSON object", "other text");
  return {std::move(payload_json), payload.substr(16 + length, checksum_offset - 16 - length)};
}

}  // namespace

size_t check_zstd_memory(size_t result) {
  if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) throw std::bad_alloc();
  return result;
}

void throw_damaged(const std::string& where, const std::string& expected, const std::string& found) {
  refuse_input(where, expected, found, str("the shard is damaged; ", kRemakeAdvice));
}
void throw_damaged(const std::string& name, uint64_t offset, const std::string& expected, const std::string& found) {
  throw_damaged(str(name, ": byte ", offset), expected, found);
}

void throw_truncated(const std::string& name, uint64_t offset, const std::string& expected) {
  refuse_input(str(name, ": byte ", offset), expected, "the end of the file",
               str("the shard is truncated; ", kRemakeAdvice));
}

namespace {

// Returns a description of the invalid limits of a header, or "" if the limits are valid.
std::string limits_fault(const ShardHeader& header, const RecordKind* kind) {
  if (header.limits.empty()) return "";
  bool are_valid = kind != nullptr && kind->num_token_fields() < header.field_names.size() &&
                   header.limits.size() == header.field_names.size();
  for (size_t i = 0; are_valid && i < header.limits.size(); ++i)
    are_valid =
        header.limits[i] > 0 && header.limits[i] <= (i < kind->num_token_fields() ? header.vocabulary_size : INT32_MAX);
  return are_valid ? "" : str("the limits ", json(header.limits).dump(), " in a shard of the kind ", header.kind);
}

}  // namespace

std::string header_fault(const ShardHeader& header) {
  if ((header.token_bytes != 2 && header.token_bytes != 4) || header.vocabulary_size < 1 ||
      header.vocabulary_size > INT32_MAX || header.field_names.empty())
    return str(count_of(header.token_bytes, "byte"), " per token, ", header.vocabulary_size, " vocabulary entries, ",
               count_of(header.field_names.size(), "field"));
  const RecordKind* kind = record_kind(header.kind);
  if (kind != nullptr && header.field_names != kind->field_names())
    return str("the kind ", header.kind, " with the fields ", join(header.field_names, ", "));
  if (std::string fault = limits_fault(header, kind); !fault.empty()) return fault;
  if (!header.task.empty() && !json::parse(header.task, nullptr, false).is_object())
    return "a task that is not a JSON object";
  if (header.shares_vocabulary() != header.source_tokenizer.empty() ||
      header.shares_vocabulary() != header.source_fingerprint.empty() || header.source_vocabulary_size < 0 ||
      header.source_vocabulary_size > INT32_MAX || (!header.shares_vocabulary() && header.side_of(0) != Side::source))
    return str("a source vocabulary of ", count_of(header.source_vocabulary_size, "entry"), " with the fingerprint '",
               header.source_fingerprint, "' and a tokenizer of ", count_of(header.source_tokenizer.size(), "byte"),
               ", in a shard of the kind ", header.kind);
  return "";
}

Side ShardHeader::side_of(uint64_t field) const {
  const RecordKind* entry = record_kind(kind);
  return entry != nullptr && field < entry->num_source_fields() ? Side::source : Side::target;
}

int64_t ShardHeader::largest_limit() const {
  // Does not check the limits; header_fault() checks that each field has a limit.
  return limits.empty() ? std::max(vocabulary_size, source_vocabulary_size) : *std::ranges::max_element(limits);
}

void ShardHeader::set_kind(const std::string& name, std::vector<int64_t> field_limits) {
  const RecordKind* matching_kind = record_kind(name);
  if (matching_kind == nullptr)
    throw Error(Exit::usage, "shard: expected a known kind of records; found " + name + "; use a kind of mh-shard(5)");
  kind = name;
  field_names = matching_kind->field_names();
  limits = std::move(field_limits);
  token_bytes = largest_limit() <= 65536 ? 2 : 4;
}

std::string encode_header(const ShardHeader& header) {
  json header_json = {{"kind", header.kind},
                      {"fields", header.field_names},
                      {"token_bytes", header.token_bytes},
                      {"vocabulary", header.vocabulary_size},
                      {"fingerprint", header.fingerprint},
                      {"provenance", json::parse(header.provenance)}};
  if (!header.shares_vocabulary()) {
    header_json["source_vocabulary"] = header.source_vocabulary_size;
    header_json["source_fingerprint"] = header.source_fingerprint;
    header_json["source_tokenizer_bytes"] = header.source_tokenizer.size();
  }
  if (!header.limits.empty()) header_json["limits"] = header.limits;
  if (!header.task.empty()) header_json["task"] = json::parse(header.task);
  return encode_payload(kHeaderTag, header_json.dump(-1, ' ', false, json::error_handler_t::replace),
                        header.tokenizer + header.source_tokenizer);
}

ShardHeader decode_header(std::string_view payload, const std::string& name) {
  auto [header_json, tail] = decode_payload(payload, kHeaderTag, name);
  ShardHeader header;
  uint64_t source_tokenizer_bytes = 0;
  try {
    header.kind = header_json.at("kind").get<std::string>();
    header.field_names = header_json.at("fields").get<std::vector<std::string>>();
    header.token_bytes = integer_of<int>(header_json.at("token_bytes"));
    header.vocabulary_size = integer_of<int64_t>(header_json.at("vocabulary"));
    header.fingerprint = header_json.at("fingerprint").get<std::string>();
    header.provenance = header_json.at("provenance").dump();
    if (header_json.contains("limits")) header.limits = integers_of<int64_t>(header_json.at("limits"));
    if (header_json.contains("task")) header.task = header_json.at("task").dump();
    if (header_json.contains("source_vocabulary")) {
      header.source_vocabulary_size = integer_of<int64_t>(header_json.at("source_vocabulary"));
      header.source_fingerprint = header_json.at("source_fingerprint").get<std::string>();
      source_tokenizer_bytes = integer_of<uint64_t>(header_json.at("source_tokenizer_bytes"));
    }
  } catch (const json::exception& error) {
    throw_damaged(str(name, ": header"), "all keys of the header", json_error_text(error.what()));
  }
  if (source_tokenizer_bytes > tail.size())
    throw_damaged(str(name, ": header"), str("a source tokenizer of at most ", count_of(tail.size(), "byte")),
                  count_of(source_tokenizer_bytes, "byte"));
  header.tokenizer = std::string(tail.substr(0, tail.size() - source_tokenizer_bytes));
  header.source_tokenizer = std::string(tail.substr(tail.size() - source_tokenizer_bytes));
  if (std::string fault = header_fault(header); !fault.empty())
    throw_damaged(
        str(name, ": header"),
        "2 or 4 bytes per token, a vocabulary, and the fields, limits and source vocabulary of the record kind", fault);
  return header;
}

std::string encode_trailer(const Trailer& trailer) {
  json trailer_json = {{"tokens", trailer.counts.num_tokens},     {"records", trailer.counts.num_records},
                       {"text_bytes", trailer.counts.text_bytes}, {"content_xxh64", trailer.content_hash},
                       {"lengths_xxh64", trailer.lengths_hash},   {"runs", trailer.num_sequences},
                       {"lengths_bytes", trailer.lengths_bytes}};
  if (!trailer.counts.num_dropped.empty()) trailer_json["dropped"] = trailer.counts.num_dropped;
  return encode_payload(kTrailerTag, trailer_json.dump(), "");
}

Trailer decode_trailer(std::string_view payload, const std::string& name) {
  auto [trailer_json, tail] = decode_payload(payload, kTrailerTag, name);
  Trailer trailer;
  try {
    trailer.counts.num_tokens = integer_of<uint64_t>(trailer_json.at("tokens"));
    trailer.counts.num_records = integer_of<uint64_t>(trailer_json.at("records"));
    trailer.counts.text_bytes = integer_of<uint64_t>(trailer_json.at("text_bytes"));
    trailer.content_hash = integer_of<uint64_t>(trailer_json.at("content_xxh64"));
    trailer.lengths_hash = integer_of<uint64_t>(trailer_json.at("lengths_xxh64"));
    trailer.num_sequences = integer_of<uint64_t>(trailer_json.at("runs"));
    trailer.lengths_bytes = integer_of<uint64_t>(trailer_json.at("lengths_bytes"));
    if (trailer_json.contains("dropped"))
      trailer.counts.num_dropped = integers_by_key<uint64_t>(trailer_json.at("dropped"));
  } catch (const json::exception& error) {
    throw_damaged(str(name, ": trailer"), "all keys of the trailer", json_error_text(error.what()));
  }
  return trailer;
}

void decode_lengths(const std::string& varints, const Trailer& trailer, const std::string& name,
                    std::vector<uint32_t>* lengths) {
  if (varints.size() != trailer.lengths_bytes || XXH64(varints.data(), varints.size(), 0) != trailer.lengths_hash)
    throw_damaged(name, "sequence lengths with a matching checksum", "a different checksum");
  if (lengths != nullptr) lengths->reserve(trailer.num_sequences <= varints.size() ? trailer.num_sequences : 0);
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
  if (num_sequences != trailer.num_sequences || sum != trailer.counts.num_tokens)
    throw_damaged(
        name,
        str(count_of(trailer.num_sequences, "sequence"), ", in total ", count_of(trailer.counts.num_tokens, "token")),
        str(count_of(num_sequences, "sequence"), ", in total ", count_of(sum, "token")));
}

}  // namespace mh::io
