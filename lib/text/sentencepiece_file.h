// The part of a SentencePiece model that its library follows without a check: the normalisation table, a trie of
// offsets into itself and into a text. A damaged one would crash the process, when loaded or by some later text.
#pragma once

#include <string>

namespace mh::text {

// Error(input) where the table points outside itself or in a circle, or its text is not UTF-8. Bytes that are no such
// file pass: the library refuses them. `name` is for messages.
void check_sentencepiece_file(const std::string& bytes, const std::string& name);

}  // namespace mh::text
