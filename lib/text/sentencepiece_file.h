// Checks the part of a SentencePiece model that its library reads unchecked: the normalisation table, a trie of offsets
// into itself and into a text. A damaged table would crash the process, when loaded or for some later text.
#pragma once

#include <string>

namespace mh::text {

// Throws Error(input) if the table points outside itself or in a cycle, or its text is not UTF-8. Bytes of no such file
// pass, since the library rejects them. `name` is for messages.
void check_sentencepiece_file(const std::string& bytes, const std::string& name);

}  // namespace mh::text
