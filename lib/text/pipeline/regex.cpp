// Compiles regular expressions to a program, and runs the program with a stack of alternatives.
#include "text/pipeline/regex.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/unicode.h"

namespace mh::text {

namespace {

constexpr uint32_t kUnlimited = UINT32_MAX;
constexpr uint32_t kMaxRepetitions = 1000;  // largest count in {m,n}
constexpr size_t kMaxInstructions = 4000;   // limits the memory of nested repetitions
constexpr size_t kMaxSets = 64;             // largest number of distinct character classes; each has a table of 8 KiB
constexpr size_t kMaxPatternBytes = 10000;
constexpr int kMaxGroupDepth = 50;             // limits the recursion of the compiler
constexpr uint64_t kMinSearchSteps = 100'000;  // steps of a search, in addition to kStepsPerByte for each byte
constexpr uint64_t kStepsPerByte = 1000;

enum class Greed { greedy, lazy, possessive };

// A part of the expression.
struct Node {
  enum class Kind { empty, set, sequence, alternation, repetition, look_ahead, atomic, anchor };
  Kind kind = Kind::empty;
  CharacterSet set;  // kind set: exactly one character of the set
  std::vector<std::unique_ptr<Node>> children;
  uint32_t min = 0, max = 0;
  Greed greed = Greed::greedy;
  bool is_negative = false;  // kind look_ahead
  char anchor = 0;           // kind anchor: ^ $ A z
};
using NodePtr = std::unique_ptr<Node>;

NodePtr make_node(Node::Kind kind) {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  return node;
}

NodePtr make_set(CharacterSet set) {
  NodePtr node = make_node(Node::Kind::set);
  node->set = std::move(set);
  return node;
}

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool has_case(char32_t c) {
  const auto code = static_cast<utf8proc_int32_t>(c);
  return utf8proc_tolower(code) != code || utf8proc_toupper(code) != code || c == 0x130 || c == 0x131;
}

// Returns whether the node can match the empty text.
bool may_be_empty(const Node& node) {
  const auto is_empty = [](const NodePtr& child) { return may_be_empty(*child); };
  switch (node.kind) {
    case Node::Kind::set:
      return false;
    case Node::Kind::sequence:
      return std::all_of(node.children.begin(), node.children.end(), is_empty);
    case Node::Kind::alternation:
      return std::any_of(node.children.begin(), node.children.end(), is_empty);
    case Node::Kind::repetition:
      return node.min == 0 || may_be_empty(*node.children[0]);
    case Node::Kind::atomic:
      return may_be_empty(*node.children[0]);
    default:
      return true;
  }
}

// Returns the bytes with which a non-empty match of the node can start.
std::bitset<256> first_bytes_of(const Node& node) {
  std::bitset<256> bytes;
  switch (node.kind) {
    case Node::Kind::set:
      return node.set.first_bytes();
    case Node::Kind::sequence:
      for (const NodePtr& child : node.children) {
        bytes |= first_bytes_of(*child);
        if (!may_be_empty(*child)) break;
      }
      return bytes;
    case Node::Kind::alternation:
      for (const NodePtr& child : node.children) bytes |= first_bytes_of(*child);
      return bytes;
    case Node::Kind::repetition:
    case Node::Kind::atomic:
      return first_bytes_of(*node.children[0]);
    default:
      return bytes;
  }
}

}  // namespace

class RegexCompiler {
 public:
  RegexCompiler(std::string_view pattern, const std::string& name) : pattern_(pattern) {
    regex_.name_ = name;
    if (pattern.size() > kMaxPatternBytes)
      refuse(kMaxPatternBytes, str("a pattern of at most ", kMaxPatternBytes, " bytes"), str(pattern.size(), " bytes"));
  }

  Regex compile() {
    const NodePtr root = parse_alternation();
    if (offset_ < pattern_.size()) refuse(offset_, "a pattern with balanced parentheses", "an additional )");
    return compile(*root);
  }

  Regex compile(const Node& root) {
    emit(root);
    add({Regex::Operation::match});
    regex_.may_be_empty_ = may_be_empty(root);
    regex_.first_bytes_ = first_bytes_of(root);
    return std::move(regex_);
  }

 private:
  [[noreturn]] void refuse(size_t offset, const std::string& expected, const std::string& found) const {
    refuse_input(str(regex_.name_, ": the pattern ", shorten(std::string(pattern_), 200), ": byte ", offset), expected,
                 found, "use a tokenizer whose regular expressions have the syntax that mh-vocab(5) lists");
  }

  bool at_end() const { return offset_ >= pattern_.size(); }
  bool starts_with(std::string_view text) const { return pattern_.substr(offset_).starts_with(text); }
  bool accept(std::string_view text) {
    if (!starts_with(text)) return false;
    offset_ += text.size();
    return true;
  }
  char32_t take_character() {
    const DecodedCharacter character = decode_utf8(pattern_.data() + offset_);
    offset_ += character.num_bytes;
    return character.c;
  }

  NodePtr parse_alternation() {
    if (++depth_ > kMaxGroupDepth) refuse(offset_, str("at most ", kMaxGroupDepth, " nested groups"), "more");
    NodePtr alternation = make_node(Node::Kind::alternation);
    do alternation->children.push_back(parse_sequence());
    while (accept("|"));
    --depth_;
    return alternation->children.size() == 1 ? std::move(alternation->children[0]) : std::move(alternation);
  }

  NodePtr parse_sequence() {
    NodePtr sequence = make_node(Node::Kind::sequence);
    previous_folded_letter_ = 0;
    while (!at_end() && pattern_[offset_] != '|' && pattern_[offset_] != ')')
      sequence->children.push_back(parse_repetition());
    previous_folded_letter_ = 0;
    return sequence;
  }

  NodePtr parse_repetition() {
    NodePtr node = parse_atom();
    while (!at_end()) {
      const size_t begin = offset_;
      uint32_t min = 0, max = kUnlimited;
      bool is_interval = false;
      if (accept("?")) max = 1;
      else if (accept("+")) min = 1;
      else if (accept("*")) min = 0;
      else if (starts_with("{")) is_interval = parse_interval(min, max);
      else break;
      if (node->kind == Node::Kind::anchor || node->kind == Node::Kind::look_ahead)
        refuse(begin, "a repetition of characters or groups", "a repetition of an anchor or a look-ahead");
      Greed greed = Greed::greedy;
      if (accept("?")) {
        if (is_interval && min == max) refuse(begin, "an interval {m,n}", "the lazy form of an interval {n}");
        greed = Greed::lazy;
      } else if (!is_interval && accept("+")) {  // {m,n}+ repeats the interval, as in Oniguruma
        greed = Greed::possessive;
      }
      if (max == kUnlimited && may_be_empty(*node))
        refuse(begin, "a repetition of text that is not empty", "an unlimited repetition of text that may be empty");
      NodePtr repetition = make_node(Node::Kind::repetition);
      repetition->min = min;
      repetition->max = max;
      repetition->greed = greed;
      repetition->children.push_back(std::move(node));
      node = std::move(repetition);
      previous_folded_letter_ = 0;
      if (++num_repetitions_ > kMaxRepetitions) refuse(begin, str("at most ", kMaxRepetitions, " repetitions"), "more");
    }
    return node;
  }

  bool parse_interval(uint32_t& min, uint32_t& max) {
    const size_t begin = offset_++;
    const auto read_number = [&](uint32_t& number) {
      const char* first = pattern_.data() + offset_;
      const auto result = std::from_chars(first, pattern_.data() + pattern_.size(), number);
      offset_ += static_cast<size_t>(result.ptr - first);
      return result.ec == std::errc();
    };
    const bool has_min = read_number(min);
    bool has_max = false;
    if (!has_min) min = 0;
    if (accept(",")) has_max = read_number(max);
    else max = min, has_max = has_min;
    if (!has_max) max = kUnlimited;
    if (!accept("}") || (!has_min && !has_max))
      refuse(begin, "an interval {m,n}, or an escaped brace", quote_start(pattern_.substr(begin)));
    if (min > kMaxRepetitions || (max != kUnlimited && (max > kMaxRepetitions || max < min)))
      refuse(begin, str("an interval {m,n} with m <= n <= ", kMaxRepetitions), quote_start(pattern_.substr(begin)));
    return true;
  }

  NodePtr parse_group(Node::Kind kind, bool is_negative = false) {
    const size_t begin = offset_;
    NodePtr content = parse_alternation();
    if (!accept(")")) refuse(begin, "a closing )", "the end of the pattern");
    previous_folded_letter_ = 0;
    if (kind == Node::Kind::sequence) return content;
    NodePtr node = make_node(kind);
    node->is_negative = is_negative;
    node->children.push_back(std::move(content));
    return node;
  }

  NodePtr parse_atom() {
    const size_t begin = offset_;
    if (accept("(")) {
      const bool outer_ignores_case = ignores_case_;
      NodePtr node;
      if (!starts_with("?")) node = parse_group(Node::Kind::sequence);
      else if (accept("?:")) node = parse_group(Node::Kind::sequence);
      else if (accept("?>")) node = parse_group(Node::Kind::atomic);
      else if (accept("?=")) node = parse_group(Node::Kind::look_ahead);
      else if (accept("?!")) node = parse_group(Node::Kind::look_ahead, true);
      else if (accept("?i:")) {
        ignores_case_ = true;
        node = parse_group(Node::Kind::sequence);
      } else {
        refuse(begin, "a group (...), (?:...), (?i:...), (?>...), (?=...) or (?!...)",
               quote_start(pattern_.substr(begin)));
      }
      ignores_case_ = outer_ignores_case;
      return node;
    }
    if (accept("[")) return make_set(folded(parse_class(), begin));
    if (accept(".")) return make_set(CharacterSet({{'\n', '\n'}}).complement());
    if (accept("^")) return make_anchor('^');
    if (accept("$")) return make_anchor('$');
    if (accept("\\A")) return make_anchor('A');
    if (accept("\\z")) return make_anchor('z');
    if (starts_with("\\")) {
      bool is_literal = false;
      CharacterSet set = parse_escape(is_literal);
      return make_set(is_literal ? folded_literal(set, begin) : std::move(set));
    }
    if (starts_with("?") || starts_with("*") || starts_with("+") || starts_with("{"))
      refuse(begin, "text to repeat", "a repetition of nothing");
    const char32_t c = take_character();
    return make_set(folded_literal(CharacterSet({{c, c}}), begin));
  }

  static NodePtr make_anchor(char anchor) {
    NodePtr node = make_node(Node::Kind::anchor);
    node->anchor = anchor;
    return node;
  }

  // Returns the characters that a literal matches. Within (?i:…), "ss" also matches one character, as do other pairs of
  // letters that case folding joins; such pairs are refused.
  CharacterSet folded_literal(const CharacterSet& literal, size_t begin) {
    if (!ignores_case_) return literal;
    const char32_t c = literal.ranges()[0].first;
    const char32_t letter = is_ascii_letter(c) ? c | 0x20 : 0;
    for (const char* pair : {"ss", "st", "ff", "fi", "fl"})
      if (previous_folded_letter_ == static_cast<char32_t>(pair[0]) && letter == static_cast<char32_t>(pair[1]))
        refuse(begin, "letters in (?i:...) that match letter by letter", str("the letters ", pair));
    previous_folded_letter_ = letter;
    return folded(literal, begin);
  }

  // Returns the characters that a set matches: within (?i:…), also the other cases of ASCII letters.
  CharacterSet folded(const CharacterSet& set, size_t begin) const {
    if (!ignores_case_) return set;
    std::vector<CodePointRange> ranges(set.ranges().begin(), set.ranges().end());
    for (const CodePointRange& range : set.ranges()) {
      if (range.last - range.first > 0x80) refuse(begin, "ASCII letters in (?i:...)", "a class of many characters");
      for (char32_t c = range.first; c <= range.last; ++c) {
        if (c >= 0x80 && has_case(c)) refuse(begin, "ASCII letters in (?i:...)", "another letter with two cases");
        if (!is_ascii_letter(c)) continue;
        ranges.push_back({c ^ 0x20, c ^ 0x20});
        if ((c | 0x20) == 's') ranges.push_back({0x17F, 0x17F});    // long s
        if ((c | 0x20) == 'k') ranges.push_back({0x212A, 0x212A});  // Kelvin sign
      }
    }
    return CharacterSet(std::move(ranges));
  }

  // Parses an escape sequence. `is_literal`: the sequence stands for one character.
  CharacterSet parse_escape(bool& is_literal) {
    const size_t begin = offset_++;
    if (at_end()) refuse(begin, "a character after the backslash", "the end of the pattern");
    const char32_t c = take_character();
    is_literal = false;
    const auto negated_if = [](bool is_negated, const CharacterSet& set) {
      return is_negated ? set.complement() : set;
    };
    switch (c) {
      case 's':
      case 'S':
        return negated_if(c == 'S', white_space_characters().set());
      case 'd':
      case 'D':
        return negated_if(c == 'D', characters_of_category("Nd"));
      case 'w':
      case 'W':
        return negated_if(c == 'W', onig_word_characters().set());
      case 'p':
      case 'P':
        return parse_property(begin, c == 'P');
      default:
        break;
    }
    is_literal = true;
    char32_t code = c;
    constexpr std::string_view kControlNames = "rntfvae";
    constexpr std::string_view kControls = "\r\n\t\f\v\a\x1B";
    if (const size_t i = c < 0x80 ? kControlNames.find(static_cast<char>(c)) : kControlNames.npos;
        i != kControlNames.npos)
      code = static_cast<unsigned char>(kControls[i]);
    else if (c == 'x' || c == 'u') code = parse_hexadecimal(begin, c);
    else if (is_ascii_letter(c) || (c >= '0' && c <= '9') || c >= 0x80)
      refuse(begin, "an escape sequence of the supported syntax", quote_start(pattern_.substr(begin)));
    return CharacterSet({{code, code}});
  }

  char32_t parse_hexadecimal(size_t begin, char32_t kind) {
    const bool has_braces = kind == 'x' && accept("{");
    const size_t max_digits = has_braces ? 8 : kind == 'x' ? 2 : 4;
    uint32_t code = 0;
    const std::string_view digits = pattern_.substr(offset_, max_digits);
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    offset_ += static_cast<size_t>(result.ptr - digits.data());
    const bool is_complete = has_braces ? accept("}") : result.ptr == digits.data() + max_digits;
    // \x80 to \xFF stand for single bytes in Oniguruma, not for characters.
    if (result.ec != std::errc() || !is_complete || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ||
        (kind == 'x' && !has_braces && code >= 0x80))
      refuse(begin, "\\x and two digits below 80, \\x{...} or \\u and four digits, the number of a character",
             quote_start(pattern_.substr(begin)));
    return code;
  }

  CharacterSet parse_property(size_t begin, bool is_negated) {
    const size_t end = pattern_.find('}', offset_);
    if (!accept("{") || end == pattern_.npos) refuse(begin, "\\p{...}", quote_start(pattern_.substr(begin)));
    if (accept("^")) is_negated = !is_negated;
    const std::string_view name = pattern_.substr(offset_, end - offset_);
    CharacterSet set = characters_of_category(name);
    if (set.ranges().empty())
      refuse(begin, "a general category of Unicode, such as \\p{L} or \\p{Lu}", quote_start(pattern_.substr(begin)));
    offset_ = end + 1;
    return is_negated ? set.complement() : set;
  }

  // Parses a class after its opening bracket.
  CharacterSet parse_class() {
    if (++depth_ > kMaxGroupDepth) refuse(offset_, str("at most ", kMaxGroupDepth, " nested classes"), "more");
    const size_t begin = offset_;
    const bool is_negated = accept("^");
    CharacterSet result;
    std::vector<CodePointRange> ranges;
    bool is_empty = true;
    while (!starts_with("]")) {
      if (at_end()) refuse(begin, "a closing ]", "the end of the pattern");
      const size_t item_begin = offset_;
      if (starts_with("&&")) refuse(item_begin, "a class without intersection", "&&");
      if (starts_with("[:")) refuse(item_begin, "a class of characters, ranges and \\p{...}", "a POSIX bracket");
      is_empty = false;
      if (accept("[")) {
        result = result.united(parse_class());
        continue;
      }
      bool is_literal = true;
      char32_t first = 0;
      if (starts_with("\\")) {
        const CharacterSet set = parse_escape(is_literal);
        if (is_literal) first = set.ranges()[0].first;
        else result = result.united(set);
      } else {
        first = take_character();
      }
      const bool is_range = starts_with("-") && offset_ + 1 < pattern_.size() && pattern_[offset_ + 1] != ']';
      if (!is_literal) {
        if (is_range) refuse(item_begin, "a range of characters", "a range that begins with a class");
        continue;
      }
      char32_t last = first;
      if (is_range) {
        ++offset_;
        if (starts_with("[")) refuse(item_begin, "a range of characters", "a range that ends with a class");
        if (starts_with("\\")) {
          const CharacterSet set = parse_escape(is_literal);
          if (!is_literal) refuse(item_begin, "a range of characters", "a range that ends with a class");
          last = set.ranges()[0].first;
        } else {
          last = take_character();
        }
        if (last < first) refuse(item_begin, "a range in ascending order", "a descending range");
      }
      ranges.push_back({first, last});
    }
    ++offset_;
    --depth_;
    if (is_empty) refuse(begin, "a class with characters", "an empty class");
    result = result.united(CharacterSet(std::move(ranges)));
    return is_negated ? result.complement() : result;
  }

  uint32_t add(Regex::Instruction instruction) {
    if (regex_.program_.size() >= kMaxInstructions)
      refuse(0, str("a pattern of at most ", kMaxInstructions, " instructions, repetitions written out"),
             "a longer pattern");
    regex_.program_.push_back(instruction);
    return static_cast<uint32_t>(regex_.program_.size() - 1);
  }
  uint32_t next_instruction() const { return static_cast<uint32_t>(regex_.program_.size()); }
  Regex::Instruction& at(uint32_t index) { return regex_.program_[index]; }

  uint32_t set_index(const CharacterSet& set) {
    const auto existing_set =
        std::find_if(regex_.sets_.begin(), regex_.sets_.end(), [&](const CharacterTable& t) { return t.set() == set; });
    if (existing_set != regex_.sets_.end()) return static_cast<uint32_t>(existing_set - regex_.sets_.begin());
    if (regex_.sets_.size() == kMaxSets) refuse(0, str("at most ", kMaxSets, " different classes"), "more classes");
    regex_.sets_.emplace_back(set);
    return static_cast<uint32_t>(regex_.sets_.size() - 1);
  }

  uint32_t byte_set_index(const std::bitset<256>& bytes) {
    const auto existing_set = std::find(regex_.byte_sets_.begin(), regex_.byte_sets_.end(), bytes);
    if (existing_set != regex_.byte_sets_.end()) return static_cast<uint32_t>(existing_set - regex_.byte_sets_.begin());
    regex_.byte_sets_.push_back(bytes);
    return static_cast<uint32_t>(regex_.byte_sets_.size() - 1);
  }

  void emit_set(const CharacterSet& set) {
    const auto ranges = set.ranges();
    if (ranges.size() == 1 && ranges[0].first == ranges[0].last) add({Regex::Operation::character, ranges[0].first});
    else add({Regex::Operation::set, set_index(set)});
  }

  void emit(const Node& node) {
    using Operation = Regex::Operation;
    switch (node.kind) {
      case Node::Kind::empty:
        return;
      case Node::Kind::set:
        return emit_set(node.set);
      case Node::Kind::sequence:
        for (const NodePtr& child : node.children) emit(*child);
        return;
      case Node::Kind::alternation: {
        std::vector<uint32_t> jumps;
        for (size_t i = 0; i < node.children.size(); ++i) {
          if (i + 1 == node.children.size()) {
            emit(*node.children[i]);
            break;
          }
          const uint32_t branch = add({Operation::branch});
          if (!may_be_empty(*node.children[i]))
            at(branch).first_bytes = byte_set_index(first_bytes_of(*node.children[i]));
          std::bitset<256> remaining_bytes;
          bool remaining_may_be_empty = false;
          for (size_t j = i + 1; j < node.children.size(); ++j) {
            remaining_bytes |= first_bytes_of(*node.children[j]);
            remaining_may_be_empty |= may_be_empty(*node.children[j]);
          }
          if (!remaining_may_be_empty) at(branch).second_first_bytes = byte_set_index(remaining_bytes);
          emit(*node.children[i]);
          jumps.push_back(add({Operation::jump}));
          at(branch).value = next_instruction();
        }
        for (uint32_t jump : jumps) at(jump).value = next_instruction();
        return;
      }
      case Node::Kind::repetition:
        return emit_repetition(node);
      case Node::Kind::look_ahead: {
        const Node& content = *node.children[0];
        const Node* single =
            content.kind == Node::Kind::sequence && content.children.size() == 1 ? content.children[0].get() : &content;
        if (node.is_negative && single->kind == Node::Kind::set) {
          add({Operation::not_before, set_index(single->set)});
          return;
        }
        return emit_sub_program(node.is_negative ? Operation::negative_look_ahead : Operation::look_ahead, content);
      }
      case Node::Kind::atomic:
        return emit_sub_program(Operation::atomic, *node.children[0]);
      case Node::Kind::anchor:
        add({node.anchor == '^'   ? Operation::line_begin
             : node.anchor == '$' ? Operation::line_end
             : node.anchor == 'A' ? Operation::text_begin
                                  : Operation::text_end});
        return;
    }
  }

  void emit_sub_program(Regex::Operation operation, const Node& content) {
    const uint32_t begin = add({operation});
    emit(content);
    add({Regex::Operation::sub_end});
    at(begin).value = next_instruction();
  }

  void emit_repetition(const Node& node) {
    using Operation = Regex::Operation;
    const Node* content = node.children[0].get();
    while (content->kind == Node::Kind::sequence && content->children.size() == 1) content = content->children[0].get();
    if (content->kind == Node::Kind::set) {
      const Operation operation = node.greed == Greed::greedy ? Operation::greedy_run
                                  : node.greed == Greed::lazy ? Operation::lazy_run
                                                              : Operation::possessive_run;
      add({operation, set_index(content->set), node.min, node.max});
      return;
    }
    if (node.greed == Greed::possessive) {
      const uint32_t begin = add({Operation::atomic});
      emit_copies(*content, node.min, node.max, false);
      add({Operation::sub_end});
      at(begin).value = next_instruction();
      return;
    }
    emit_copies(*content, node.min, node.max, node.greed == Greed::lazy);
  }

  void emit_copies(const Node& content, uint32_t min, uint32_t max, bool is_lazy) {
    using Operation = Regex::Operation;
    const uint32_t begin = next_instruction();
    for (uint32_t i = 0; i < min; ++i) {
      emit(content);
      if (next_instruction() == begin) return;  // the content is empty
    }
    const uint32_t first = may_be_empty(content) ? UINT32_MAX : byte_set_index(first_bytes_of(content));
    std::vector<uint32_t> exits;  // instructions whose target is the end of the repetition
    const auto emit_optional = [&] {
      const uint32_t branch = add({Operation::branch});
      if (is_lazy) {
        // Tries the end first: the next instruction is the jump to the end.
        exits.push_back(add({Operation::jump}));
        at(branch).value = next_instruction();
        at(branch).second_first_bytes = first;
      } else {
        exits.push_back(branch);
        at(branch).first_bytes = first;
      }
      emit(content);
      return branch;
    };
    if (max == kUnlimited) {
      const uint32_t branch = emit_optional();
      add({Operation::jump, branch});
    } else {
      for (uint32_t i = min; i < max; ++i) emit_optional();
    }
    for (uint32_t instruction : exits) at(instruction).value = next_instruction();
  }

  Regex regex_;
  std::string_view pattern_;
  size_t offset_ = 0;
  int depth_ = 0;
  uint32_t num_repetitions_ = 0;
  bool ignores_case_ = false;
  char32_t previous_folded_letter_ = 0;  // the ASCII letter in (?i:…) before `offset_`, in lower case; 0: none
};

Regex::Regex(std::string_view pattern, const std::string& name) : Regex(RegexCompiler(pattern, name).compile()) {}

Regex Regex::of_characters(const CharacterSet& characters) {
  return RegexCompiler("", "").compile(*make_set(characters));
}

Regex Regex::of_literal(std::string_view text, const std::string& name) {
  NodePtr sequence = make_node(Node::Kind::sequence);
  for (char32_t c : code_points(text)) sequence->children.push_back(make_set(CharacterSet({{c, c}})));
  return RegexCompiler(text, name).compile(*sequence);
}

void Regex::Searcher::begin(std::string_view text) {
  text_ = text;
  position_ = 0;
  previous_end_ = SIZE_MAX;
  remaining_steps_ = kMinSearchSteps + kStepsPerByte * text.size();
}

bool Regex::Searcher::next(Match& match) {
  const char* text = text_.data();
  for (size_t start = position_; start <= text_.size();) {
    if (!regex_.may_be_empty_) {
      while (start < text_.size() && !regex_.first_bytes_[static_cast<unsigned char>(text[start])]) ++start;
      if (start == text_.size()) break;
    }
    uint32_t end = 0;
    const bool is_match = run(0, static_cast<uint32_t>(start), end);
    if (is_match && (end != start || end != previous_end_)) {
      match = {start, end};
      position_ = previous_end_ = end;
      return true;
    }
    if (start == text_.size()) break;
    start += decode_utf8(text + start).num_bytes;
  }
  position_ = text_.size() + 1;
  return false;
}

bool Regex::Searcher::run(uint32_t instruction, uint32_t position, uint32_t& end) {
  const Instruction* const program = regex_.program_.data();
  const CharacterTable* const sets = regex_.sets_.data();
  const std::bitset<256>* const byte_sets = regex_.byte_sets_.data();
  const char* const text = text_.data();
  const auto size = static_cast<uint32_t>(text_.size());
  std::vector<Workspace::Alternative>& alternatives = workspace_.alternatives;
  const size_t stack_base = alternatives.size();
  uint64_t num_steps = 0;
  const auto count_steps = [&](uint64_t n) {
    num_steps += n;
    if (num_steps > remaining_steps_) refuse_steps();
  };
  const auto can_start = [&](uint32_t byte_set) {
    return byte_set == UINT32_MAX ||
           (position < size && byte_sets[byte_set][static_cast<unsigned char>(text[position])]);
  };
  bool is_match = false;
  for (;;) {
    const Instruction& op = program[instruction];
    bool fails = false;
    count_steps(1);
    switch (op.operation) {
      case Operation::character:
      case Operation::set: {
        if (position == size) {
          fails = true;
          break;
        }
        const DecodedCharacter character = decode_utf8(text + position);
        fails = op.operation == Operation::character ? character.c != op.value : !sets[op.value].contains(character.c);
        if (fails) break;
        position += character.num_bytes;
        ++instruction;
        break;
      }
      case Operation::greedy_run:
      case Operation::possessive_run: {
        const CharacterTable& set = sets[op.value];
        uint32_t count = 0, min_position = position;
        const uint32_t begin = position;
        while (position < size && count < op.max) {
          const DecodedCharacter character = decode_utf8(text + position);
          if (!set.contains(character.c)) break;
          position += character.num_bytes;
          if (++count == op.min) min_position = position;
        }
        count_steps((position - begin) / 8);
        fails = count < op.min;
        if (fails) break;
        ++instruction;
        if (position > min_position && op.operation == Operation::greedy_run)
          alternatives.push_back({instruction - 1, position, min_position, 0});
        break;
      }
      case Operation::lazy_run: {
        uint32_t count = 0;
        while (position < size && count < op.min) {
          const DecodedCharacter character = decode_utf8(text + position);
          if (!sets[op.value].contains(character.c)) break;
          position += character.num_bytes;
          ++count;
        }
        fails = count < op.min;
        if (fails) break;
        if (op.max > op.min)
          alternatives.push_back({instruction, position, 0, op.max == kUnlimited ? kUnlimited : op.max - op.min});
        ++instruction;
        break;
      }
      case Operation::branch:
        if (!can_start(op.first_bytes)) {
          instruction = op.value;
        } else {
          if (can_start(op.second_first_bytes)) alternatives.push_back({instruction, position, 0, 0});
          ++instruction;
        }
        break;
      case Operation::jump:
        instruction = op.value;
        break;
      case Operation::look_ahead:
      case Operation::negative_look_ahead:
      case Operation::atomic: {
        uint32_t sub_end = position;
        remaining_steps_ -= std::min(remaining_steps_, num_steps);
        num_steps = 0;
        const bool matches = run(instruction + 1, position, sub_end);
        fails = matches == (op.operation == Operation::negative_look_ahead);
        if (fails) break;
        if (op.operation == Operation::atomic) position = sub_end;
        instruction = op.value;
        break;
      }
      case Operation::not_before:
        fails = position < size && sets[op.value].contains(decode_utf8(text + position).c);
        ++instruction;
        break;
      case Operation::line_begin:
        fails = position > 0 && (text[position - 1] != '\n' || position == size);
        ++instruction;
        break;
      case Operation::line_end:
        // Oniguruma has no empty line after a line feed that ends the text.
        fails = position < size ? text[position] != '\n' : size > 0 && text[size - 1] == '\n';
        ++instruction;
        break;
      case Operation::text_begin:
        fails = position > 0;
        ++instruction;
        break;
      case Operation::text_end:
        fails = position < size;
        ++instruction;
        break;
      case Operation::sub_end:
      case Operation::match:
        is_match = true;
        end = position;
        break;
    }
    if (is_match) break;
    if (!fails) continue;
    // Resumes at the most recent of the remaining alternatives.
    bool resumes = false;
    while (!resumes && alternatives.size() > stack_base) {
      Workspace::Alternative& alternative = alternatives.back();
      const Instruction& resumed_op = program[alternative.instruction];
      count_steps(1);
      resumes = true;
      if (resumed_op.operation == Operation::greedy_run) {
        do --alternative.position;
        while (is_continuation_byte(text[alternative.position]));
        position = alternative.position;
        instruction = alternative.instruction + 1;
        if (position == alternative.min_position) alternatives.pop_back();
      } else if (resumed_op.operation == Operation::lazy_run) {
        const DecodedCharacter character =
            alternative.position < size ? decode_utf8(text + alternative.position) : DecodedCharacter{0, 0};
        resumes = character.num_bytes > 0 && alternative.count > 0 && sets[resumed_op.value].contains(character.c);
        if (!resumes) {
          alternatives.pop_back();
          continue;
        }
        alternative.position += character.num_bytes;
        if (alternative.count != kUnlimited) --alternative.count;
        position = alternative.position;
        instruction = alternative.instruction + 1;
      } else {  // a branch
        position = alternative.position;
        instruction = resumed_op.value;
        alternatives.pop_back();
      }
    }
    if (!resumes) break;
  }
  alternatives.resize(stack_base);
  remaining_steps_ -= std::min(remaining_steps_, num_steps);
  return is_match;
}

void Regex::Searcher::refuse_steps() const {
  refuse_input(
      regex_.name_, "a regular expression that searches text in linear time",
      str("more than ", kMinSearchSteps + kStepsPerByte * text_.size(), " steps in a text of ", text_.size(), " bytes"),
      "use a tokenizer with a simpler regular expression");
}

}  // namespace mh::text
