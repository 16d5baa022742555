// config.json of a Hugging Face folder: conversion to the settings of each architecture and back.
#include "base/registry.h"
#include "fuzz/fuzz.h"
#include "huggingface/architecture.h"

using namespace mh;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const auto& name : huggingface::architectures().names())
    fuzz::check(size, fuzz::kTextFactor, [&] {
      const io::JsonConfig config(std::string(fuzz::text_of(data, size)), "config.json");
      const auto architecture = huggingface::architectures().make(name, "");
      const huggingface::Settings settings = architecture->settings(config, {});
      config.unread_keys();
      architecture->tensor_names(settings);
      architecture->config(huggingface::settings_of(huggingface::toml_of(settings)));
    });
  return 0;
}
