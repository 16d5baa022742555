// What a configuration turns on by a section of its own: `[train.regularisers.NAME]`, `[train.procedures.NAME]`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/registry.h"

namespace mh::train {

// T has describe(Fields&).
template <class T>
class Plugins {
 public:
  struct Entry {
    std::string name;
    std::shared_ptr<T> plugin;
  };

  // One for each section below `section`, in the order of their names. Error(usage) for an unknown name.
  void read(Config& config, const std::string& section, const Registry<T>& registry) {
    section_ = section;
    for (const std::string& key : config.keys_below(section)) {
      const std::string name = key.substr(0, key.find('.'));
      if (entries_.empty() || entries_.back().name != name) entries_.push_back({name, registry.make(name, section)});
    }
    for (Entry& entry : entries_) config.read(section + "." + entry.name, *entry.plugin);
  }
  std::string toml() const {
    TomlWriter writer;
    for (const Entry& entry : entries_) writer.section(section_ + "." + entry.name, *entry.plugin);
    return writer.text();
  }
  // Drops all others than those of which `wanted` says true.
  template <class Wanted>
  void keep(const Wanted& wanted) {
    std::erase_if(entries_, [&](const Entry& entry) { return !wanted(*entry.plugin); });
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::string section_;
  std::vector<Entry> entries_;
};

}  // namespace mh::train
