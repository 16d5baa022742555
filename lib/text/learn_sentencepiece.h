// Trains SentencePiece models with its own library, in a child process.
#pragma once

#include <string>

#include "text/text_batches.h"
#include "text/vocabulary.h"

namespace mh::text {

// BPE's trainer numbers the characters of a word in 16 bits, of which it sign-extends one, so a longer word crashes it.
constexpr int64_t kLongestBpeWord = 32768;

// The bytes of a model of the type bpe or unigram, with <unk> 0, <s> 1, </s> 2. Every line of the text takes part; what
// the trainer would leave out or read as something else is kept where that is possible, and counted in the log.
// Error(input): text without a word, text from which no such model can be made, and, for bpe, a word of more than
// kLongestBpeWord characters once normalised. Error(device) where the trainer runs out of memory.
std::string learn_sentencepiece(const VocabularyOptions& options, TextBatches& text);

}  // namespace mh::text
