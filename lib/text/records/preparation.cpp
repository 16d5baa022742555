#include "text/records/preparation.h"

#include <algorithm>

#include "base/empty_input.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/processors.h"
#include "base/text.h"
#include "base/version.h"

namespace mh::text {

using nlohmann::ordered_json;

namespace {

// Returns the format of a compressed file or a shard, given its first bytes; empty for other files.
std::string compression_of(std::string_view bytes) {
  struct Format {
    std::string_view name, magic;
  };
  using namespace std::string_view_literals;
  static constexpr Format kFormats[] = {{"gzip", "\x1F\x8B\x08"},
                                        {"zip", "PK\x03\x04"},
                                        {"zstd", "\x28\xB5\x2F\xFD"},
                                        {"bzip2", "BZh"},
                                        {"xz",
                                         "\xFD"
                                         "7zXZ\0"sv},
                                        {"shard", "\x50\x2A\x4D\x18"}};
  for (const Format& format : kFormats)
    if (bytes.starts_with(format.magic)) return std::string(format.name);
  return "";
}

}  // namespace

Registry<Preparation>& preparations() {
  static Registry<Preparation> registry("preparation");
  return registry;
}

LineEnds line_ends(const PrepArguments& arguments, bool takes_any_bytes) {
  return takes_any_bytes                       ? LineEnds::as_text
         : arguments.crlf_handling == "refuse" ? LineEnds::refuse_crlf_in_prep
                                               : LineEnds::normalise_crlf;
}

void log_removed_bytes(uint64_t num_crlf_lines, uint64_t num_byte_order_marks) {
  if (num_crlf_lines > 0) log_info(count_with_commas(num_crlf_lines, "line") + " ended in CR LF; the CR is dropped");
  if (num_byte_order_marks > 1)
    log_info(count_with_commas(num_byte_order_marks, "file") + " began with a byte order mark, which is dropped");
}

int EncodingThreads::num_threads() const { return threads > 0 ? static_cast<int>(threads) : num_usable_processors(); }

void refuse_output_onto(const PrepArguments& arguments, const std::vector<std::string>& files) {
  std::vector<std::string> input_files = arguments.inputs;
  input_files.insert(input_files.end(), files.begin(), files.end());
  refuse_output_onto_input(arguments.output, input_files);
}

std::unique_ptr<Tokenizer> load_vocabulary(const PrepArguments& arguments, const BertVocabularyOptions& vocabulary) {
  vocabulary.check();
  refuse_output_onto(arguments, {vocabulary.path()});
  return vocabulary.load();
}

void write_shard(const PrepArguments& arguments, const io::ShardHeader& header,
                 const std::function<void(io::ShardWriter&)>& encode) {
  const auto sink = open_sink(arguments.output);
  io::ShardWriter writer(*sink, header);
  encode(writer);
  writer.finish();
  sink->close();
}

void refuse_inputs(const PrepArguments& arguments, const std::string& expected, const std::string& found,
                   const std::string& advice) {
  std::vector<std::string> names;
  for (const std::string& input : arguments.inputs) names.push_back(input_name(input));
  refuse_input(join(names, ", "), expected, found, advice);
}

void refuse_empty_inputs(const PrepArguments& arguments, const std::string& expected, const std::string& advice) {
  if (arguments.inputs == std::vector<std::string>{"-"}) throw empty_input_error(input_name("-"), expected, advice);
  refuse_inputs(arguments, expected, "an empty input", advice);
}

std::string format_throughput(uint64_t bytes, double seconds) {
  const double rate = static_cast<double>(bytes) / std::max(seconds, 1e-6);
  return str(human_bytes(bytes), " in ", human_seconds(seconds), " (", human_bytes(static_cast<uint64_t>(rate)), "/s)");
}

std::string format_count(uint64_t count, const std::string& text) {
  return with_commas(static_cast<int64_t>(count)) + " " + text;
}

std::string provenance_of(const PrepArguments& arguments, const BertVocabularyOptions& vocabulary,
                          const ordered_json& options) {
  ordered_json provenance{{"tool", str("mh-prep ", version())}, {"inputs", arguments.inputs}};
  if (vocabulary.wordpiece_path.empty()) provenance["vocabulary"] = vocabulary.vocabulary_path;
  else
    provenance.update({{"wordpiece", vocabulary.wordpiece_path},
                       {"cased", vocabulary.cased},
                       {"strip_accents", vocabulary.strip_accents}});
  provenance["crlf"] = arguments.crlf_handling;
  if (!options.empty()) provenance.update(options);
  return provenance.dump(-1, ' ', false, ordered_json::error_handler_t::replace);  // file names may contain any bytes
}

void warn_compressed_inputs(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (!MappedFile::is_mappable(file)) continue;
    char first_bytes[8];
    const size_t size = open_source(file)->read(first_bytes, sizeof first_bytes);
    if (const std::string format = compression_of({first_bytes, size}); !format.empty())
      log_warning(
          str(file, " is a ", format,
              " file, whose compressed bytes become the text; decompress the file first to encode its content"));
  }
}

}  // namespace mh::text
