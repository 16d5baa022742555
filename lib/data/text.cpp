#include "data/text.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "ceil_div.h"
#include "data/batches.h"
#include "data/sample.h"
#include "data/sentence_streams.h"
#include "data/sorted_rows.h"

namespace mh::data {

namespace {

// Default number of streams: the batch size of the published evaluation of Transformer-XL.
constexpr int64_t kDefaultNumStreams = 10;

// The rows of `num_streams` parallel streams. Each stream feeds one row per step to the model, for `num_steps` steps,
// and has its own memory if the model uses a memory; rows past the end of a stream have length 0.
struct StreamRows {
  int64_t num_streams, num_steps;
  std::function<Row(int64_t stream, int64_t step)> row_at;
  int64_t num_memory_steps = 0;  // number of initial steps that only fill the memory and are not scored
};

void require_context_below_length(int64_t sequence_length, int64_t context) {
  if (context >= sequence_length)
    refuse_usage("--context", str("less than the sequence length, ", count_of(sequence_length, "token")), str(context),
                 "raise --sequence-length, or lower --context");
}

// Returns one stream for each sampled block. The stream consists of the blocks that fill the memory, and of the sampled
// block.
StreamRows sampled_streams(const ScoringOptions& o, int64_t num_tokens) {
  const int64_t num_memory_blocks = o.memory > 0 ? ceil_div(o.memory, o.sequence_length) : 0,
                num_scored_tokens = o.sequence_length - o.context;
  // The scored tokens of a sampled block begin at a multiple of `num_scored_tokens`, and the text contains the full
  // context and memory of the block.
  const int64_t first_block = num_memory_blocks + (o.context > 0 ? ceil_div(o.context, num_scored_tokens) : 0),
                num_candidate_blocks = num_tokens / num_scored_tokens - first_block;
  const int64_t num_sampled_blocks =
      sample_size(o.sample, num_candidate_blocks,
                  str("the number of full blocks of ", count_of(o.sequence_length, "token"), " in the text",
                      num_memory_blocks > 0 ? " that follow a full memory" : ""),
                  "lower --blocks or --sequence-length");
  const auto sampled_blocks = draw_sample(num_sampled_blocks, num_candidate_blocks, o.sample.seed);
  return {num_sampled_blocks, num_memory_blocks + 1,
          [=](int64_t stream, int64_t step) -> Row {
            const int64_t scored_begin =
                (first_block + sampled_blocks[static_cast<size_t>(stream)] - num_memory_blocks + step) *
                num_scored_tokens;
            return {scored_begin - o.context, o.sequence_length, o.context};
          },
          num_memory_blocks};
}

// Returns the token that is not scored; -1: none.
int32_t unscored_id_of(const Text& text, const ScoringOptions& o) { return o.uses_begin_token() ? text.begin_id : -1; }

StreamRows streams_of(const ScoringOptions& o, int64_t num_tokens) {
  if (o.sample.blocks > 0) return sampled_streams(o, num_tokens);
  if (o.memory > 0) {
    const Streams streams(num_tokens, o.streams, o.sequence_length);
    return {o.streams, streams.num_segments(),
            [streams](int64_t stream, int64_t step) { return streams.row(stream, step); }};
  }
  auto chunks = make_chunks(num_tokens, o.sequence_length, o.context);
  const auto count = static_cast<int64_t>(chunks.size());
  return {count, 1, [chunks](int64_t stream, int64_t) { return chunks[static_cast<size_t>(stream)]; }};
}

// Splits each document of a text into rows by make_chunks(). The begin token is the input before the first token of a
// document. No row has the last token of a document if this token is the begin token, which is not scored.
std::vector<Row> make_document_rows(const Text& text, const ScoringOptions& o) {
  std::vector<Row> rows;
  const auto append = [&](int64_t begin, int64_t end) {
    for (Row row : make_chunks(end - begin, o.sequence_length, o.context)) {
      row.offset += begin;
      row.starts_with_begin = row.offset == begin;
      rows.push_back(row);
    }
  };
  if (text.document_ends == nullptr) {
    append(0, text.num_tokens);
    return rows;
  }
  const int64_t num_unscored_tokens = text.end_of_line_id == text.begin_id ? 1 : 0;  // at the end of each document
  int64_t begin = 0;
  for (const int64_t end : *text.document_ends) {
    append(begin, end - num_unscored_tokens);
    begin = end;
  }
  return rows;
}

// Returns the rows of the sentences of a text, each without context.
std::vector<Row> make_sentence_rows(const Text& text, const ScoringOptions& o) {
  const std::vector<int64_t> begins = sentence_row_begins(text, o.sequence_length);
  std::vector<Row> rows;
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    rows.push_back({begins[i], begins[i + 1] - begins[i], 0});
    rows.back().starts_with_begin = o.begin == Begin::block;
  }
  return rows;
}

// Returns the indices of those rows of the documents of a text that are scored: all, or a sample of the full rows.
std::vector<int64_t> scored_row_indices(const ScoringOptions& o, const std::vector<Row>& rows) {
  std::vector<int64_t> indices;
  for (size_t i = 0; i < rows.size(); ++i)
    if (o.sample.blocks == 0 || (rows[i].length == o.sequence_length && rows[i].num_context == o.context))
      indices.push_back(static_cast<int64_t>(i));
  if (o.sample.blocks == 0) return indices;
  const auto num_candidates = static_cast<int64_t>(indices.size());
  const int64_t num_sampled_rows =
      sample_size(o.sample, num_candidates,
                  str("the number of full blocks of ", count_of(o.sequence_length, "token"), " in the documents"),
                  "lower --blocks or --sequence-length, or give --begin block");
  std::vector<int64_t> sampled_indices;
  for (const int64_t candidate : draw_sample(num_sampled_rows, num_candidates, o.sample.seed))
    sampled_indices.push_back(indices[static_cast<size_t>(candidate)]);
  return sampled_indices;
}

// Returns the mini-batches of the rows of all documents, or of all sentences. The rows are sorted by length, since
// documents and sentences may be much shorter than a block.
MiniBatches sorted_text_mini_batches(const Text& text, const ScoringOptions& o) {
  const auto rows = std::make_shared<const std::vector<Row>>(
      o.text_rows == TextRows::sentences ? make_sentence_rows(text, o) : make_document_rows(text, o));
  const auto row_of = [rows](int64_t index) { return (*rows)[static_cast<size_t>(index)]; };
  const auto load = [&text, row_of, unscored_id = unscored_id_of(text, o)](const std::vector<int64_t>& indices,
                                                                           std::vector<Row>& loaded_rows) {
    int64_t width = 0;
    for (const int64_t index : indices) {
      loaded_rows.push_back(row_of(index));
      loaded_rows.back().record_index = index;
      width = std::max(width, loaded_rows.back().length);
    }
    return load_rows(text, loaded_rows, width, unscored_id);
  };
  return sorted_mini_batches(scored_row_indices(o, *rows), o.batch * o.sequence_length,
                             {[row_of](int64_t row) { return std::pair(row_of(row).length, int64_t{0}); }, load});
}

}  // namespace

void read_row(const Text& text, const Row& row, std::span<int32_t> tokens) {
  const int64_t num_previous_tokens = row.offset > 0 && !row.starts_with_begin ? 1 : 0;
  tokens[0] = row.starts_with_begin ? text.begin_id : text.end_of_line_id;
  text.read_tokens(row.offset - num_previous_tokens,
                   tokens.subspan(static_cast<size_t>(1 - num_previous_tokens),
                                  static_cast<size_t>(row.length + num_previous_tokens)));
}

Batch load_rows(const Text& text, const std::vector<Row>& rows, int64_t width, int32_t unscored_id) {
  const auto count = static_cast<int64_t>(rows.size());
  Batch batch{{at::full({count, width}, static_cast<int64_t>(text.end_of_line_id), at::kLong),
               {},
               attention::Lengths(at::empty({count}, at::kLong))},
              at::full({count, width}, -1, at::kLong)};
  auto* input_data = batch.input.tokens.mutable_data_ptr<int64_t>();
  auto* target_data = batch.targets.mutable_data_ptr<int64_t>();
  auto* length_data = batch.input.lengths.decoder.mutable_data_ptr<int64_t>();
  std::vector<int32_t> tokens(static_cast<size_t>(width) + 1);
  for (const Row& row : rows) {
    *length_data++ = row.length;
    if (row.length > 0) {
      read_row(text, row, tokens);
      std::copy_n(tokens.begin(), row.length, input_data);
      std::copy_n(tokens.begin() + 1 + row.num_context, row.length - row.num_context, target_data + row.num_context);
      if (unscored_id >= 0) std::replace(target_data, target_data + row.length, int64_t{unscored_id}, int64_t{-1});
    }
    input_data += width, target_data += width;
  }
  return batch;
}

Row Streams::row(int64_t stream, int64_t segment) const {
  const int64_t base_length = num_tokens_ / num_streams_, num_longer_streams = num_tokens_ % num_streams_;
  const int64_t stream_begin = stream * base_length + std::min(stream, num_longer_streams),
                stream_length = base_length + (stream < num_longer_streams ? 1 : 0);
  const int64_t offset = std::min(segment * sequence_length_, stream_length);
  return {stream_begin + offset, std::min(sequence_length_, stream_length - offset), 0};
}

std::vector<int64_t> sentence_row_begins(const Text& text, int64_t sequence_length) {
  constexpr int64_t kChunkTokens = 1 << 16;
  std::vector<int32_t> tokens;
  std::vector<int64_t> begins{0};
  for (int64_t first = 0; first < text.num_tokens; first += kChunkTokens) {
    tokens.resize(static_cast<size_t>(std::min(kChunkTokens, text.num_tokens - first)));
    text.read_tokens(first, tokens);
    for (size_t i = 0; i < tokens.size(); ++i)
      if (const int64_t end = first + static_cast<int64_t>(i) + 1;
          tokens[i] == text.end_of_line_id || end - begins.back() == sequence_length)
        begins.push_back(end);
  }
  if (begins.back() < text.num_tokens) begins.push_back(text.num_tokens);
  return begins;
}

std::vector<Row> make_chunks(int64_t num_tokens, int64_t sequence_length, int64_t context) {
  require_context_below_length(sequence_length, context);
  std::vector<Row> chunks;
  for (int64_t scored_begin = 0; scored_begin < num_tokens; scored_begin += sequence_length - context) {
    const int64_t context_begin = std::max<int64_t>(0, scored_begin - context);
    chunks.push_back({context_begin, std::min(num_tokens, scored_begin + sequence_length - context) - context_begin,
                      scored_begin - context_begin});
  }
  return chunks;
}

ScoringOptions Text::resolve(const ScoringOptions& options, model::LanguageModel& model) const {
  ScoringOptions o = options;
  if (o.text_rows == TextRows::automatic) o.text_rows = TextRows::blocks;
  if (o.text_rows == TextRows::sentences) {
    const auto refuse = [](const char* option, const char* expected, const std::string& found) {
      refuse_usage(option, str(expected, " for rows of sentences, which have no context"), found,
                   str("leave ", option, " out, or pass --text-rows blocks"));
    };
    if (o.context > 0) refuse("--context", "0", str(o.context));
    if (o.memory > 0) refuse("--memory", "0", str(o.memory));
    if (o.streams > 0) refuse("--streams", "0", str(o.streams));
    if (o.begin == Begin::document) refuse("--begin", "block or none", name_of(o.begin));
    if (o.sample.blocks > 0) refuse("--blocks", "0", str(o.sample.blocks));
    o.memory = 0;
  }
  if (o.memory > 0 && o.context > 0)
    refuse_usage("--context", "0 if --memory is above 0", str(o.context), "leave --context or --memory out");
  if (o.memory > 0 && model.memory_length() == 0)
    refuse_usage("--memory", "0 for a model without a memory", str(o.memory),
                 "use --context, which every model supports");
  if (o.memory < 0) o.memory = o.context > 0 ? 0 : model.memory_length();
  if (o.streams > 0 && o.memory == 0)
    refuse_usage("--streams", "0 without a memory", str(o.streams),
                 model.memory_length() > 0 ? "leave --streams out, or raise --memory" : "leave --streams out");
  // At most one stream per token, since a stream must not be empty.
  if (o.memory > 0)
    o.streams =
        std::clamp<int64_t>(o.streams > 0 ? o.streams : kDefaultNumStreams, 1, std::max<int64_t>(1, num_tokens));
  o.has_begin_token = begin_id >= 0;
  if (o.begin == Begin::automatic) o.begin = o.has_begin_token && o.memory == 0 ? Begin::block : Begin::none;
  if (o.uses_begin_token() && !o.has_begin_token)
    refuse_usage("--begin", "none for a vocabulary without a begin token", name_of(o.begin), "leave --begin out");
  if (o.uses_begin_token() && o.memory > 0)
    refuse_usage("--begin", "none with a memory",
                 str(name_of(o.begin), " with a memory of ", count_of(o.memory, "position")),
                 "leave --begin out, or set --memory 0");
  model.require_length("--sequence-length", o.sequence_length);
  require_context_below_length(o.sequence_length, o.context);
  if (o.sample.blocks > 0)
    o.sample.blocks = o.begin == Begin::document
                          ? static_cast<int64_t>(scored_row_indices(o, make_document_rows(*this, o)).size())
                          : sampled_streams(o, num_tokens).num_streams;
  if (o.batch == 0) o.batch = std::max<int64_t>(1, 4096 / o.sequence_length);
  return o;
}

MiniBatches Text::mini_batches(const ScoringOptions& o) const {
  if (o.begin == Begin::document || o.text_rows == TextRows::sentences) return sorted_text_mini_batches(*this, o);
  const StreamRows streams = streams_of(o, num_tokens);
  auto next = [this, streams, rows_per_pass = o.batch, starts_with_begin = o.begin == Begin::block,
               unscored_id = unscored_id_of(*this, o), begin = int64_t{0},
               step = int64_t{0}]() mutable -> std::optional<MiniBatch> {
    for (; begin < streams.num_streams; begin += rows_per_pass, step = 0) {
      if (step == streams.num_steps) continue;
      const int64_t end = std::min(streams.num_streams, begin + rows_per_pass);
      MiniBatch mini_batch;
      int64_t width = 0, next_width = 0;  // tokens in the longest row of this step, and of the next step
      for (int64_t stream = begin; stream < end; ++stream) {
        mini_batch.rows.push_back(streams.row_at(stream, step));
        mini_batch.rows.back().starts_with_begin = starts_with_begin;
        width = std::max(width, mini_batch.rows.back().length);
        if (step + 1 < streams.num_steps) next_width = std::max(next_width, streams.row_at(stream, step + 1).length);
      }
      // If the width is 0, all streams of this mini-batch have ended; streams of other mini-batches may be one token
      // longer.
      if (width == 0) continue;
      mini_batch.batch = load_rows(*this, mini_batch.rows, width, unscored_id);
      mini_batch.first_stream = begin;
      mini_batch.starts_streams = step == 0;
      mini_batch.is_scored = step >= streams.num_memory_steps;
      mini_batch.ends_streams = next_width == 0;
      mini_batch.progress_rows = end - begin;
      ++step;
      return mini_batch;
    }
    return std::nullopt;
  };
  return {next, streams.num_streams * streams.num_steps};
}

std::unique_ptr<Batches> Text::batches(const BatchOptions& options, int64_t seed) const {
  if (options.order == BatchOrder::sentences) return make_sentence_batches(*this, options, seed);
  if (options.order == BatchOrder::sentence_streams) return make_sentence_stream_batches(*this, options, seed);
  return make_batches(*this, options, seed);
}

}  // namespace mh::data
