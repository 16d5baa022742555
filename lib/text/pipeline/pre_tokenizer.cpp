#include "text/pipeline/pre_tokenizer.h"

#include <optional>
#include <utility>

#include "base/unicode.h"
#include "text/bert_text.h"
#include "text/byte_bpe.h"
#include "text/pipeline/normalizer.h"

namespace mh::text {

namespace {

using Json = nlohmann::json;

// The treatment of the text that a delimiter matches.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

constexpr std::pair<const char*, Behavior> kBehaviors[] = {{"Removed", Behavior::removed},
                                                           {"Isolated", Behavior::isolated},
                                                           {"MergedWithPrevious", Behavior::merged_with_previous},
                                                           {"MergedWithNext", Behavior::merged_with_next},
                                                           {"Contiguous", Behavior::contiguous}};

Behavior parse_behavior(const JsonNode& node, const char* default_name, Json& canonical) {
  const std::string name = node.text("behavior", default_name);
  for (const auto& [known_name, behavior] : kBehaviors)
    if (name == known_name) {
      canonical["behavior"] = name;
      return behavior;
    }
  node.at("behavior")
      .refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", name, kUseSupportedType);
}

// Splits words at the matches of a regular expression, or with `inverts` at the text between them.
class SplitPreTokenizer : public PreTokenizer {
 public:
  SplitPreTokenizer(Regex regex, Behavior behavior, bool inverts = false)
      : regex_(std::move(regex)), behavior_(behavior), inverts_(inverts) {}

  void apply(WordList& list) const override {
    list.next_words.clear();
    Regex::Searcher searcher(regex_, list.workspace);
    for (const WordList::Word& word : list.words) {
      const size_t first_part = list.next_words.size();
      bool previous_is_delimiter = false;
      // Adds the part [begin, end) of the word.
      const auto add = [&](size_t begin, size_t end, bool is_delimiter) {
        is_delimiter = is_delimiter != inverts_;
        auto& words = list.next_words;
        const bool has_previous = words.size() > first_part;
        bool joins_previous = false;
        switch (behavior_) {
          case Behavior::removed:
            if (is_delimiter) return;
            break;
          case Behavior::isolated:
            break;
          case Behavior::contiguous:
            joins_previous = has_previous && is_delimiter == previous_is_delimiter;
            break;
          case Behavior::merged_with_previous:
            joins_previous = has_previous && is_delimiter && !previous_is_delimiter;
            break;
          case Behavior::merged_with_next:
            joins_previous = has_previous && !is_delimiter && previous_is_delimiter;
            break;
        }
        previous_is_delimiter = is_delimiter;
        if (joins_previous) {
          words.back().end = word.begin + static_cast<uint32_t>(end);
          return;
        }
        if (begin == end) return;
        words.push_back({word.begin + static_cast<uint32_t>(begin), word.begin + static_cast<uint32_t>(end),
                         word.starts_text && begin == 0});
      };
      const std::string_view text = list.text_of(word);
      searcher.begin(text);
      size_t previous_end = 0;
      for (Regex::Match match{}; searcher.next(match); previous_end = match.end) {
        if (match.begin > previous_end) add(previous_end, match.begin, false);
        add(match.begin, match.end, true);
      }
      if (previous_end < text.size()) add(previous_end, text.size(), false);
    }
    list.words.swap(list.next_words);
  }

 private:
  Regex regex_;
  Behavior behavior_;
  bool inverts_;
};

// Splits words by GPT-2's regular expression (byte_bpe_word_end()).
class Gpt2PreTokenizer : public PreTokenizer {
 public:
  void apply(WordList& list) const override {
    list.next_words.clear();
    for (const WordList::Word& word : list.words) {
      const std::string_view text = list.text_of(word);
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = byte_bpe_word_end(text, begin);
        list.next_words.push_back({word.begin + static_cast<uint32_t>(begin), word.begin + static_cast<uint32_t>(end),
                                   word.starts_text && begin == 0});
        begin = end;
      }
    }
    list.words.swap(list.next_words);
  }
};

// Base class of pre-tokenizers that rewrite the text of each word.
class RewritingPreTokenizer : public PreTokenizer {
 public:
  void apply(WordList& list) const override {
    std::string& out = list.buffers[1 - list.buffer];
    out.clear();
    list.next_words.clear();
    for (const WordList::Word& word : list.words) {
      const auto begin = static_cast<uint32_t>(out.size());
      rewrite(list.text_of(word), word.starts_text, out);
      list.next_words.push_back({begin, static_cast<uint32_t>(out.size()), word.starts_text});
    }
    list.words.swap(list.next_words);
    list.buffer = 1 - list.buffer;
    list.text = out;
  }

 private:
  // Appends the new text of a word to `out`.
  virtual void rewrite(std::string_view word, bool starts_text, std::string& out) const = 0;
};

// Puts a space in front of each word that does not start with a space (ByteLevel with add_prefix_space).
class SpacePrefix : public RewritingPreTokenizer {
  void rewrite(std::string_view word, bool, std::string& out) const override {
    if (!word.starts_with(' ')) out += ' ';
    out += word;
  }
};

// Replaces each byte by its character (ByteLevel that another pre-tokenizer follows).
class ByteCharacters : public RewritingPreTokenizer {
  void rewrite(std::string_view word, bool, std::string& out) const override { append_byte_characters(word, out); }
};

enum class PrependScheme { always, first, never };

// Replaces spaces by a mark, and puts a mark in front of words that do not start with a mark.
class MetaspacePreTokenizer : public RewritingPreTokenizer {
 public:
  MetaspacePreTokenizer(std::string mark, PrependScheme scheme) : mark_(std::move(mark)), scheme_(scheme) {}

 private:
  void rewrite(std::string_view word, bool starts_text, std::string& out) const override {
    const bool prepends_mark = scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && starts_text);
    if (prepends_mark && !word.starts_with(mark_) && !word.starts_with(' ')) out += mark_;
    for (char c : word)
      if (c == ' ') out += mark_;
      else out += c;
  }

  std::string mark_;
  PrependScheme scheme_;
};

class PreTokenizerParser {
 public:
  explicit PreTokenizerParser(Json& canonical) : canonical_(canonical) {}

  PreTokenizers parse(const JsonNode& node) {
    const auto stages = node.stages("pretokenizers");
    for (size_t i = 0; i < stages.size(); ++i) {
      settings_ = Json::object();
      parse_stage(stages[i], i + 1 == stages.size());
      canonical_.push_back(std::move(settings_));
    }
    return std::move(result_);
  }

 private:
  template <class Stage, class... Arguments>
  void add(Arguments&&... arguments) {
    result_.stages.push_back(std::make_unique<Stage>(std::forward<Arguments>(arguments)...));
  }
  void add_split(const CharacterSet& delimiters, Behavior behavior) {
    add<SplitPreTokenizer>(Regex::of_characters(delimiters), behavior);
  }

  // Adds the stages of the component `node`. `is_last`: no component follows.
  void parse_stage(const JsonNode& node, bool is_last) {
    const std::string type = node.type();
    settings_["type"] = type;
    if (type == "ByteLevel") return parse_byte_level(node, is_last);
    if (type == "Split") return parse_split(node);
    if (type == "Metaspace") return parse_metaspace(node);
    if (type == "Digits") {
      const bool is_individual = node.flag("individual_digits", false);
      settings_["individual_digits"] = is_individual;
      return add_split(characters_of_category("N"), is_individual ? Behavior::isolated : Behavior::contiguous);
    }
    if (type == "Punctuation") return add_split(punctuation(), parse_behavior(node, "Isolated", settings_));
    if (type == "WhitespaceSplit") return add_split(white_space_characters().set(), Behavior::removed);
    if (type == "Whitespace") {
      // \w+|[^\w\s]+ of the crate regex: runs of word characters, and runs of other characters.
      add_split(white_space_characters().set(), Behavior::removed);
      return add_split(rust_word_characters().set(), Behavior::contiguous);
    }
    if (type == "BertPreTokenizer") {
      add_split(white_space_characters().set(), Behavior::removed);
      return add_split(punctuation(), Behavior::isolated);
    }
    if (type == "CharDelimiterSplit") {
      const std::string delimiter = node.text("delimiter", "");
      const auto characters = code_points(delimiter);
      if (characters.size() != 1) node.at("delimiter").refuse("one character", "'" + delimiter + "'");
      settings_["delimiter"] = delimiter;
      return add_split(CharacterSet({{characters[0], characters[0]}}), Behavior::removed);
    }
    node.refuse(
        "a pre-tokenizer of the type Sequence, ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, "
        "WhitespaceSplit, BertPreTokenizer or CharDelimiterSplit",
        type.empty() ? abbreviate(*node.value) : type, kUseSupportedType);
  }

  static CharacterSet punctuation() {
    std::vector<CodePointRange> ranges;
    for (char32_t c = 0; c < 0x20000; ++c)  // no punctuation of Unicode 8.0 has a higher number
      if (is_bert_punctuation(c)) ranges.push_back({c, c});
    return CharacterSet(std::move(ranges));
  }

  void parse_byte_level(const JsonNode& node, bool is_last) {
    const bool adds_space = node.flag("add_prefix_space", true), uses_regex = node.flag("use_regex", true);
    settings_.update({{"add_prefix_space", adds_space}, {"trim_offsets", true}, {"use_regex", uses_regex}});
    if (adds_space) add<SpacePrefix>();
    if (uses_regex) add<Gpt2PreTokenizer>();
    if (is_last) result_.yields_bytes = true;
    else add<ByteCharacters>();
  }

  void parse_split(const JsonNode& node) {
    const Behavior behavior = parse_behavior(node, "Isolated", settings_);
    const bool inverts = node.flag("invert", false);
    settings_.update({{"invert", inverts}, {"pattern", *node.at("pattern").value}});
    add<SplitPreTokenizer>(parse_pattern(node.at("pattern")), behavior, inverts);
  }

  void parse_metaspace(const JsonNode& node) {
    const std::string mark = node.text("replacement", "\u2581");
    const auto mark_characters = code_points(mark);
    if (mark_characters.size() != 1) node.at("replacement").refuse("one character", "'" + mark + "'");
    if (const std::string old_mark = node.text("str_rep", mark); old_mark != mark)
      node.at("str_rep").refuse("the value of replacement, '" + mark + "'", "'" + old_mark + "'", kUseSupportedType);
    // Old files have add_prefix_space instead of prepend_scheme.
    std::string scheme = node.text("prepend_scheme", node.flag("add_prefix_space", true) ? "always" : "never");
    if (!node.flag("add_prefix_space", true)) {
      if (scheme != "never")
        node.at("prepend_scheme").refuse("never, since add_prefix_space is false", scheme, kUseSupportedType);
    }
    if (scheme != "always" && scheme != "first" && scheme != "never")
      node.at("prepend_scheme").refuse("always, first or never", scheme, kUseSupportedType);
    const bool splits = node.flag("split", true);
    settings_.update({{"prepend_scheme", scheme}, {"replacement", mark}, {"split", splits}});
    add<MetaspacePreTokenizer>(mark, scheme == "always"  ? PrependScheme::always
                                     : scheme == "first" ? PrependScheme::first
                                                         : PrependScheme::never);
    if (splits) add_split(CharacterSet({{mark_characters[0], mark_characters[0]}}), Behavior::merged_with_next);
  }

  Json& canonical_;
  Json settings_;
  PreTokenizers result_;
};

}  // namespace

void WordList::assign(std::string_view new_text, bool starts_text) {
  text = new_text;
  words.clear();
  if (!text.empty()) words.push_back({0, static_cast<uint32_t>(text.size()), starts_text});
}

PreTokenizers parse_pre_tokenizers(const JsonNode& node, Json& canonical) {
  return PreTokenizerParser(canonical).parse(node);
}

}  // namespace mh::text
