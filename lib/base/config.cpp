#include "base/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/renamed_keys.h"
#include "base/text.h"

namespace mh {

namespace {

const std::string kEmptyTable = "{}";  // value of an empty section, stored under the name of the section, so that
                                       // keys_below() of its parent lists it

// Returns a value in TOML syntax on one line. toml++ would print 0.9 as 0.90000000000000002.
std::string toml_text(const toml::node& node) {
  if (const auto number = node.value_exact<double>(); number && std::isfinite(*number)) {
    const std::string text = shortest_decimal(*number);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  const toml::array* array = node.as_array();
  if (array != nullptr && std::none_of(array->begin(), array->end(), [](const auto& n) { return n.is_table(); })) {
    std::vector<std::string> texts;
    for (const toml::node& element : *array) texts.push_back(toml_text(element));
    return texts.empty() ? "[]" : "[ " + join(texts, ", ") + " ]";
  }
  std::ostringstream out;
  node.visit([&](auto& n) {
    auto flags = toml::format_flags::none;
    if constexpr (!toml::is_table<decltype(n)>) out << toml::toml_formatter(n, flags);
  });
  std::string text = out.str();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Calls `visit(key, node)` for every value of a table. `key` consists of the names on the path to the value, joined by
// dots. An empty table counts as a value.
template <class Visit>
void for_each_value(const toml::table& table, const std::string& prefix, const Visit& visit) {
  for (auto&& [key, node] : table) {
    std::string full_key = prefix + std::string(key.str());
    const toml::table* subtable = node.as_table();
    if (subtable != nullptr && !subtable->empty()) for_each_value(*subtable, full_key + ".", visit);
    else visit(full_key, node);
  }
}

// Maximum size of a configuration, bytes. A TOML value takes up to 80 times the size of its text in memory; the largest
// configuration of a model or recipe has less than 20 kB.
constexpr size_t kMaxTomlBytes = size_t{1} << 20;

toml::table parse(const std::string& text, const std::string& name) {
  if (text.size() > kMaxTomlBytes)
    refuse_usage(name, str("a configuration of at most ", kMaxTomlBytes, " bytes"), str(text.size(), " bytes"),
                 "check the name of the file, or shorten the file");
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    refuse_usage(str(name, ":", error.source().begin.line, ":", error.source().begin.column), "text in TOML syntax",
                 str("the syntax error '", error.description(), "'"), "correct the line");
  }
}

void require_utf8(const std::string& text, const std::string& origin) {
  if (find_invalid_utf8(text) != std::string::npos)
    refuse_usage(origin, "a value in UTF-8, since config.toml stores the value", "invalid UTF-8",
                 "if the value is the name of a file, rename the file, or use a symbolic link to the file");
}

std::string folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

}  // namespace

void Config::insert(const std::string& key, const Value& value, RenamedKeys renamed_keys) {
  const std::vector<Assignment> assignments =
      convert_renamed({key, value.text}, value.origin, [this](const std::string& other_key) {
        const auto it = values_.find(other_key);
        return it == values_.end() ? "" : it->second.text;
      });
  for (const Assignment& assignment : assignments) values_[assignment.key] = {assignment.text, value.origin};
  const bool is_unchanged = assignments.size() == 1 && assignments[0].key == key && assignments[0].text == value.text;
  static std::set<std::string> warned_keys;
  if (is_unchanged || renamed_keys == RenamedKeys::silent || !warned_keys.insert(key).second) return;
  std::vector<std::string> replacements;
  replacements.reserve(assignments.size());
  for (const Assignment& assignment : assignments) replacements.push_back(assignment.key + " = " + assignment.text);
  log_warning(str(value.origin, ": ", key, " = ", value.text,
                  " is a setting of an earlier version of multihead; write ", join(replacements, " and "), " instead"));
}

void Config::load_file(const std::string& path) { load_file(path, {}); }

// `open_files`: the files that include this file, outermost first.
void Config::load_file(const std::string& path, std::vector<std::string> open_files) {
  // Compares device and inode, since one file may have several names.
  auto is_same_file = [&](const std::string& open_file) {
    std::error_code ignored_error;  // the reader below reports a missing file
    return std::filesystem::equivalent(open_file, path, ignored_error);
  };
  if (std::any_of(open_files.begin(), open_files.end(), is_same_file))
    refuse_usage(path, "includes without a cycle",
                 "a file that includes itself: " + join(open_files, " -> ") + " -> " + path,
                 "remove an include, so that no file includes itself");
  // Only a file on the command line may be a pipe; an included file must be a regular file.
  const std::string text = open_files.empty() ? read_text_file(path) : read_regular_file(path);
  const std::string source_name = input_name(path);
  open_files.push_back(path);
  toml::table table = parse(text, source_name);
  if (const toml::node* include = table.get("include")) {
    std::vector<std::string> names;
    if (auto file_name = include->value_exact<std::string>()) names.push_back(*file_name);
    if (const toml::array* file_names = include->as_array())
      for (const toml::node& node : *file_names)
        if (auto file_name = node.value_exact<std::string>()) names.push_back(*file_name);
    if (names.empty())
      refuse_usage(source_name + ": include", "file names in quotes", toml_text(*include),
                   "write include = [\"FILE.toml\"]");
    for (const std::string& name : names) {
      const std::string included_path = name[0] == '/' ? name : folder_of(path) + name;
      if (included_path == "-")
        refuse_input(source_name + ": include", "the name of a regular file", "-, standard input",
                     "write the configuration to a file, and include this file");
      load_file(included_path, open_files);
    }
  }
  load_text(text, source_name, RenamedKeys::warn);
}

void Config::load_text(const std::string& text, const std::string& name) { load_text(text, name, RenamedKeys::silent); }

void Config::load_text(const std::string& text, const std::string& name, RenamedKeys renamed_keys) {
  toml::table table = parse(text, name);
  // Keys `type` are inserted first, since the type of a section selects the new names of renamed keys.
  for (const bool inserts_types : {true, false})
    for_each_value(table, "", [&](const std::string& key, const toml::node& node) {
      if (key == "include" || key.ends_with(".type") != inserts_types) return;
      insert(key, {node.is_table() ? kEmptyTable : toml_text(node), str(name, ":", node.source().begin.line)},
             renamed_keys);
    });
}

void Config::set(const std::string& assignment) {
  size_t equals = assignment.find('=');
  std::string key = trim(assignment.substr(0, equals));
  if (equals == std::string::npos || key.empty())
    refuse_usage("--set", "key=value, such as train.lr=3e-4", "'" + assignment + "'", "write the key, = and the value");
  std::string value = trim(assignment.substr(equals + 1));
  try {
    toml::table table = toml::parse("v = " + value);
    if (table.size() != 1 || table.get("v")->is_table()) throw toml::parse_error("", toml::source_region{});
    insert(key, {toml_text(*table.get("v")), "--set " + key}, RenamedKeys::warn);
  } catch (const toml::parse_error&) {
    set_text(key, value, "--set " + key);
  }
}

void Config::set_text(const std::string& key, const std::string& text, const std::string& origin) {
  require_utf8(text, origin);
  insert(key, {quoted_toml(text), origin}, RenamedKeys::warn);
}

void Config::set_texts(const std::string& key, const std::vector<std::string>& texts, const std::string& origin) {
  std::vector<std::string> quoted_texts;
  for (const std::string& text : texts) {
    require_utf8(text, origin);
    quoted_texts.push_back(quoted_toml(text));
  }
  insert(key, {"[ " + join(quoted_texts, ", ") + " ]", origin}, RenamedKeys::warn);
}

std::vector<std::string> Config::keys_below(const std::string& section) const {
  std::vector<std::string> keys;
  std::string prefix = section + ".";
  for (auto it = values_.lower_bound(prefix); it != values_.end() && it->first.compare(0, prefix.size(), prefix) == 0;
       ++it)
    keys.push_back(it->first.substr(prefix.size()));
  return keys;
}

void Config::check_all_known() const {
  std::vector<std::string> known_keys(known_keys_.begin(), known_keys_.end());
  for (const auto& [key, value] : values_) {
    if (known_keys_.count(key) > 0) continue;
    const auto first_below = known_keys_.lower_bound(key + ".");
    if (value.text == kEmptyTable && first_below != known_keys_.end() && first_below->rfind(key + ".", 0) == 0)
      continue;
    const std::string foreign_key = key_of_foreign_name(key.substr(key.rfind('.') + 1));
    refuse_usage(
        value.origin, "a known key", "unknown key '" + key + "'",
        did_you_mean(foreign_key.empty() ? key : foreign_key, known_keys, "mh-train --list keys lists all keys"));
  }
}

bool Config::Reader::visit(const Field& field, std::string& text) {
  config_.known_keys_.insert(field.key);
  auto it = config_.values_.find(field.key);
  if (it == config_.values_.end()) return false;
  text = it->second.text;
  return true;
}

std::string Config::Reader::origin(const std::string& key) const {
  auto it = config_.values_.find(key);
  if (it == config_.values_.end()) return key;
  // An origin such as "--set train.lr" already contains the key.
  return it->second.origin.rfind("--", 0) == 0 ? it->second.origin : it->second.origin + ": " + key;
}

bool TomlWriter::visit(const Field& field, std::string&) {
  if (!field.is_written) return false;
  size_t dot = field.key.rfind('.');
  std::string section = dot == std::string::npos ? "" : field.key.substr(0, dot);
  std::string line = (dot == std::string::npos ? field.key : field.key.substr(dot + 1)) + " = " + field.text;
  auto it =
      std::find_if(section_lines_.begin(), section_lines_.end(), [&](const auto& t) { return t.first == section; });
  if (it == section_lines_.end())
    it = section_lines_.insert(section.empty() ? section_lines_.begin() : section_lines_.end(), {section, {}});
  it->second.push_back(line);
  return false;
}

std::string TomlWriter::text() const {
  std::string text;
  for (const auto& [section, lines] : section_lines_) {
    if (!text.empty()) text += "\n";
    if (!section.empty()) text += "[" + section + "]\n";
    for (const std::string& line : lines) text += line + "\n";
  }
  return text;
}

bool FieldLister::visit(const Field& field, std::string&) {
  descriptions_.push_back({field.key, field.type, field.text, field.help, field.choices});
  return false;
}

// Sets the rule of the field `key`, or of all fields of the section `key`, to `rule` unless the stored rule is less
// strict. If a field and its section have different rules, require_same_run() also applies the less strict one.
void FieldLister::set_resume_rule(const std::string& key, ResumeRule rule) {
  for (FieldDescription& field : descriptions_)
    if (key.ends_with('.') ? field.key.starts_with(key) : field.key == key)
      field.resume_rule = std::max(field.resume_rule, rule);
}

namespace {

// Returns the values in a text that TomlWriter wrote, by full key, such as "train.lr".
std::map<std::string, std::string> values_by_key(const std::string& toml) {
  std::map<std::string, std::string> values;
  std::string section;
  for (const std::string& line : split(toml, '\n')) {
    if (line.empty()) continue;
    size_t equals = line.find(" = ");
    if (line[0] == '[') section = line.substr(1, line.size() - 2) + ".";
    else if (equals != std::string::npos) values[section + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return values;
}

}  // namespace

std::vector<ConfigDifference> config_differences(const std::string& old_toml, const std::string& new_toml) {
  auto old_values = values_by_key(old_toml), new_values = values_by_key(new_toml);
  std::vector<ConfigDifference> result;
  for (const auto& [key, value] : old_values)
    if (new_values[key] != value)
      result.push_back({key, str(key, ": ", value, " -> ", new_values[key].empty() ? "default" : new_values[key])});
  for (const auto& [key, value] : new_values)
    if (old_values.count(key) == 0 && !value.empty()) result.push_back({key, str(key, ": default -> ", value)});
  return result;
}

std::vector<std::string> config_difference_texts(const std::string& old_toml, const std::string& new_toml,
                                                 const std::vector<std::string>& prefixes) {
  std::vector<std::string> texts;
  for (const ConfigDifference& difference : config_differences(old_toml, new_toml))
    if (std::any_of(prefixes.begin(), prefixes.end(),
                    [&](const std::string& prefix) { return difference.key.rfind(prefix, 0) == 0; }))
      texts.push_back(difference.text);
  return texts;
}

}  // namespace mh
