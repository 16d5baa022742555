// Regular expressions of tokenizer.json, with the results of Oniguruma, which Hugging Face tokenizers uses: the
// leftmost match, and among the matches at one position the first in the order of backtracking.
//
// Supported syntax: alternation; groups (…), (?:…), (?>…), and (?i:…) of ASCII letters; look-ahead (?=…), (?!…);
// classes […] with ranges, negation and nested classes; \p{…} and \P{…} of general categories of Unicode 16.0; \s \S \d
// \D \w \W; the dot; ? * + {m,n} and their lazy forms, possessive ?+ *+ ++; the anchors ^ and $ (of lines), \A and \z;
// escaped characters, \xHH, \x{H…} and \uHHHH. A text is searched in time linear in its length for the expressions of
// published models. Other expressions may take more steps; a search that exceeds a limit throws Error(input).
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/unicode16.h"

namespace mh::text {

class Regex {
 public:
  // Compiles `pattern`. Throws Error(input) for other syntax, with `name`, the name of the setting, and the offset of
  // the fault in the pattern in bytes.
  Regex(std::string_view pattern, const std::string& name);
  // Returns an expression that matches one character of `characters`.
  static Regex of_characters(const CharacterSet& characters);
  // Returns an expression that matches `text` literally.
  static Regex of_literal(std::string_view text, const std::string& name);

  // A byte range [begin, end) of a text.
  struct Match {
    size_t begin, end;
  };

  // Memory of a search, which a caller that searches many texts reuses.
  struct Workspace {
    // A point at which the search resumes if the present path fails. For a repeated set, the repetition may end at any
    // character between `min_position` and `position` (greedy), or consume up to `count` more characters (lazy).
    struct Alternative {
      uint32_t instruction, position, min_position, count;
    };
    std::vector<Alternative> alternatives;
  };

  // Finds the matches of a text in order, as Oniguruma's iterator in Rust does: the next search begins at the end of
  // the last match, and an empty match at the end of the last match is passed over.
  class Searcher {
   public:
    Searcher(const Regex& regex, Workspace& workspace) : regex_(regex), workspace_(workspace) {}
    // Begins the search of a text, valid UTF-8 of less than 4 GiB.
    void begin(std::string_view text);
    // Finds the next match; returns false if there is none. Throws Error(input) if the search takes more steps than
    // the limit.
    bool next(Match& match);

   private:
    bool run(uint32_t instruction, uint32_t position, uint32_t& end);
    [[noreturn]] void refuse_steps() const;

    const Regex& regex_;
    Workspace& workspace_;
    std::string_view text_;
    size_t position_ = 0;
    size_t previous_end_ = SIZE_MAX;
    uint64_t remaining_steps_ = 0;
  };

 private:
  friend class RegexCompiler;
  enum class Operation : uint8_t {
    character,            // matches the character `value`
    set,                  // matches a character of the set `value`
    greedy_run,           // matches `min` to `max` characters of the set `value`, as many as possible
    lazy_run,             // … as few as possible
    possessive_run,       // … as many as possible, without backtracking
    branch,               // tries the next instruction, then `value`
    jump,                 // continues at `value`
    look_ahead,           // continues at `value` if the instructions up to sub_end match here
    negative_look_ahead,  // continues at `value` if the instructions up to sub_end do not match here
    not_before,           // matches no character, unless a character of the set `value` follows
    atomic,               // matches the instructions up to sub_end without backtracking into them, continues at `value`
    sub_end,              // ends the instructions of a look-ahead or an atomic group
    line_begin,           // anchors
    line_end,
    text_begin,
    text_end,
    match
  };
  struct Instruction {
    Operation operation;
    uint32_t value = 0, min = 0, max = 0;
    // Index of the first bytes with which the next instruction, or for a branch also the second alternative, can match;
    // UINT32_MAX: any.
    uint32_t first_bytes = UINT32_MAX, second_first_bytes = UINT32_MAX;
  };
  Regex() = default;

  std::string name_;
  std::vector<Instruction> program_;
  std::vector<CharacterTable> sets_;
  std::vector<std::bitset<256>> byte_sets_;
  std::bitset<256> first_bytes_;  // bytes with which a match can start
  bool may_be_empty_ = false;     // a match may be empty, so that `first_bytes_` does not restrict its position
};

}  // namespace mh::text
