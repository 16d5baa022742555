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
  std::string text = shortest(v);
  bool integral = text.find_first_not_of("-0123456789") == std::string::npos;
  return integral ? text + ".0" : text;
}
std::string toml_text(const std::string& v) { return quoted_toml(v); }
std::string toml_text(const Length& v) { return quoted_toml(to_string(v)); }
template <class T>
std::string toml_text(const std::vector<T>& values) {
  std::vector<std::string> parts;
  parts.reserve(values.size());
  for (const T& v : values) parts.push_back(toml_text(v));
  return "[" + join(parts, ", ") + "]";
}

// Exception of read() for a value of the wrong type or out of bounds; `expected` states the type and the bounds.
struct InvalidValue {
  std::string expected;
};

std::string bounds(Range r) {
  if (r.low == -kInfinity && r.high == kInfinity) return "";
  if (r.high == kInfinity)
    return r.low == std::numeric_limits<double>::denorm_min() ? " above 0" : " of at least " + shortest(r.low);
  return " from " + shortest(r.low) + " to " + shortest(r.high);
}

template <class T>
void check_range(T v, Range r, const char* what) {
  auto x = static_cast<double>(v);
  if (!(x >= r.low && x <= r.high)) throw InvalidValue{what + bounds(r)};
}

void read(const toml::node& node, bool& v, const std::vector<std::string>&, Range, const std::string&) {
  auto found = node.value_exact<bool>();
  if (!found) throw InvalidValue{"true or false"};
  v = *found;
}
void read(const toml::node& node, int64_t& v, const std::vector<std::string>&, Range r, const std::string&) {
  auto found = node.value_exact<int64_t>();
  if (!found) throw InvalidValue{"an integer" + bounds(r)};
  check_range(*found, r, "an integer");
  v = *found;
}
void read(const toml::node& node, double& v, const std::vector<std::string>&, Range r, const std::string&) {
  if (!node.is_number()) throw InvalidValue{"a number" + bounds(r)};
  double found = *node.value<double>();
  if (!std::isfinite(found)) throw InvalidValue{"a finite number" + bounds(r)};
  check_range(found, r, "a number");
  v = found;
}
void read(const toml::node& node, std::string& v, const std::vector<std::string>& choices, Range, const std::string&) {
  auto found = node.value_exact<std::string>();
  if (!found) throw InvalidValue{choices.empty() ? "text in quotes" : "one of: " + join(choices, ", ")};
  if (!choices.empty() && std::find(choices.begin(), choices.end(), *found) == choices.end()) {
    std::string hint = nearest(*found, choices);
    throw InvalidValue{"one of: " + join(choices, ", ") + (hint.empty() ? "" : " (did you mean '" + hint + "'?)")};
  }
  v = *found;
}
void read(const toml::node& node, Length& v, const std::vector<std::string>&, Range, const std::string& where) {
  auto found = node.value_exact<std::string>();
  if (!found)
    throw InvalidValue{"a length with a unit, such as \"16000u\" (updates), \"10e\" (epochs) or \"2000000t\" (tokens)"};
  v = parse_length(*found, where);
}
template <class T>
void read(const toml::node& node, std::vector<T>& values, const std::vector<std::string>& choices, Range r,
          const std::string& where) {
  const toml::array* array = node.as_array();
  if (array == nullptr) throw InvalidValue{"a list in [ ]"};
  std::vector<T> found(array->size());
  for (size_t i = 0; i < found.size(); ++i) {
    try {
      read(*array->get(i), found[i], choices, r, where);
    } catch (const InvalidValue& c) {
      throw InvalidValue{"a list whose every entry is " + c.expected};
    }
  }
  values = std::move(found);
}

}  // namespace

std::string quoted_toml(const std::string& text) {
  std::ostringstream out;
  toml::value<std::string> value(text);
  out << toml::toml_formatter(value, toml::format_flags::none);  // always double quotes and escapes
  return out.str();
}

Range any_number() { return {-kInfinity, kInfinity}; }
Range at_least(double low) { return {low, kInfinity}; }
Range between(double low, double high) { return {low, high}; }
Range positive() { return {std::numeric_limits<double>::denorm_min(), kInfinity}; }

std::string Fields::origin(const std::string& key) const { return key; }

void Fields::push(const std::string& name) { sections_.push_back(name); }
void Fields::pop() { sections_.pop_back(); }

std::string Fields::full(const std::string& key) const {
  std::string text;
  for (const std::string& section : sections_)
    if (!section.empty()) text += section + ".";
  return text + key;
}

template <class T>
void Fields::visit_value(const std::string& key, T& value, const std::string& help, const char* type,
                         const std::vector<std::string>& choices, Range range) {
  Field field{full(key), help, type, toml_text(value), choices, range};
  std::string text;
  if (!visit(field, text)) return;
  const std::string where = origin(field.key);
  try {
    toml::table table = toml::parse("v = " + text);
    read(*table.get("v"), value, choices, range, where);
  } catch (const toml::parse_error&) {
    throw Error(Exit::usage, Problem{where, "a value in TOML syntax and UTF-8", text, ""});
  } catch (const InvalidValue& c) {
    throw Error(Exit::usage, Problem{where, c.expected, text, ""});
  }
}

Fields::VisitedField Fields::field(const std::string& key, bool& value, const std::string& help) {
  visit_value(key, value, help, "true/false", {}, any_number());
  return {*this, full(key)};
}
Fields::VisitedField Fields::field(const std::string& key, int64_t& value, const std::string& help, Range range) {
  visit_value(key, value, help, "integer", {}, range);
  return {*this, full(key)};
}
Fields::VisitedField Fields::field(const std::string& key, double& value, const std::string& help, Range range) {
  visit_value(key, value, help, "number", {}, range);
  return {*this, full(key)};
}
Fields::VisitedField Fields::field(const std::string& key, std::string& value, const std::string& help,
                                   const std::vector<std::string>& choices) {
  visit_value(key, value, help, "text", choices, any_number());
  return {*this, full(key)};
}
Fields::VisitedField Fields::field(const std::string& key, Length& value, const std::string& help) {
  visit_value(key, value, help, "length", {}, any_number());
  return {*this, full(key)};
}
Fields::VisitedField Fields::field(const std::string& key, std::vector<int64_t>& value, const std::string& help,
                                   Range range) {
  visit_value(key, value, help, "integers", {}, range);
  return {*this, full(key)};
}
Fields::VisitedField Fields::field(const std::string& key, std::vector<double>& value, const std::string& help,
                                   Range range) {
  visit_value(key, value, help, "numbers", {}, range);
  return {*this, full(key)};
}
Fields::VisitedField Fields::field(const std::string& key, std::vector<std::string>& value, const std::string& help) {
  visit_value(key, value, help, "texts", {}, any_number());
  return {*this, full(key)};
}

}  // namespace mh
