#include "metrics/bleu_words.h"

#include "base/unicode.h"

namespace mh::metrics {

namespace {

// Puts a space before and after each character for which `a` holds: s/(a)/ $1 /g.
template <class A>
void separate(std::u32string& text, const A& a) {
  std::u32string out;
  out.reserve(2 * text.size());
  for (char32_t c : text) {
    if (a(c)) out.append({U' ', c, U' '});
    else out += c;
  }
  text.swap(out);
}

// Replaces pairs of adjacent characters, from left to right without overlap, if `a` holds for the first and `b` for the
// second character: s/(a)(b)/…/g. `append_replacement(out, first, second)` appends the replacement of two characters.
template <class A, class B, class Append>
void replace_pairs(std::u32string& text, const A& a, const B& b, const Append& append_replacement) {
  std::u32string out;
  out.reserve(2 * text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && a(text[i]) && b(text[i + 1])) {
      append_replacement(out, text[i], text[i + 1]);
      ++i;
    } else {
      out += text[i];
    }
  }
  text.swap(out);
}

// Replacements for replace_pairs(): "$1 $2 " and " $1 $2".
constexpr auto separate_second = [](std::u32string& out, char32_t a, char32_t b) { out.append({a, U' ', b, U' '}); };
constexpr auto separate_first = [](std::u32string& out, char32_t a, char32_t b) { out.append({U' ', a, U' ', b}); };

void replace_all(std::u32string& text, std::u32string_view pattern, std::u32string_view replacement) {
  for (size_t position = text.find(pattern); position != text.npos;
       position = text.find(pattern, position + replacement.size()))
    text.replace(position, pattern.size(), replacement);
}

void separate_13a(std::u32string& line) {
  replace_all(line, U"<skipped>", U"");
  if (line.find(U'&') != line.npos) {  // replaces entities in this order, so that &amp;lt; becomes <
    replace_all(line, U"&quot;", U"\"");
    replace_all(line, U"&amp;", U"&");
    replace_all(line, U"&lt;", U"<");
    replace_all(line, U"&gt;", U">");
  }
  line = U' ' + line + U' ';
  auto is_digit = [](char32_t c) { return c >= U'0' && c <= U'9'; };
  auto is_not_digit = [&](char32_t c) { return !is_digit(c); };
  auto is_point_or_comma = [](char32_t c) { return c == U'.' || c == U','; };
  auto is_dash = [](char32_t c) { return c == U'-'; };
  // The space, and ASCII punctuation except apostrophe, comma, hyphen and full stop.
  auto is_mark = [](char32_t c) {
    return (c >= U'{' && c <= U'~') || (c >= U'[' && c <= U'`') || (c >= U' ' && c <= U'&') ||
           (c >= U'(' && c <= U'+') || (c >= U':' && c <= U'@') || c == U'/';
  };
  separate(line, is_mark);
  replace_pairs(line, is_not_digit, is_point_or_comma, separate_second);
  replace_pairs(line, is_point_or_comma, is_not_digit, separate_first);
  replace_pairs(line, is_digit, is_dash, separate_second);
}

void separate_international(std::u32string& line) {
  auto is_not_number = [](char32_t c) { return !is_number(c); };
  replace_pairs(line, is_not_number, is_punctuation, separate_second);
  replace_pairs(line, is_punctuation, is_not_number, separate_first);
  separate(line, is_symbol);
}

// Splits words at hyphens, without overlap: s/(\S)-(\S)/$1 ##AT##-##AT## $2/g.
void separate_compounds(std::u32string& line) {
  std::u32string out;
  for (size_t i = 0; i < line.size(); ++i) {
    out += line[i];
    if (i + 2 < line.size() && line[i + 1] == U'-' && !is_space(line[i]) && !is_space(line[i + 2])) {
      out += U" ##AT##-##AT## ";
      out += line[i + 2];
      i += 2;
    }
  }
  line.swap(out);
}

}  // namespace

const std::vector<std::pair<BleuTokenizer, std::string>>& bleu_tokenizer_names() {
  static const std::vector<std::pair<BleuTokenizer, std::string>> names{{BleuTokenizer::mteval_13a, "13a"},
                                                                        {BleuTokenizer::international, "intl"},
                                                                        {BleuTokenizer::characters, "char"},
                                                                        {BleuTokenizer::none, "none"}};
  return names;
}

std::vector<std::u32string_view> bleu_words(std::u32string& line, BleuTokenizer tokenizer, bool split_compounds) {
  while (!line.empty() && is_space(line.back())) line.pop_back();
  if (tokenizer == BleuTokenizer::characters) {
    std::vector<std::u32string_view> words;
    for (size_t i = 0; i < line.size(); ++i)
      if (!is_space(line[i])) words.push_back(std::u32string_view(line).substr(i, 1));
    return words;
  }
  if (tokenizer == BleuTokenizer::mteval_13a) separate_13a(line);
  if (tokenizer == BleuTokenizer::international) separate_international(line);
  if (split_compounds) separate_compounds(line);
  return words_of(line);
}

}  // namespace mh::metrics
