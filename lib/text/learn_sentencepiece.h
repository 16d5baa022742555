// Trains SentencePiece models with the SentencePiece library, in a child process.
#pragma once

#include <string>

#include "text/text_batches.h"
#include "text/vocabulary.h"

namespace mh::text {

// Maximum number of characters of a word for BPE: the trainer stores positions in a word as 16-bit numbers and
// sign-extends one of them, so a longer word crashes the trainer.
constexpr int64_t kMaxBpeWordCharacters = 32768;

// Returns the bytes of a model of the type options.type (bpe or unigram); <unk>, <s> and </s> have the ids 0, 1 and 2.
// Trains on all lines with a word, without sampling, and logs the number of lines with text that SentencePiece
// reserves. Throws Error(input) for text without a word, for text from which no such model can be trained, and, for
// bpe, for a word of more than kMaxBpeWordCharacters characters after normalisation. Throws Error(device) if the
// trainer runs out of memory, and Error(failed) if it fails for another reason.
std::string learn_sentencepiece(const VocabularyOptions& options, TextBatches& text);

}  // namespace mh::text
