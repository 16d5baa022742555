// Lists of plugins. A plugin is a regulariser or a procedure; a configuration section enables it:
// `[train.regularisers.NAME]` or `[train.procedures.NAME]`, where NAME is the name of the implementation. The section
// of a regulariser may have any other name if its key `type` names the implementation, so that one implementation can
// be used several times with different options:
//
//   [train.regularisers.subspace-overlap]
//   subspace = "rows"
//   [train.regularisers.columns]
//   type = "subspace-overlap"
//   subspace = "columns"
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "base/registry.h"

namespace mh::train {

// The key `type` of a regulariser's section.
struct PluginType {
  std::string type;
  void describe(Fields& f) { f.field("type", type, "name of the regulariser; empty: NAME, the name of the section"); }
};

// A list of plugins of type T (Regulariser or Procedure). T has the function describe(Fields&).
template <class T>
class Plugins {
 public:
  struct Entry {
    std::string name;        // last part of the section name: NAME
    PluginType plugin_type;  // `type` of the section; empty if NAME is the name of the implementation
    std::shared_ptr<T> plugin;
    void describe(Fields& f) {
      if (!plugin_type.type.empty()) plugin_type.describe(f);
      plugin->describe(f);
    }
  };

  // Creates and reads a plugin for each section `section`.NAME, in alphabetical order of NAME. Throws Error(usage) for
  // an unknown name or type. `allows_type_key`: whether sections may have the key `type`.
  void read(Config& config, const std::string& section, const Registry<T>& registry, bool allows_type_key = false) {
    section_ = section;
    for (const std::string& key : config.keys_below(section)) {
      const std::string name = key.substr(0, key.find('.'));
      if (!entries_.empty() && entries_.back().name == name) continue;
      const std::string entry_section = str(section, ".", name);
      Entry entry{name, {}, nullptr};
      if (allows_type_key) config.read(entry_section, entry.plugin_type);
      if (allows_type_key && entry.plugin_type.type.empty())
        registry.find(name, section, str("use one of these names, or set ", entry_section, ".type to one of them"));
      entry.plugin = entry.plugin_type.type.empty() ? registry.make(name, section)
                                                    : registry.make(entry.plugin_type.type, entry_section + ".type");
      config.read(entry_section, *entry.plugin);
      entries_.push_back(std::move(entry));
    }
  }
  void describe(Fields& f) {
    for (Entry& entry : entries_) f.section(section_ + "." + entry.name, entry);
  }
  std::string toml() const {
    TomlWriter writer;
    Plugins copy = *this;  // describe() is not const; the copy shares the plugins, which a writer does not change
    copy.describe(writer);
    return writer.text();
  }
  // Removes the plugins for which `predicate` returns false.
  template <class Predicate>
  void retain_if(const Predicate& predicate) {
    std::erase_if(entries_, [&](const Entry& entry) { return !predicate(*entry.plugin); });
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::string section_;
  std::vector<Entry> entries_;
};

}  // namespace mh::train
