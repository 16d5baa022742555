// Validates the part of a SentencePiece model that the library reads without checks: the normalisation table, a trie
// with offsets into itself and into a text. A damaged table would crash the process at load or on some later text.
#pragma once

#include <string>

namespace mh::text {

// Throws Error(input) if the trie of `bytes`, a SentencePiece model, has an invalid size, points outside the trie or
// the text, has a cycle or more than 32 keys on a path, or if the text is truncated or not UTF-8. Bytes that are not a
// SentencePiece model are accepted, since the library itself rejects them. `name` is the file name in messages.
void check_sentencepiece_file(const std::string& bytes, const std::string& name);

}  // namespace mh::text
