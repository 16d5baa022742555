#include "text/vocabulary_types.h"

#include <algorithm>
#include <array>

#include "text/byte_bpe.h"
#include "text/json_tokenizer.h"
#include "text/wordpiece.h"

namespace mh::text {

namespace {

constexpr std::array kTypes{
    VocabularyType{"word",
                   "Words in descending order of frequency; words of equal frequency are in bytewise order. Words are "
                   "separated by spaces, tabs, vertical tabs and form feeds.",
                   "Entry 0 is <eos>, the end of a line, and entry 1 <unk>, the unknown word."},
    VocabularyType{"char",
                   "Characters in descending order of frequency; characters of equal frequency are in bytewise order.",
                   "Entry 0 is the line feed and entry 1 <unk>."},
    VocabularyType{"byte", "Bytes; the vocabulary has no entries.",
                   "There are no entries: token n is the byte n, and the line feed ends a line."},
    VocabularyType{"bpe", "Byte pair encoding of SentencePiece; the file is a model that spm_encode(1) reads too.", ""},
    VocabularyType{"unigram",
                   "Unigram language model of SentencePiece; the file is a model that spm_encode(1) reads too.", ""},
    VocabularyType{"subword-nmt", "Byte pair encoding as in the program subword-nmt.",
                   "Entry 0 is <eos>, entry 1 <unk>, and a piece that does not end its word has @@ appended.", true},
    VocabularyType{WordPieceTokenizer::kType, "WordPiece, the vocabulary of BERT.",
                   "The entries [PAD], [UNK], [CLS], [SEP] and [MASK] can have any numbers; [SEP] ends a line, [UNK] "
                   "is the unknown word, and an entry that begins with ## continues a word. Frequencies are 0 if the "
                   "vocabulary was not learnt.",
                   false, true},
    VocabularyType{ByteBpeTokenizer::kType, "Byte-level byte pair encoding, the vocabulary of GPT-2.",
                   "Entries and merges are written in the characters of GPT-2: a printable byte (0x21 to 0x7e, 0xa1 to "
                   "0xff without 0xad) is the character of the same number, and the other bytes are U+0100, U+0101 and "
                   "so on, in ascending order, so the space is U+0120. Every byte, every symbol of a merge and every "
                   "result of a merge has an entry; <|endoftext|> can have any number and ends a line. Frequencies "
                   "are 0.",
                   true, true},
    VocabularyType{
        JsonTokenizer::kType,
        "Other tokenizers of a tokenizer.json of Hugging Face: BPE, WordPiece, WordLevel or Unigram with the "
        "normalisation and the splitting into words of the published model.",
        "After the empty line the file is a tokenizer.json with sorted keys, without white space and without "
        "a line feed at its end, and has all settings in one form; equal tokenizers have equal files. The "
        "file has no lines of entries."}};

}  // namespace

std::span<const VocabularyType> vocabulary_types() { return kTypes; }

const VocabularyType* vocabulary_type(const std::string& name) {
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const VocabularyType& t) { return name == t.name; });
  return type == kTypes.end() ? nullptr : &*type;
}

std::vector<std::string> vocabulary_type_names() {
  std::vector<std::string> names;
  for (const VocabularyType& type : kTypes) names.emplace_back(type.name);
  return names;
}

std::vector<std::string> vocabulary_file_type_names() {
  std::vector<std::string> names;
  for (const VocabularyType& type : kTypes)
    if (*type.entries != '\0') names.emplace_back(type.name);
  return names;
}

}  // namespace mh::text
