// The types of vocabularies that mh-prep makes and the tools read.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace mh::text {

struct VocabularyType {
  const char* name;
  const char* meaning;            // for `mh-train --list vocabularies` and mh-prep(1)
  const char* entries;            // description of the entries of the file, for mh-vocab(5); "": a SentencePiece model
  bool has_merges = false;        // whether the file has one line per BPE merge after the pieces
  bool has_added_tokens = false;  // whether the file may end in lines of added tokens
};
std::span<const VocabularyType> vocabulary_types();
// Returns the type `name`, or null if there is none.
const VocabularyType* vocabulary_type(const std::string& name);
std::vector<std::string> vocabulary_type_names();
// Returns the names of the types whose vocabulary is a text file in the format of mh-vocab(5).
std::vector<std::string> vocabulary_file_type_names();

}  // namespace mh::text
