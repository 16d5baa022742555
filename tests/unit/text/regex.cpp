// Tests of the regular expressions of tokenizer.json: hand-made matches of each part of the syntax, random expressions
// compared with std::regex, and refusal of other syntax.
#include "text/pipeline/regex.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <regex>

#include "base/text.h"
#include "fixtures/status.h"

using namespace mh;
using namespace mh::text;

namespace {

using Words = std::vector<std::string>;

Words matches_of(const Regex& regex, std::string_view text) {
  Regex::Workspace workspace;
  Regex::Searcher searcher(regex, workspace);
  searcher.begin(text);
  Words words;
  for (Regex::Match match{}; searcher.next(match);)
    words.emplace_back(text.substr(match.begin, match.end - match.begin));
  return words;
}
Words matches_of(const std::string& pattern, std::string_view text) { return matches_of(Regex(pattern, "test"), text); }

// Returns an expression over the letters a and b, without unlimited repetitions of parts that may be empty.
std::string random_pattern(int depth) {
  const auto pick = [](int n) { return *rc::gen::inRange(0, n); };
  static const char* const sets[] = {"a", "b", "[ab]", "[^a]", "."};
  static const char* const repetitions[] = {"", "?", "*", "+", "??", "*?", "+?", "{1,2}", "{2}", "{0,2}?"};
  std::string pattern;
  for (int i = pick(3) + 1; i > 0; --i) {
    const bool is_group = depth > 0 && pick(3) == 0;
    if (!is_group) {
      pattern += sets[pick(5)];
      pattern += repetitions[pick(10)];
    } else {
      static const char* const group_repetitions[] = {"", "?", "{1,2}", "{2}"};
      static const char* const groups[] = {"(?:", "(?=", "(?!"};
      const int kind = pick(6) < 4 ? 0 : pick(2) + 1;
      pattern += groups[kind] + random_pattern(depth - 1) + ")" + (kind == 0 ? group_repetitions[pick(4)] : "");
    }
  }
  if (depth > 0 && pick(3) == 0) pattern += "|" + random_pattern(depth - 1);
  return pattern;
}

}  // namespace

TEST_CASE("a regular expression finds the leftmost match of the first alternative", "[tokenizer-json]") {
  CHECK(matches_of("ab|a|abc", "abcab") == Words{"ab", "ab"});
  CHECK(matches_of("(a|ab)(c|bcd)", "abcd") == Words{"abcd"});
  CHECK(matches_of("a+?b", "aab") == Words{"aab"});
  CHECK(matches_of("a*?", "aa") == Words{"", "", ""});
  CHECK(matches_of("a{1,2}", "aaaaa") == Words{"aa", "aa", "a"});
  CHECK(matches_of("a{,2}b", "aaab") == Words{"aab"});
  CHECK(matches_of("(?:ab){2,}", "ababab ab") == Words{"ababab"});
  CHECK(matches_of("(?:ab|a){1,3}+", "abaab") == Words{"abaab"});
}

TEST_CASE("possessive repetitions and atomic groups give nothing back", "[tokenizer-json]") {
  CHECK(matches_of("a++a", "aaa").empty());
  CHECK(matches_of("a?+a", "aa") == Words{"aa"});
  CHECK(matches_of("a?+a", "a").empty());
  CHECK(matches_of("(?>a|ab)c", "abc").empty());
  CHECK(matches_of("(?:a|ab)++c", "abac") == Words{"ac"});
  CHECK(matches_of("(?:a|ab)+c", "abac") == Words{"abac"});
}

TEST_CASE("look-ahead and anchors match no characters", "[tokenizer-json]") {
  CHECK(matches_of(R"(\s+(?!\S)|\s+)", "a   b  ") == Words{"  ", " ", "  "});
  CHECK(matches_of("a(?=b)", "abaa") == Words{"a"});
  CHECK(matches_of("a(?!b|c)", "abacaa") == Words{"a", "a"});
  CHECK(matches_of("^a", "aa\na") == Words{"a", "a"});
  CHECK(matches_of("a$", "aa\na") == Words{"a", "a"});
  CHECK(matches_of(R"(\Aa|a\z)", "aaa") == Words{"a", "a"});
}

TEST_CASE("classes have the characters of Unicode 16.0", "[tokenizer-json]") {
  CHECK(matches_of(R"(\p{L}+)", "aé中1\u1c89\u0301") == Words{"aé中", "\u1c89"});
  CHECK(matches_of(R"(\p{N})", "1½\U00016d70a") == Words{"1", "½", "\U00016d70"});
  CHECK(matches_of(R"([^\P{Lu}A])", "ABCa") == Words{"B", "C"});
  CHECK(matches_of(R"([a-c\]\-x])", "abd]-x\\") == Words{"a", "b", "]", "-", "x"});
  CHECK(matches_of("[^(\\s|[.,])]+", "a(b,c") == Words{"a", "b", "c"});
  CHECK(matches_of("[一-龥]+", "a中文b") == Words{"中文"});
  CHECK(matches_of(R"(\x41\x{e9}\u4e2d)", "Aé中") == Words{"Aé中"});
  CHECK(matches_of(R"(\w+)", "a_1é²-\u200d") == Words{"a_1é²"});
}

TEST_CASE("letters in (?i:) match the characters that fold to them", "[tokenizer-json]") {
  CHECK(matches_of("(?i:'s|'ll)", "'s'S'\u017f'lL'Ll") == Words{"'s", "'S", "'\u017f", "'lL", "'Ll"});
  CHECK(matches_of("(?i:[sdk])s", "\u212asSSds") == Words{"\u212as", "ds"});
}

TEST_CASE("random regular expressions find the matches of std::regex", "[tokenizer-json]") {
  CHECK(rc::check("same matches", [] {
    const std::string pattern = random_pattern(2);
    const auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'b', 'a'));
    const std::regex reference(pattern, std::regex::ECMAScript);
    Words expected;
    size_t position = 0, previous_end = SIZE_MAX;
    while (position <= text.size()) {
      std::smatch match;
      // No anchor occurs, so the text before the position has no effect.
      if (!std::regex_search(text.begin() + static_cast<ptrdiff_t>(position), text.end(), match, reference)) break;
      const size_t begin = position + static_cast<size_t>(match.position(0));
      const size_t end = begin + static_cast<size_t>(match.length(0));
      if (end == begin && end == previous_end) {
        ++position;
        continue;
      }
      expected.push_back(match.str(0));
      position = previous_end = end;
    }
    RC_LOG() << pattern << " in " << text;
    RC_ASSERT(matches_of(pattern, text) == expected);
  }));
}

TEST_CASE("other syntax is refused with its position", "[tokenizer-json]") {
  for (const auto& [pattern, offset] : std::vector<std::pair<std::string, int>>{
           {R"((a)\1)", 3}, {R"(ab\p{Han})", 2}, {"a(?<n>b)", 1},  {"[a&&b]", 2},  {"[[:alpha:]]", 1}, {"a**", -1},
           {"(?:a*)*", 6},  {"(ab", 1},          {"ab)", 2},       {"[ab", 1},     {"[]", 1},          {"a{2}?", 1},
           {"*a", 0},       {"a{3,2}", 1},       {R"(\b)", 0},     {R"(\xff)", 0}, {"(?i:ss)", 5},     {"(?i:é)", 4},
           {"a{2000}", 1},  {R"([b-a])", 1},     {R"([\d-z])", 1}, {"(?<=a)b", 0}, {R"(a\)", 1}}) {
    INFO(pattern);
    if (offset < 0) {  // repeats a repetition that may be empty
      CHECK_THROWS_AS(Regex(pattern, "test"), Error);
      continue;
    }
    try {
      Regex(pattern, "test");
      FAIL("expected an error");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::input);
      CHECK(std::string(error.what()).find(str(": byte ", offset, ":")) != std::string::npos);
    }
  }
  CHECK_THROWS_AS(Regex("(?:(?:ab){1000}c){1000}", "test"), Error);
  CHECK_THROWS_AS(Regex(std::string(20000, 'a'), "test"), Error);
  CHECK_NOTHROW(Regex("(?:(?:(?:){1000}){1000}){1000}", "test"));
}

TEST_CASE("the error of a refused expression states the byte and the expected syntax", "[tokenizer-json]") {
  std::string many_classes, many_repetitions;
  for (int i = 0; i < 65; ++i) many_classes += str(R"([a\u4)", 100 + i, "]");
  for (int i = 0; i < 1001; ++i) many_repetitions += "a?";
  for (const auto& [pattern, message] : std::vector<std::pair<std::string, const char*>>{
           {many_classes, "byte 0: expected at most 64 different classes; found more classes"},
           {many_repetitions, "byte 2001: expected at most 1000 repetitions; found more"},
           {std::string(60, '['), "byte 50: expected at most 50 nested classes; found more"},
           {std::string(60, '('), "byte 50: expected at most 50 nested groups; found more"},
           {R"((?i:[a-\u4e00]))", "byte 4: expected ASCII letters in (?i:...); found a class of many characters"},
           {R"(a\pL)", R"(byte 1: expected \p{...}; found '\pL')"},
           {R"(\p{L)", R"(byte 0: expected \p{...}; found '\p{L')"},
           {"a$+", "byte 2: expected a repetition of characters or groups; found a repetition of an anchor"},
           {"(?=a)*", "byte 5: expected a repetition of characters or groups; found a repetition of an anchor"},
           {"a{b}", "byte 1: expected an interval {m,n}, or an escaped brace; found '{b}'"},
           {"[a-[b]]", "byte 1: expected a range of characters; found a range that ends with a class"},
           {R"([a-\d])", "byte 1: expected a range of characters; found a range that ends with a class"}}) {
    INFO(pattern);
    CHECK_THROWS_WITH(Regex(pattern, "test"), Catch::Contains(message));
  }
}

TEST_CASE("a search with too many steps is refused", "[tokenizer-json]") {
  CHECK_THROWS_AS(matches_of("(?:a|aa)+b", std::string(3000, 'a') + "c"), Error);
  const std::string spaces(100000, ' ');
  CHECK(matches_of(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces + "a").size() == 2);
}
