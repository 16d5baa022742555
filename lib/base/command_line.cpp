#include "base/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace mh {

CLI::Validator one_of(const std::vector<std::string>& words) {
  return CLI::Validator(
      [words](std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) return "";
        const std::string suggestion = did_you_mean(text, words);
        return str("expected one of: ", join(words, ", "), "; found '", text, "'", suggestion.empty() ? "" : "; ",
                   suggestion);
      },
      "", "one_of");
}

CLI::Validator whole_number(int64_t low, int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        int64_t number = 0;
        const auto parse_result = std::from_chars(text.data(), text.data() + text.size(), number);
        const bool is_canonical = parse_result.ec == std::errc() && parse_result.ptr == text.data() + text.size() &&
                                  std::to_string(number) == text;
        if (is_canonical && number >= low && number <= high) return "";
        const std::string bounds = high == INT64_MAX ? str("of at least ", low) : str("from ", low, " to ", high);
        return str("expected a whole number ", bounds,
                   " in decimal digits only, without sign or leading zeros; found '", text, "'");
      },
      "", "whole_number");
}

CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<std::string>& values, const std::string& help,
                      const std::string& type) {
  return app.add_option(name, values, help)->type_name(type)->delimiter(',')->allow_extra_args(false);
}

CLI::Option* add_format_option(CLI::App& app, std::string& format, const std::string& qualifier) {
  return app
      .add_option("--format", format,
                  "output format" + (qualifier.empty() ? qualifier : " " + qualifier) + ": table or json [table]")
      ->type_name("WHAT")
      ->check(one_of({"table", "json"}));
}

void refuse_options(const std::vector<CLI::Option*>& options, const std::string& expected, const std::string& found,
                    const std::string& alternative) {
  for (const CLI::Option* option : options)
    if (option->count() > 0)
      refuse_usage(option->get_name(), expected, found,
                   str(alternative, alternative.empty() ? "" : ", or ", "leave ", option->get_name(), " out"));
}

void refuse_repeated_standard_input(const std::string& where, const std::vector<std::string>& paths) {
  if (std::ranges::count(paths, "-") > 1)
    refuse_usage(where, "standard input (-) for at most one file", "- more than once",
                 "write the other inputs to files");
}

// During declare(), adds an option for the field. During store_values(), after parsing, returns whether the option was
// given and sets `text` to its value in TOML syntax.
bool CommandLineFields::visit(const Field& field, std::string& text) {
  const std::string name = field_name("", field.key);
  if (!has_declared_options_) {
    Entry& entry = entries_[field.key];
    std::string help = field.help;
    if (!field.choices.empty()) help += " (" + join(field.choices, "|") + ")";
    if (field.text != "\"\"" && field.text != "[]" && field.type != "true/false")
      help += " [" + without_quotes(field.text) + "]";
    if (field.type == "true/false") entry.option = app_.add_flag(name, entry.text, help);
    else entry.option = app_.add_option(name, entry.text, help)->type_name(placeholder_of(field));
    options_.push_back(entry.option);
    return false;
  }
  const Entry& entry = entries_.at(field.key);
  if (entry.option->count() == 0) return false;
  if (find_invalid_utf8(entry.text) != std::string::npos)
    refuse_usage(origin(field.key), "a value in UTF-8", "invalid UTF-8",
                 "if the value is the name of a file, rename the file, or use a symbolic link to the file");
  const bool needs_quotes = field.type == "text" || field.type == "length";
  text = needs_quotes ? quoted_toml(entry.text) : field.type.back() == 's' ? "[" + entry.text + "]" : entry.text;
  return true;
}

std::string CommandLineFields::origin(const std::string& key) const { return field_name("", key); }

std::string CommandLineFields::without_quotes(const std::string& text) {
  return text.size() > 1 && text.front() == '"' ? text.substr(1, text.size() - 2) : text;
}

std::string CommandLineFields::placeholder_of(const Field& field) {
  if (!field.choices.empty()) return "WHAT";
  if (field.type == "integer" || field.type == "integers") return "N";
  if (field.type == "number" || field.type == "numbers") return "X";
  if (field.type == "length") return "LENGTH";
  return "TEXT";
}

}  // namespace mh
