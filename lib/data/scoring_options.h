// Scoring protocols, which split a corpus into the rows on which a model is scored (n: tokens in a row, c: context
// tokens):
//
//   independent-blocks  Text: consecutive blocks of n tokens, each scored without context: the first input of a block
//                       is the token before it, and no earlier token is read.
//   context-window      Text: each row scores up to n - c tokens and has up to c preceding tokens as context, as in
//                       fairseq.
//   streams             Text: parallel contiguous streams, read in blocks of n tokens; the memory holds the preceding
//                       tokens of each stream, as in Transformer-XL.
//   sentences           Sentence pairs, each target given its source, or examples; rows are independent. A text, with
//                       TextRows::sentences: each sentence, a line with its end-of-line token, in a row of its own
//                       without context; a sentence of more than n tokens is cut into rows of n tokens.
//
// Without a sample, every token of a text, and every known target of another corpus, is scored exactly once.
//
// Position of the begin token in a text (ScoringOptions::begin), for a vocabulary that has one (such as <s> of Llama
// 2):
//
//   none      No begin token. The first token of the text is predicted from the end-of-line token.
//   document  Before each document. Rows do not cross the ends of documents: each document is split into rows as a text
//             of its own, and the begin token is the input before its first token. A row that continues a document
//             starts with the token before the row, as with `none`. A text of lines is one document.
//   block     Before each row, in place of the token before the row. Rows cross the ends of documents.
//
// With `document` and `block` the begin token itself is an input only: it is never scored, also where it ends a line or
// a document of the text. All other tokens are scored exactly once.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"

namespace mh::data {

// The rows of a text. automatic: sentences for a model that was trained on sentences, if there is no context; otherwise
// blocks (resolved_scoring_options() in tools/common/shard_source.h).
enum class TextRows { automatic, blocks, sentences };

enum class Begin { automatic, none, document, block };

// Returns each value of Begin with its name, in the order of Begin.
inline const std::vector<std::pair<Begin, std::string>>& begin_names() {
  static const std::vector<std::pair<Begin, std::string>> names{
      {Begin::automatic, "auto"}, {Begin::none, "none"}, {Begin::document, "document"}, {Begin::block, "block"}};
  return names;
}

inline const std::string& name_of(Begin begin) { return begin_names()[static_cast<size_t>(begin)].second; }

// A uniform sample, without replacement, of the blocks of a text or of the rows of another corpus.
struct SampleOptions {
  int64_t blocks = 0;  // size of the sample in blocks or rows; 0: no sample, the whole corpus
  int64_t seed = 1;
  // Whether `blocks` is the default of a tool that samples by default; a sample of more blocks than exist then takes
  // all. Otherwise it is an error.
  bool is_default_sample = false;
  void describe(Fields& f) {
    f.field("blocks", blocks,
            "number of blocks (text), sentence pairs or examples in a random sample of the corpus; 0: the whole corpus",
            at_least(0));
    f.field("seed", seed, "seed of the random sample of blocks, sentence pairs or examples", at_least(0));
  }
};

struct ScoringOptions {
  int64_t sequence_length = 0;
  int64_t context = 0;
  Begin begin = Begin::automatic;
  int64_t memory = -1;
  int64_t streams = 0;
  int64_t batch = 0;
  TextRows text_rows = TextRows::blocks;  // not in describe(): all tools but mh-eval score blocks
  SampleOptions sample;                   // not in describe(): tools that support samples call sample.describe()
  bool has_independent_rows = false;  // whether rows are independent (protocol "sentences"); set by Corpus::resolve()
  bool has_begin_token = false;       // text: whether the vocabulary has a begin token; set by Corpus::resolve()
  // Returns whether resolved options put a begin token in front of documents or rows.
  bool uses_begin_token() const { return begin == Begin::document || begin == Begin::block; }
  void describe(Fields& f) {
    f.field("sequence_length", sequence_length,
            "sequence length for a text, in tokens, context included; 0: sequence length of training", at_least(0));
    f.field("context", context,
            "number of context tokens, which are not scored, at the start of each sequence of a text; 0: no context",
            at_least(0));
    f.choice("begin", begin, begin_names(),
             "position of the vocabulary's begin token in a text: before each document of the shard, before each "
             "sequence (block), or none; auto: block if the vocabulary has a begin token and the memory is 0, "
             "otherwise none");
    f.field("memory", memory,
            "length of the Transformer-XL memory in tokens; -1: model.transformer-xl.memory, or 0 with --context",
            between(-1, 1 << 24));
    f.field(
        "streams", streams,
        "with a memory: number of parallel streams into which the text is divided, each with a memory of its own; 0: "
        "the default, 10 streams",
        between(0, 1 << 24));
    f.field("batch", batch,
            "batch size: number of sequences in a forward pass; affects speed, not results; 0: as many as fit in about "
            "4096 tokens",
            at_least(0));
  }
};

// Returns the name of the scoring protocol of resolved options.
inline const char* protocol_of(const ScoringOptions& resolved) {
  if (resolved.has_independent_rows || resolved.text_rows == TextRows::sentences) return "sentences";
  return resolved.memory > 0 ? "streams" : resolved.context > 0 ? "context-window" : "independent-blocks";
}

}  // namespace mh::data
