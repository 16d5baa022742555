#include "base/fields.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace mh {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The overloads of toml_text() return a value in TOML syntax.
std::string toml_text(bool v) { return v ? "true" : "false"; }
std::string toml_text(int64_t v) { return std::to_string(v); }
std::string toml_text(double v) {
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  if (std::isnan(v)) return "nan";
  std::string text = shortest_decimal(v);
  bool is_integral = text.find_first_not_of("-0123456789") == std::string::npos;
  return is_integral ? text + ".0" : text;
}
std::string toml_text(const std::string& v) { return quoted_toml(v); }
std::string toml_text(const Length& v) { return quoted_toml(to_string(v)); }
template <class T>
std::string toml_text(const std::vector<T>& values) {
  std::vector<std::string> elements;
  elements.reserve(values.size());
  for (const T& v : values) elements.push_back(toml_text(v));
  return "[" + join(elements, ", ") + "]";
}

// The texts of Fields::text_or_texts().
struct TextOrTexts {
  std::vector<std::string> texts;
};
std::string toml_text(const TextOrTexts& v) {
  return v.texts.size() > 1 ? toml_text(v.texts) : toml_text(v.texts.empty() ? std::string() : v.texts[0]);
}

// Exception of parse_value() for an invalid value; `expected` states the required type with its bounds, or the choices.
struct InvalidValue {
  std::string expected, advice;
};

std::string bounds(Range r) {
  if (r.unset_value) return bounds({r.low, r.high}) + ", or " + shortest_decimal(*r.unset_value);
  if (r.low == -kInfinity && r.high == kInfinity) return "";
  if (r.high == kInfinity)
    return r.low == std::numeric_limits<double>::denorm_min() ? " above 0" : " of at least " + shortest_decimal(r.low);
  return " from " + shortest_decimal(r.low) + " to " + shortest_decimal(r.high);
}

// Returns "-1 means …" for a help text that explains the unset value -1 of a range as "-1: …"; "" if the range has no
// unset value or the help text does not explain it.
std::string meaning_of_unset(const Range& range, const std::string& help) {
  if (!range.unset_value) return "";
  const std::string value = shortest_decimal(*range.unset_value), label = value + ": ";
  const size_t begin = help.find(label);
  return begin == std::string::npos ? "" : value + " means " + help.substr(begin + label.size());
}

std::string advice_for_number(const toml::node& node, const char* type_name) {
  return node.is_string() ? "write the number in digits, without quotes" : str("write ", type_name);
}

template <class T>
void require_in_range(T v, Range r, const char* type_name) {
  auto x = static_cast<double>(v);
  if (x != r.unset_value && !(x >= r.low && x <= r.high))
    throw InvalidValue{type_name + bounds(r), "use a number in this range"};
}

void parse_value(const toml::node& node, bool& v, const std::vector<std::string>&, Range, const std::string&) {
  auto parsed_value = node.value_exact<bool>();
  if (!parsed_value) throw InvalidValue{"true or false", "write true or false, without quotes"};
  v = *parsed_value;
}
void parse_value(const toml::node& node, int64_t& v, const std::vector<std::string>&, Range r, const std::string&) {
  auto parsed_value = node.value_exact<int64_t>();
  if (!parsed_value) throw InvalidValue{"an integer" + bounds(r), advice_for_number(node, "an integer")};
  require_in_range(*parsed_value, r, "an integer");
  v = *parsed_value;
}
void parse_value(const toml::node& node, double& v, const std::vector<std::string>&, Range r, const std::string&) {
  if (!node.is_number()) throw InvalidValue{"a number" + bounds(r), advice_for_number(node, "a number")};
  double parsed_value = *node.value<double>();
  if (!std::isfinite(parsed_value)) throw InvalidValue{"a finite number" + bounds(r), "use a finite number"};
  require_in_range(parsed_value, r, "a number");
  v = parsed_value;
}
void parse_value(const toml::node& node, std::string& v, const std::vector<std::string>& choices, Range,
                 const std::string&) {
  auto parsed_value = node.value_exact<std::string>();
  const std::string choice_advice = "use one of these values";
  if (!parsed_value && choices.empty()) throw InvalidValue{"text in quotes", "put the text in quotes"};
  if (!parsed_value) throw InvalidValue{"one of: " + join(choices, ", "), choice_advice};
  if (!choices.empty() && std::find(choices.begin(), choices.end(), *parsed_value) == choices.end())
    throw InvalidValue{"one of: " + join(choices, ", "), did_you_mean(*parsed_value, choices, choice_advice)};
  v = *parsed_value;
}
void parse_value(const toml::node& node, Length& v, const std::vector<std::string>&, Range, const std::string& where) {
  auto parsed_value = node.value_exact<std::string>();
  if (!parsed_value)
    throw InvalidValue{
        "a length with a unit, such as \"16000u\" (updates), \"10e\" (epochs) or \"2000000t\" (tokens)",
        node.is_integer() ? str("add a unit, as in \"", *node.value<int64_t>(), "u\"") : "for example \"16000u\""};
  v = parse_length(*parsed_value, where);
}
template <class T>
void parse_value(const toml::node& node, std::vector<T>& values, const std::vector<std::string>& choices, Range r,
                 const std::string& where) {
  const toml::array* array = node.as_array();
  if (array == nullptr) throw InvalidValue{"a list in [ ]", "put the values in [ ], separated by commas"};
  std::vector<T> parsed_values(array->size());
  for (size_t i = 0; i < parsed_values.size(); ++i) {
    try {
      parse_value(*array->get(i), parsed_values[i], choices, r, where);
    } catch (const InvalidValue& invalid_value) {
      throw InvalidValue{"a list whose every entry is " + invalid_value.expected, invalid_value.advice};
    }
  }
  values = std::move(parsed_values);
}

void parse_value(const toml::node& node, TextOrTexts& v, const std::vector<std::string>& choices, Range r,
                 const std::string& where) {
  if (!node.is_string() && !node.is_array())
    throw InvalidValue{"text in quotes, or a list of texts in [ ]", "put each text in quotes"};
  std::vector<std::string> texts;
  if (node.is_array()) {
    parse_value(node, texts, choices, r, where);
  } else {
    std::string text;
    parse_value(node, text, choices, r, where);
    if (!text.empty()) texts.push_back(text);
  }
  v.texts = std::move(texts);
}

}  // namespace

std::string field_name(const std::string& section, const std::string& field) {
  if (!section.empty()) return section + "." + field;
  std::string name = "--" + field;
  for (char& c : name)
    if (c == '_' || c == '.') c = '-';
  return name;
}

std::string quoted_toml(const std::string& text) {
  std::ostringstream out;
  toml::value<std::string> value(text);
  out << toml::toml_formatter(value, toml::format_flags::none);  // always in double quotes, with escapes
  return out.str();
}

Range any_number() { return {-kInfinity, kInfinity}; }
Range at_least(double low) { return {low, kInfinity}; }
Range between(double low, double high) { return {low, high}; }
Range positive() { return {std::numeric_limits<double>::denorm_min(), kInfinity}; }
Range or_unset(double unset_value, Range range) { return {range.low, range.high, unset_value}; }

std::string Fields::origin(const std::string& key) const { return key; }

void Fields::push(const std::string& name) { sections_.push_back(name); }
void Fields::pop() { sections_.pop_back(); }

std::string Fields::full_key(const std::string& key) const {
  std::string text;
  for (const std::string& section : sections_)
    if (!section.empty()) text += section + ".";
  return text + key;
}

template <class T>
void Fields::visit_value(const std::string& key, T& value, const std::string& help, const char* type,
                         const std::vector<std::string>& choices, Range range, bool is_written) {
  Field field{full_key(key), help, type, toml_text(value), choices, range, is_written};
  std::string text;
  if (!visit(field, text)) return;
  const std::string where = origin(field.key);
  try {
    toml::table table = toml::parse("v = " + text);
    parse_value(*table.get("v"), value, choices, range, where);
  } catch (const toml::parse_error&) {
    refuse_usage(where, "a value in TOML syntax and UTF-8", text, "correct the value, or put a text in quotes");
  } catch (const InvalidValue& invalid_value) {
    const std::string meaning = meaning_of_unset(range, help);
    refuse_usage(where, invalid_value.expected, text, meaning.empty() ? invalid_value.advice : meaning);
  }
}

Fields::VisitedField Fields::field(const std::string& key, bool& value, const std::string& help) {
  visit_value(key, value, help, "true/false", {}, any_number());
  return {*this, full_key(key)};
}
Fields::VisitedField Fields::field(const std::string& key, int64_t& value, const std::string& help, Range range) {
  visit_value(key, value, help, "integer", {}, range);
  return {*this, full_key(key)};
}
Fields::VisitedField Fields::field(const std::string& key, double& value, const std::string& help, Range range) {
  visit_value(key, value, help, "number", {}, range);
  return {*this, full_key(key)};
}
Fields::VisitedField Fields::field(const std::string& key, std::string& value, const std::string& help,
                                   const std::vector<std::string>& choices) {
  visit_value(key, value, help, "text", choices, any_number());
  return {*this, full_key(key)};
}
Fields::VisitedField Fields::field(const std::string& key, Length& value, const std::string& help) {
  visit_value(key, value, help, "length", {}, any_number());
  return {*this, full_key(key)};
}
Fields::VisitedField Fields::field(const std::string& key, std::vector<int64_t>& value, const std::string& help,
                                   Range range) {
  visit_value(key, value, help, "integers", {}, range);
  return {*this, full_key(key)};
}
Fields::VisitedField Fields::field(const std::string& key, std::vector<double>& value, const std::string& help,
                                   Range range) {
  visit_value(key, value, help, "numbers", {}, range);
  return {*this, full_key(key)};
}
Fields::VisitedField Fields::field(const std::string& key, std::vector<std::string>& value, const std::string& help) {
  visit_value(key, value, help, "texts", {}, any_number());
  return {*this, full_key(key)};
}
Fields::VisitedField Fields::text_or_texts(const std::string& key, std::vector<std::string>& value,
                                           const std::string& help, const std::vector<std::string>& choices) {
  TextOrTexts text_or_texts{std::move(value)};
  visit_value(key, text_or_texts, help, "text or texts", choices, any_number());
  value = std::move(text_or_texts.texts);
  return {*this, full_key(key)};
}
Fields::VisitedField Fields::numbers_if_any(const std::string& key, std::vector<double>& value, const std::string& help,
                                            Range range) {
  visit_value(key, value, help, "numbers", {}, range, !value.empty());
  return {*this, full_key(key)};
}

}  // namespace mh
